"""The configuration: one frozen, validated model, its canonical form and its hash."""

import hashlib
import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)

from refprotofl.complaints import explain
from refprotofl.errors import InputError


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _read_switch(value: object) -> object:
    return (
        {"on": True, "off": False, "true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    )


def _read_budget(value: object) -> object:
    """'20 kB' is 20,000 bytes; a bare number is bytes."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(B|kB|MB)\s*", value)
    if not match:
        raise ValueError("is not a size such as '20 kB', '900 B' or '1.5 MB'")
    return int(float(match[1]) * {"B": 1, "kB": 1000, "MB": 1_000_000}[match[2]])


def _without_repeats(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(values)) != len(values):
        raise ValueError("names a class twice")
    return values


Switch = Annotated[bool, BeforeValidator(_read_switch)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class _Table(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=_kebab, populate_by_name=True, allow_inf_nan=False
    )


class Train(_Table):
    local_epochs: PositiveInt = Field(1, description="passes over a client's data in a round, 1 or more")
    batch_size: PositiveInt = Field(64, description="samples in a batch, 1 or more")
    lr: Annotated[float, Field(gt=0)] = Field(0.01, description="SGD's learning rate, above 0")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="SGD's momentum, from 0 to below 1")
    weight_decay: Annotated[float, Field(ge=0)] = Field(1e-4, description="SGD's weight decay, 0 or more")


class Model(_Table):
    name: str = Field("resnet18", description="resnet18, cnn, mlp, or module:function for a backbone of your own")
    stem: Literal["imagenet", "cifar"] = Field("imagenet", description="resnet18's first layers: imagenet or cifar")
    norm: Literal["group", "batch-local", "none"] = Field("group", description="group, batch-local or none")
    embedding: PositiveInt = Field(128, description="width of the embedding, 1 or more")
    kernel: Literal["plain"] = Field("plain", description="how layers are computed: plain")


class Public(_Table):
    per_class: Count | None = Field(None, description="public images of each covered class, 0 or more")
    coverage: Annotated[float, Field(ge=0, le=1)] = Field(1.0, description="share of classes covered, 0 to 1")
    classes: Annotated[tuple[Count, ...], Field(strict=False), AfterValidator(_without_repeats)] | None = Field(
        None, description="the covered classes by number, instead of coverage"
    )


class RefProtoFL(_Table):
    keep: Share | None = Field(0.1, description="share of adapter parameters sent, above 0 and up to 1")
    uplink_budget: Annotated[PositiveInt, BeforeValidator(_read_budget)] | None = Field(
        None, description="most bytes a client sends in a round, such as '20 kB'"
    )
    align: Annotated[float, Field(ge=0)] = Field(1.0, description="weight of the pull to the anchors, 0 or more")
    erpa: Switch = Field(True, description="on or off")
    apud: Switch = Field(True, description="on or off")
    select: Literal["top", "random", "probabilistic"] = Field("top", description="top, random or probabilistic")
    selection_scope: Literal["global", "per-tensor"] = Field("global", description="global or per-tensor")
    normalise: Literal["senders", "participants"] = Field("senders", description="senders or participants")
    error_feedback: Literal["none", "ef", "ef21"] = Field("none", description="none, ef or ef21")
    warmup_rounds: Count = Field(0, description="rounds without alignment at the start, 0 or more")
    timing: Literal["pre-train", "post-train"] = Field("pre-train", description="pre-train or post-train")
    downlink: Literal["dense", "sparse"] = Field("dense", description="dense or sparse")
    value_type: Literal["float32", "float16", "bfloat16", "int8"] = Field(
        "float32", description="float32, float16, bfloat16 or int8"
    )

    @model_validator(mode="before")
    @classmethod
    def _budget_decides(cls, values: Any) -> Any:
        """With a budget there is no default share."""
        if isinstance(values, dict) and (values.get("uplink-budget") or values.get("uplink_budget")):
            return {"keep": None, **values}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.uplink_budget is not None and self.keep is not None:
            raise ValueError("takes keep or uplink-budget, not both: remove one of them")
        if self.uplink_budget is None and self.keep is None:
            raise ValueError("needs keep or uplink-budget")
        if not self.apud and (self.uplink_budget is not None or self.error_feedback != "none"):
            raise ValueError(
                "has apud = off, which sends the whole adapter: uplink-budget and error-feedback need apud = on"
            )
        if self.error_feedback == "ef21" and self.normalise == "senders":
            raise ValueError('has error-feedback = "ef21", which needs normalise = "participants"')
        return self

    @property
    def share(self) -> float | None:
        """The share of the adapter that is sent; None where a budget decides."""
        return self.keep if self.apud else 1.0


class Evaluate(_Table):
    every: PositiveInt = Field(5, description="rounds between evaluations, 1 or more")
    clients: Literal["all"] | PositiveInt = Field("all", description="'all' or how many clients are evaluated")
    test_limit: Count = Field(0, description="test images used, 0 for all")


class Input(_Table):
    """What the data look like: filled in from the data set, so that a node can check its own against it."""

    class_names: Annotated[tuple[str, ...], Field(strict=False)]
    shape: Annotated[tuple[int, int, int], Field(strict=False)]
    mean: Annotated[tuple[float, ...], Field(strict=False)]
    std: Annotated[tuple[float, ...], Field(strict=False)]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


class Experiment(_Table):
    method: str = Field("refprotofl", description="a method's name, or module:Class for one of your own")
    dataset: str = Field("digits", description="a data set's name, a path, hf:owner/name or module:function")
    train_limit: Count = Field(0, description="training images used, public set included; 0 for all")
    seed: Count = Field(0, description="a whole number, 0 or more")
    clients: PositiveInt = Field(10, description="number of clients, 1 or more")
    fraction: Share = Field(1.0, description="share of clients in a round, above 0 and up to 1")
    rounds: PositiveInt = Field(50, description="number of rounds, 1 or more")
    partition: Literal["dirichlet", "iid", "shards"] = Field("dirichlet", description="dirichlet, iid or shards")
    alpha: Annotated[float, Field(gt=0)] = Field(0.5, description="concentration of the Dirichlet draw, above 0")
    min_size: PositiveInt = Field(64, description="samples that every client has at least, 1 or more")
    share: Literal["adapter", "full"] = Field("adapter", description="adapter or full")
    train: Train = Field(default_factory=lambda: Train())
    model: Model = Field(default_factory=lambda: Model())
    public: Public = Field(default_factory=lambda: Public())
    refprotofl: RefProtoFL = Field(default_factory=lambda: RefProtoFL())
    evaluate: Evaluate = Field(default_factory=lambda: Evaluate())
    input: Input | None = Field(None, description="filled in from the data set")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.method == "refprotofl" and self.share == "full":
            raise ValueError('has share = "full", but refprotofl keeps its backbones private: use share = "adapter"')
        if isinstance(self.evaluate.clients, int) and self.evaluate.clients > self.clients:
            raise ValueError(
                f"has evaluate.clients = {self.evaluate.clients}, but there are only clients = {self.clients}"
            )
        return self

    @classmethod
    def parse(cls, values: dict[str, Any]) -> "Experiment":
        """An experiment from nested plain values; what is wrong with them is told by key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InputError(explain(error, cls)) from None

    def plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    @property
    def hash(self) -> str:
        canonical = json.dumps(self.plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def known_input(self) -> Input:
        """The resolved input; only for experiments that went through `resolve`."""
        assert self.input is not None, "the experiment was not resolved against its data"
        return self.input

    @property
    def cohort_size(self) -> int:
        return max(1, round(self.fraction * self.clients))


def with_kebab_keys(values: dict[str, Any], model: type[BaseModel] = Experiment) -> dict[str, Any]:
    """The same values with known keys that are spelt as in Python spelt as in TOML."""
    spelt = {}
    for key, value in values.items():
        field = model.model_fields.get(key.replace("-", "_"))
        table = field.annotation if field is not None else None
        if isinstance(value, dict) and isinstance(table, type) and issubclass(table, BaseModel):
            value = with_kebab_keys(value, table)
        spelt[key if field is None else str(field.alias)] = value
    return spelt


def differences(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys whose values differ between two plain experiments."""
    found = []
    for key in sorted(one.keys() | other.keys()):
        left, right = one.get(key), other.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            found += differences(left, right, f"{prefix}{key}.")
        elif left != right:
            found.append(f"{prefix}{key}")
    return found
