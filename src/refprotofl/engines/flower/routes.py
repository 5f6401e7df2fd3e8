"""The header of a request to a node and of its answer: which run, round and phase it belongs to, and which state."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from refprotofl.engines.engine import CODES, Code
from refprotofl.engines.flower.parcels import Unreadable
from refprotofl.records.files import sha256

Kind = TypeVar("Kind")

PROTOCOL = 1  # raised when a node of an older version could no longer be talked to


@dataclass(frozen=True)
class Route:
    run: str
    client: int
    round: int
    phase: int  # the number of the client's request in its round
    attempt: int  # how often it was sent before, so that no two messages are equal
    verb: str
    keeps: bool
    base: str  # the digest of the state to go on from; empty for the initial one
    retain: list[str]  # digests of states that the server may come back to

    def header(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Self:
        return _read(cls, header)

    def key(self, payload: bytes) -> str:
        """What is asked for, whichever attempt it is: equal keys have equal answers."""
        asked = (self.run, self.client, self.round, self.phase, self.verb, self.keeps, self.base, sha256(payload))
        return sha256("\n".join(map(str, asked)).encode())


@dataclass(frozen=True)
class Answered:
    """`state`: the digest of the state that the client has with this answer. `code`: why there is none."""

    run: str
    client: int
    round: int
    phase: int
    state: str = ""
    code: Code | None = None

    @classmethod
    def to(cls, route: Route, state: str = "", code: Code | None = None) -> Self:
        return cls(route.run, route.client, route.round, route.phase, state, code)

    def header(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Self:
        """Whatever a node says; a code that nobody knows is a failure."""
        told = dict(header)
        if "code" in told and told["code"] not in (None, *CODES):
            told["code"] = "failed"
        return _read(cls, told)

    def belongs_to(self, route: Route) -> bool:
        return (self.run, self.client, self.round, self.phase) == (route.run, route.client, route.round, route.phase)


def _read(kind: type[Kind], header: Mapping[str, Any]) -> Kind:
    try:
        return TypeAdapter(kind).validate_json(json.dumps(header), strict=True)
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise Unreadable(f"its header is not what it must be ({where})") from None
