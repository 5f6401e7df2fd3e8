"""Message schemas: the fields that a method declares for each verb, and the one place that checks messages by them.

A validated message has the declared names, kinds, types, shapes and ranges. What must fit between fields (as many
counts as classes) is for the reader to check. The messages of joining and scoring are the same for all methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from refprotofl.core import Parts, RefProtoFLError
from refprotofl.evaluation import PROTOCOLS, sent_by_clients
from refprotofl.experiment import Experiment
from refprotofl.methods.declaration import FINETUNE
from refprotofl.models import SplitModel, type_of
from refprotofl.wire import Counted, Kind, Message, Sparse
from refprotofl.wire.codec import Value

LOST = "lost"  # a client's answer when its store does not hold what the request builds on


def is_lost(answer: Message) -> bool:
    """Return whether a client's answer says that its store is lost, and nothing else."""
    return answer.keys() == {LOST} and answer[LOST] is True


class Refused(RefProtoFLError):
    """A message is well formed, but not what the experiment asks for."""


class Lost(Exception):
    """A client's store does not hold what the request builds on; the client answers that it is lost."""


Shape = tuple[int | None, ...]  # None: any length

_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class ValidatedMessage(dict[str, Value]):
    """A message of the other side. Each way to take a field out refuses one of another kind."""

    def tensor(self, name: str) -> Tensor:
        found = self[name]
        if not isinstance(found, Tensor):
            raise Refused(f"{name} is not a tensor")
        return found

    def sparse(self, name: str) -> Sparse:
        found = self[name]
        if not isinstance(found, Sparse):
            raise Refused(f"{name} is not a sparse vector")
        return found

    def whole(self, name: str) -> int:
        found = self[name]
        if type(found) is not int:
            raise Refused(f"{name} = {found!r} is not a whole number")
        return found

    def real(self, name: str) -> float:
        found = self[name]
        if not isinstance(found, float):
            raise Refused(f"{name} = {found!r} is not a number")
        return found


class Field(Protocol):
    """A declared field; `kind` is the ledger's category of its values."""

    @property
    def kind(self) -> Kind | Counted: ...

    @property
    def optional(self) -> bool: ...

    def check(self, name: str, value: Value) -> None:
        """Raise `Refused` for a value that is not as declared."""


@dataclass(frozen=True)
class Dense:
    """A tensor of a type and shape, of at most `longest` values; from `low` to `high` where they are given."""

    shape: Shape
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    kind: Kind | Counted = "other_values"
    low: float | None = None
    high: float | None = None
    optional: bool = False
    longest: int | None = None

    def check(self, name: str, value: Value) -> None:
        if not isinstance(value, Tensor) or value.dtype not in self.dtypes or not self._fits(value.shape):
            raise Refused(f"{name} is not {self._words()}")
        if self.longest is not None and value.numel() > self.longest:
            raise Refused(f"{name} has {value.numel()} values, more than {self.longest}")
        if value.numel() and self.low is not None and not float(value.min()) >= self.low:
            raise Refused(f"{name} has a number below {self.low:g}")
        if value.numel() and self.high is not None and not float(value.max()) <= self.high:
            raise Refused(f"{name} has a number above {self.high:g}")

    def _fits(self, shape: torch.Size) -> bool:
        return len(shape) == len(self.shape) and all(
            asked in (None, found) for asked, found in zip(self.shape, shape, strict=True)
        )

    def _words(self) -> str:
        numbers = (
            "whole" if self.dtypes == _WHOLE else " or ".join(str(one).removeprefix("torch.") for one in self.dtypes)
        )
        form = {0: "number", 1: "vector", 2: "matrix"}.get(len(self.shape), "tensor")
        sides = " x ".join("any" if side is None else str(side) for side in self.shape)
        if len(self.shape) < 2:
            sides = "" if self.shape in ((), (None,)) else f"{sides} values"
        article = "an" if numbers[0] in "aeio" else "a"
        return f"{article} {numbers} {form}" + (f" of {sides}" if sides else "")


def whole_numbers(
    *shape: int | None, low: float | None = None, high: float | None = None, optional: bool = False
) -> Dense:
    """Return the field of class ids or counts: whole numbers of any width."""
    return Dense(shape, _WHOLE, low=low, high=high, optional=optional)


@dataclass(frozen=True)
class SparseVector:
    """Some coordinates of a vector of `size`; exactly `count` of them where it is given."""

    size: int
    dtype: torch.dtype = torch.float32
    count: int | None = None
    kind: Kind | Counted = "parameters"
    optional: bool = False

    def check(self, name: str, value: Value) -> None:
        if not isinstance(value, Sparse) or value.size != self.size:
            raise Refused(f"{name} is not a sparse vector of size {self.size}")
        if value.values.dtype != self.dtype:
            raise Refused(f"{name} is {value.values.dtype}, not {self.dtype}")
        if self.count is not None and len(value.indices) != self.count:
            raise Refused(f"{len(value.indices)} coordinates were sent, not the announced {self.count}")


@dataclass(frozen=True)
class Either:
    """One of several forms."""

    forms: tuple[Field, ...]
    optional: bool = False

    @property
    def kind(self) -> Kind | Counted:
        return self.forms[0].kind

    def check(self, name: str, value: Value) -> None:
        refusals = []
        for form in self.forms:
            try:
                return form.check(name, value)
            except Refused as refusal:
                refusals.append(str(refusal))
        raise Refused("; ".join(refusals))


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds."""

    low: int | None = None
    high: int | None = None
    optional: bool = False
    kind: Kind | Counted = "other_values"

    def check(self, name: str, value: Value) -> None:
        if type(value) is not int:
            raise Refused(f"{name} = {value!r} is not a whole number")
        _check_range(name, value, self.low, self.high)


@dataclass(frozen=True)
class Real:
    """A floating-point number within bounds; `above` is a bound that it must not touch."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    optional: bool = False
    kind: Kind | Counted = "other_values"

    def check(self, name: str, value: Value) -> None:
        if not isinstance(value, float):
            raise Refused(f"{name} = {value!r} is not a number")
        _check_range(name, value, self.low, self.high)
        if self.above is not None and not value > self.above:
            raise Refused(f"{name} = {value!r} is not above {self.above:g}")


