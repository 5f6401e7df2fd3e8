"""The tables of a configuration: one frozen, validated model each, with what is allowed beside every key."""

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    field_serializer,
    model_validator,
)


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


def _read_names(value: object) -> object:
    """One name, a list of names, or a table of counts."""
    if isinstance(value, dict):
        whole = all(type(count) is int and count > 0 for count in value.values())
        if not value or not whole or not all(isinstance(name, str) for name in value):
            raise ValueError("does not give each name a whole number of clients, 1 or more")
    elif isinstance(value, list | tuple):
        if not value or not all(isinstance(name, str) for name in value):
            raise ValueError("is not a list of names")
        return tuple(value)
    elif not isinstance(value, str):
        raise ValueError("is neither a name, nor a list of names, nor a table of counts")
    return value


def dealt(names: tuple[str, ...] | dict[str, int]) -> tuple[str, ...]:
    """A table of counts as the list that it stands for."""
    return names if isinstance(names, tuple) else tuple(one for one, count in names.items() for _ in range(count))


def read_scalars(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("is not a table")
    for key, scalar in value.items():
        if not isinstance(scalar, str | int | float) or (isinstance(scalar, float) and not math.isfinite(scalar)):
            raise ValueError(f"has {key} = {scalar!r}, which is not a finite number, a text, true or false")
    return dict(value)


Switch = Annotated[bool, BeforeValidator(_read_switch)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Names = Annotated[str | tuple[str, ...] | dict[str, int], BeforeValidator(_read_names)]
Scalar = str | bool | int | float
Feedback = Literal["none", "ef", "ef21"]


class Table(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=_kebab, populate_by_name=True, allow_inf_nan=False
    )


class Train(Table):
    local_epochs: PositiveInt = Field(1, description="passes over a client's data in a round, 1 or more")
    batch_size: PositiveInt = Field(64, description="samples in a batch, 1 or more")
    lr: Annotated[float, Field(gt=0)] = Field(0.01, description="SGD's learning rate, above 0")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="SGD's momentum, from 0 to below 1")
    weight_decay: Annotated[float, Field(ge=0)] = Field(1e-4, description="SGD's weight decay, 0 or more")


class Model(Table):
    name: Names = Field(
        "resnet18",
        description="resnet18, cnn, mlp or module:function for a backbone of your own; a list of them, dealt to the "
        "clients in turn; or a table of how many clients have which",
    )
    stem: Literal["imagenet", "cifar"] = Field("imagenet", description="resnet18's first layers: imagenet or cifar")
    norm: Literal["group", "batch-local", "none"] = Field("group", description="group, batch-local or none")
    embedding: PositiveInt = Field(128, description="width of the embedding, 1 or more")
    kernel: Literal["plain", "fast"] = Field("fast", description="plain or fast")

    @field_serializer("name", when_used="json")
    def _spell_out(self, name: str | tuple[str, ...] | dict[str, int]) -> str | list[str]:
        """A table as the list it stands for: its order matters, which a table's would not in the hash."""
        return name if isinstance(name, str) else list(dealt(name))


class Public(Table):
    per_class: Count | None = Field(None, description="public images of each covered class, 0 or more")
    coverage: Annotated[float, Field(ge=0, le=1)] = Field(1.0, description="share of classes covered, 0 to 1")
    classes: Annotated[tuple[Count, ...], Field(strict=False), AfterValidator(_without_repeats)] | None = Field(
        None, description="the covered classes by number, instead of coverage"
    )
    train_on: Switch = Field(False, description="on or off: whether clients train on the public images too")


class RefProtoFL(Table):
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
    error_feedback: Feedback = Field("none", description="none, ef or ef21")
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


class FedProx(Table):
    mu: Annotated[float, Field(ge=0)] = Field(0.01, description="weight of the proximal term, 0 or more")


class FedNova(Table):
    mu: Annotated[float, Field(ge=0)] = Field(0.0, description="weight of the proximal term, 0 or more")
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="from 0 to below 1")


class FedRep(Table):
    head_epochs: PositiveInt = Field(1, description="passes that train the head alone, 1 or more")
    body_epochs: PositiveInt | None = Field(
        None, description="passes that train the body alone, 1 or more; as many as train.local-epochs unless given"
    )


class FedPAC(Table):
    align: Annotated[float, Field(ge=0)] = Field(1.0, description="weight of the pull to the prototypes, 0 or more")
    head_epochs: PositiveInt = Field(1, description="passes that train the head alone, 1 or more")
    head_lr: Annotated[float, Field(gt=0)] = Field(0.1, description="the head's learning rate, above 0")


class VHL(Table):
    generator: Literal["gaussian", "conv"] = Field(
        "gaussian", description="what makes the virtual images: gaussian (enlarged noise) or conv (random decoders)"
    )
    per_class: PositiveInt | None = Field(
        None, description="virtual images of each class, 1 or more; 200 up to 10 classes and 50 above unless given"
    )
    alpha: Annotated[float, Field(ge=0)] = Field(1.0, description="weight of the virtual classification, 0 or more")
    w_align: Annotated[float, Field(ge=0)] = Field(
        1.0, description="weight of the pull of natural features to virtual ones, 0 or more"
    )
    w_virtual: Annotated[float, Field(ge=0)] = Field(
        0.1, description="weight of the contrast among virtual features, 0 or more"
    )
    align_epochs: Count = Field(5, description="local epochs of a round with alignment and contrast, 0 or more")


