"""The configuration: one frozen, validated model, its canonical form and its hash."""

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, PositiveInt, ValidationError, model_validator

from refprotofl.basics.plugins import is_reference
from refprotofl.errors import InputError
from refprotofl.experiment.tables import (
    FAST,
    VHL,
    Compress,
    Count,
    Evaluate,
    FedGH,
    FedNova,
    FedPAC,
    FedPCL,
    FedProc,
    FedProto,
    FedProtoKD,
    FedProx,
    FedRep,
    FedTGP,
    Feedback,
    Input,
    Model,
    Public,
    RefProtoFL,
    Scalar,
    Share,
    Table,
    Train,
    dealt,
    read_scalars,
)
from refprotofl.keys.complaints import explain

UNHASHED = ("device", "deadline")  # how it is computed, not what

METHOD_TABLES = (
    *("refprotofl", "fedprox", "fednova", "fedrep", "fedpac", "fedproto", "fedgh", "fedtgp", "fedproc", "fedpcl"),
    *("fedprotokd", "vhl", "fast", "own"),
)


class Experiment(Table):
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
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="auto, cpu, cuda or mps")
    deadline: Annotated[float, Field(ge=0)] = Field(
        0.0, description="seconds that a client has for an answer, 0 for as long as it takes"
    )
    train: Train = Field(default_factory=lambda: Train())
    model: Model = Field(default_factory=lambda: Model())
    public: Public = Field(default_factory=lambda: Public())
    refprotofl: RefProtoFL = Field(default_factory=lambda: RefProtoFL())
    fedprox: FedProx = Field(default_factory=lambda: FedProx())
    fednova: FedNova = Field(default_factory=lambda: FedNova())
    fedrep: FedRep = Field(default_factory=lambda: FedRep())
    fedpac: FedPAC = Field(default_factory=lambda: FedPAC())
    own: Annotated[dict[str, Scalar], BeforeValidator(read_scalars)] = Field(
        default_factory=dict, description="the options of a method of your own: numbers, texts, true or false"
    )
    vhl: VHL = Field(default_factory=lambda: VHL())
    fast: FAST = Field(default_factory=lambda: FAST())
    fedproto: FedProto = Field(default_factory=lambda: FedProto())
    fedgh: FedGH = Field(default_factory=lambda: FedGH())
    fedtgp: FedTGP = Field(default_factory=lambda: FedTGP())
    fedproc: FedProc = Field(default_factory=lambda: FedProc())
    fedpcl: FedPCL = Field(default_factory=lambda: FedPCL())
    fedprotokd: FedProtoKD = Field(default_factory=lambda: FedProtoKD())
    compress: Compress = Field(default_factory=lambda: Compress())
    evaluate: Evaluate = Field(default_factory=lambda: Evaluate())
    input: Input | None = Field(None, description="filled in from the data set")

    @model_validator(mode="after")
    def _compressor_fits(self) -> Self:
        table, name = self.refprotofl, self.compress.name
        if self.method != "refprotofl" or name == "none":
            return self
        if table.apud:
            raise ValueError(
                f'has compress.name = "{name}", but refprotofl drops parameters by itself: set refprotofl.apud = off'
            )
        if table.value_type != "float32":
            raise ValueError(f'has compress.name = "{name}", which needs refprotofl.value-type = "float32"')
        if name == "stc" and table.downlink == "sparse":
            raise ValueError('has compress.name = "stc", whose own downlink needs refprotofl.downlink = "dense"')
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.method == "refprotofl" and self.share == "full":
            raise ValueError('has share = "full", but refprotofl keeps its backbones private: use share = "adapter"')
        if self.method in ("fedper", "fedrep", "fedpac") and self.share == "full":
            raise ValueError(f'has share = "full", but {self.method} keeps its heads private: leave share out')
        self._check_names_fit_clients()
        if isinstance(self.evaluate.clients, int) and self.evaluate.clients > self.clients:
            raise ValueError(
                f"has evaluate.clients = {self.evaluate.clients}, but there are only clients = {self.clients}"
            )
        return self

    def _check_names_fit_clients(self) -> None:
        names = self.model.name
        if isinstance(names, dict) and sum(names.values()) != self.clients:
            raise ValueError(f"has model.name for {sum(names.values())} clients, but clients = {self.clients}")
        if isinstance(names, tuple) and len(names) > self.clients:
            raise ValueError(f"has {len(names)} names in model.name, but there are only clients = {self.clients}")

    @property
    def backbones(self) -> tuple[str, ...]:
        """The name of each client's backbone."""
        names = self.model.name
        order = (names,) if isinstance(names, str) else dealt(names)
        return tuple(order[client % len(order)] for client in range(self.clients))

    @classmethod
    def parse(cls, values: dict[str, Any]) -> "Experiment":
        """An experiment from nested plain values; what is wrong with them is told by key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InputError(explain(error, cls)) from None

    def plain(self) -> dict[str, Any]:
        """Nested plain values; left out is what has no say: how it is computed, and the tables of other methods."""
        used = "own" if is_reference(self.method) else self.method
        return self.model_dump(mode="json", by_alias=True, exclude={*UNHASHED, *METHOD_TABLES} - {used})

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
    def feedback(self) -> Feedback:
        """What becomes of the part of a change that is not sent."""
        by_itself = self.method == "refprotofl" and self.compress.name == "none"
        return self.refprotofl.error_feedback if by_itself else self.compress.feedback

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