def _check_range(name: str, value: float, low: float | None, high: float | None) -> None:
    if low is not None and not value >= low:
        raise Refused(f"{name} = {value!r} is below {low:g}")
    if high is not None and not value <= high:
        raise Refused(f"{name} = {value!r} is above {high:g}")


Fields = Mapping[str, Field]


@dataclass(frozen=True)
class MessageSchema:
    """The fields of a verb's request to a client (`down`) and of the client's answer (`up`)."""

    down: Fields = field(default_factory=dict)
    up: Fields = field(default_factory=dict)
    open: bool = False  # whether undeclared fields are allowed


MessageSchemas = Mapping[str, MessageSchema]  # by verb


def read_request(message_schemas: MessageSchemas, verb: str, message: Message) -> ValidatedMessage:
    """Return a request that fits its verb's schema; a verb without a schema is not checked."""
    return (
        read_fields(message_schemas[verb].down, message, message_schemas[verb].open)
        if verb in message_schemas
        else ValidatedMessage(message)
    )


def read_answer(message_schemas: MessageSchemas, verb: str, message: Message) -> ValidatedMessage:
    """Return an answer that fits its verb's schema; a verb without a schema is not checked."""
    return (
        read_fields(message_schemas[verb].up, message, message_schemas[verb].open)
        if verb in message_schemas
        else ValidatedMessage(message)
    )


def read_fields(fields: Fields, message: Message, open: bool = False) -> ValidatedMessage:
    """Return a message that has these fields, and no other unless it is `open`."""
    for name in message:
        if name not in fields and not open:
            raise Refused(f"the field {name!r:.60} was not asked for")
    for name, declared in fields.items():
        if name in message:
            declared.check(name, message[name])
        elif not declared.optional:
            raise Refused(f"the field {name!r} is missing")
    return ValidatedMessage(message)


def kinds(message_schemas: MessageSchemas) -> dict[str, Kind | Counted]:
    """Return the ledger's category of every field."""
    return {
        name: declared.kind
        for exchange in message_schemas.values()
        for fields in (exchange.down, exchange.up)
        for name, declared in fields.items()
    }


MOST_TESTED = 2**31 - 1  # samples of any test set: what the confusion matrix can count


@dataclass(frozen=True)
class Scope:
    """All that the fields of an experiment's messages depend on; both sides have it."""

    experiment: Experiment
    model: SplitModel
    parts: Parts
    options: Any

    @property
    def shared(self) -> int:
        """P, the number of shared parameters."""
        return sum(self.model.sizes(self.parts))

    @property
    def classes(self) -> int:
        return self.experiment.known_input.num_classes

    @property
    def width(self) -> int:
        """m, the width of the embedding."""
        return self.experiment.model.embedding


def class_ids(classes: Tensor, num_classes: int) -> Tensor:
    """Return class numbers in the narrowest type that holds them."""
    return classes.to(torch.uint8 if num_classes <= 256 else torch.int16)


def declare(
    scope: Scope,
    *,
    evaluate: Fields | None = None,
    greeting: Fields | None = None,
    join: Fields | None = None,
    finetune: MessageSchema | None = None,
    **verbs: MessageSchema,
) -> dict[str, MessageSchema]:
    """Return the schemas of a method's verbs, and those of joining and scoring.

    `evaluate` are the fields that a client is sent for scoring, `greeting` and `join` the fields of joining in
    addition to the public set, down, and to the number of samples, up. `finetune` is used where [finetune] asks for it.
    """
    seen = scope.experiment.known_input
    public: Fields = {
        seen.field: Dense((None, *seen.shape), (type_of(seen),), optional=True),
        "labels": whole_numbers(None, low=0, high=scope.classes - 1, optional=True),
    }
    number, score = Whole(low=0, high=MOST_TESTED), Whole(low=0, high=MOST_TESTED, optional=True)
    counted: Fields = {one.name: score for one in PROTOCOLS.values() if one.per_client}
    matrix = Dense((scope.classes, scope.classes), (torch.int32,), low=0, optional=True)  # of `personal`
    metrics = {one.name: Real(one.low, one.high, optional=True) for one in sent_by_clients(scope.classes)}
    if finetune is not None and scope.experiment.finetune.passes:
        verbs[FINETUNE] = finetune
    scores = {"tested": number, "own_tested": number, **counted, "confusion": matrix, **metrics}
    return {
        "join": MessageSchema({**public, **(greeting or {})}, {"samples": Whole(low=1), **(join or {})}),
        **verbs,
        "evaluate": MessageSchema(evaluate or {}, scores),
    }


def read_scores(client: int, counts: ValidatedMessage) -> ValidatedMessage:
    """Check a client's scores: no more correct predictions than samples."""
    for name, protocol in PROTOCOLS.items():
        if name in counts and counts.whole(name) > counts.whole(protocol.out_of):
            raise Refused(f"{name} = {counts[name]} is more than {protocol.out_of} = {counts[protocol.out_of]}")
    if "confusion" in counts:
        matrix = counts.tensor("confusion").long()
        if [int(matrix.sum()), int(matrix.trace())] != [counts["tested"], counts.get("personal")]:
            raise Refused("confusion does not add up to the samples tested and those that were right")
    return counts