class FAST(Table):
    seed_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.01, description="share of the samples labelled by hand at the start, above 0 and below 1"
    )
    query_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.04, description="share of the weakly labelled samples whose labels are asked for, 0 to 1"
    )
    neighbours: PositiveInt = Field(10, description="labelled neighbours that vote for a weak label, 1 or more")
    uncertainty: Literal["norm", "entropy", "confidence", "margin"] = Field(
        "norm", description="norm, entropy, confidence or margin"
    )
    class_aware: Switch = Field(True, description="on or off: whether the queries are spread over the weak classes")
    knn: Literal["pooled", "per-client"] = Field(
        "pooled", description="pooled (neighbours among all clients' labelled samples) or per-client"
    )
    embedder: str = Field("pca", description="pca, open_clip:NAME, or module:function for an encoder of your own")


class FedProto(Table):
    weight: Annotated[float, Field(ge=0)] = Field(1.0, description="weight of the pull to the prototypes, 0 or more")
    reduction: Literal["mse", "squared"] = Field(
        "mse", description="mse (squared distance averaged over the embedding) or squared (summed over it)"
    )
    weighting: Literal["uniform", "count"] = Field("uniform", description="uniform or count")
    retain: Switch = Field(True, description="on or off: whether a class that nobody holds keeps its last prototype")
    collect: Literal["post-train", "running"] = Field(
        "post-train", description="post-train (of the trained model) or running (during the last local epoch)"
    )


class FedGH(Table):
    server: Literal["paper", "official", "frozen"] = Field(
        "paper", description="how the header is trained: paper, official (one sequential pass) or frozen"
    )
    server_lr: Annotated[float, Field(gt=0)] = Field(0.01, description="the server's learning rate, above 0")
    server_epochs: PositiveInt = Field(100, description="the server's passes over a round's prototypes, 1 or more")
    server_batch: PositiveInt = Field(64, description="prototypes in a batch, 1 or more")
    weighting: Literal["uniform", "count"] = Field("uniform", description="uniform or count")


class FedTGP(Table):
    weight: Annotated[float, Field(ge=0)] = Field(10.0, description="weight of the pull to the prototypes, 0 or more")
    margin: Annotated[float, Field(ge=0)] = Field(100.0, description="largest margin between prototypes, 0 or more")
    server_lr: Annotated[float, Field(gt=0)] = Field(0.01, description="the server's learning rate, above 0")
    server_epochs: PositiveInt = Field(100, description="the server's passes over a round's prototypes, 1 or more")
    server_batch: PositiveInt = Field(10, description="prototypes in a batch, 1 or more")


class FedProc(Table):
    weight: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="share of the contrastive loss at the start, 0 to 1; it falls to 0 in the last round"
    )
    temperature: Annotated[float, Field(gt=0)] = Field(0.5, description="of the contrastive loss, above 0")


class FedPCL(Table):
    temperature: Annotated[float, Field(gt=0)] = Field(0.07, description="of the contrastive loss, above 0")


class FedProtoKD(Table):
    weight: Annotated[float, Field(ge=0)] = Field(1.0, description="weight of the pull to the prototypes, 0 or more")
    distil: Annotated[float, Field(ge=0)] = Field(1.0, description="weight of the server's teaching, 0 or more")
    temperature: Annotated[float, Field(gt=0)] = Field(3.0, description="of the taught logits, above 0")
    margin: Annotated[float, Field(ge=0)] = Field(100.0, description="largest margin between prototypes, 0 or more")
    server_lr: Annotated[float, Field(gt=0)] = Field(0.01, description="the server's learning rate, above 0")
    server_epochs: PositiveInt = Field(100, description="the server's passes over a round's prototypes, 1 or more")
    server_batch: PositiveInt = Field(64, description="prototypes or public images in a batch, 1 or more")
    model_epochs: PositiveInt = Field(5, description="the server model's passes over the public images, 1 or more")


class Compress(Table):
    name: Literal["none", "top-k", "top-k-ef", "ef21", "random-k", "stc", "qsgd"] = Field(
        "none", description="none, top-k, top-k-ef, ef21, random-k, stc or qsgd"
    )
    keep: Share = Field(0.1, description="share of the shared parameters sent, above 0 and up to 1; not for qsgd")
    bits: Literal[8, 4] = Field(8, description="bits of a value with qsgd: 8 or 4")
    bucket: PositiveInt = Field(512, description="values under one norm with qsgd, 1 or more")
    decay: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="what stays of the unsent rest from round to round with top-k-ef and stc, 0 to 1"
    )

    @property
    def feedback(self) -> Feedback:
        """What becomes of the part of a change that is not sent."""
        feedback: dict[str, Feedback] = {"top-k-ef": "ef", "stc": "ef", "ef21": "ef21"}
        return feedback.get(self.name, "none")

    @property
    def levels(self) -> int:
        """How far qsgd's levels go up; one bit is the sign's."""
        return int(2 ** (self.bits - 1)) - 1


class Evaluate(Table):
    every: PositiveInt = Field(5, description="rounds between evaluations, 1 or more")
    clients: Literal["all"] | PositiveInt = Field("all", description="'all' or how many clients are evaluated")
    test_limit: Count = Field(0, description="test images used, 0 for all")


class Input(Table):
    """What the data look like: filled in from the data set, so that a node can check its own against it."""

    class_names: Annotated[tuple[str, ...], Field(strict=False)]
    shape: Annotated[tuple[int, int, int], Field(strict=False)]
    mean: Annotated[tuple[float, ...], Field(strict=False)]
    std: Annotated[tuple[float, ...], Field(strict=False)]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)
