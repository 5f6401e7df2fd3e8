"""The headers of requests to nodes and of their answers: run, client, round, phase, and the state to work from."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from refprotofl.deploy.transport import Unreadable
from refprotofl.engines import CODES, Code
from refprotofl.records import sha256

Kind = TypeVar("Kind")

Number = Annotated[int, Field(ge=0, le=999_999_999)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]  # of a state; empty for the initial one
Name = Annotated[str, Field(max_length=63)]
Verb = Annotated[str, Field(min_length=1, max_length=100)]

PROTOCOL = 3  # increased when older nodes are no longer compatible


@dataclass(frozen=True)
class Route:
    run: RunId
    client: Number
    round: Number
    phase: Number  # the number of the client's request in its round
    attempt: Number  # number of earlier attempts, so that no two messages are equal
    verb: Verb
    keeps: bool
    base: Digest  # of the state to start from
    retain: list[Digest]  # of states that the server may roll back to
    reminds: Digest = ""  # the key of an earlier request, sent again without its payload

    def header(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Self:
        return _read(cls, header)

    def key(self, payload: bytes) -> str:
        """Return a key of the request that does not depend on the attempt: equal keys have equal answers."""
        if self.reminds:
            return self.reminds
        asked = (self.run, self.client, self.round, self.phase, self.verb, self.keeps, self.base, sha256(payload))
        return sha256("\n".join(map(str, asked)).encode())


@dataclass(frozen=True)
class Answered:
    """The header of an answer. `state`: the digest of the client's state after it; `code`: why there is no answer."""

    run: RunId
    client: Number
    round: Number
    phase: Number
    state: Digest = ""
    code: Code | None = None

    @classmethod
    def to(cls, route: Route, state: str = "", code: Code | None = None) -> Self:
        return cls(route.run, route.client, route.round, route.phase, state, code)

    def header(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Self:
        """Read a node's header; an unknown code counts as a failure."""
        return _read(cls, _with_known_code(header))

    def belongs_to(self, route: Route) -> bool:
        return (self.run, self.client, self.round, self.phase) == (route.run, route.client, route.round, route.phase)


@dataclass(frozen=True)
class Greeted:
    """A node's answer to a greeting. `name`: the node's name in its settings; `code`: why it cannot take part."""

    protocol: int
    name: Name = ""
    code: Code | None = None

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Self:
        return _read(cls, _with_known_code(header))


def _with_known_code(header: Mapping[str, Any]) -> dict[str, Any]:
    known = header.get("code") in (None, *CODES)
    return dict(header) if known else {**header, "code": "failed"}


def _read(kind: type[Kind], header: Mapping[str, Any]) -> Kind:
    try:
        return TypeAdapter(kind).validate_json(json.dumps(header), strict=True)
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise Unreadable(f"its header is invalid ({where})") from None
    except RecursionError:
        raise Unreadable("its header is nested too deeply") from None
