"""The frames of MQTT messages: requests, replies, and the parts of payloads that do not fit into one message.

A header is compressed with a dictionary that both ends have: a reply's is the header of its request, a request's is the
last exchange that the node has answered. So a digest that has crossed before takes a few bytes.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from refprotofl.deploy.transport import Unreadable
from refprotofl.records import sha256
from refprotofl.wire import Reader, WireError
from refprotofl.wire.primitives import varint

PART = 32_768  # bytes of one part of a payload
INLINE = 65_536  # bytes of the largest payload that crosses in one message
HEADER = 131_072  # bytes of the longest header, decompressed
SESSION, KEY, DIGEST = 4, 8, 32  # bytes of a server's session, of a payload's name in a part, and of its digest
CHECK = 3  # bytes of a header's check sum
ACTIONS = ("hello", "run", "ask", "final")

REQUEST, REPLY, WANT, PAYLOAD_PART, MISSING, UNREADABLE = range(6)
ANNOUNCED = 8  # added to the kind of a message whose payload is announced
KINDS = 16

# What headers have in common, for those that have no other dictionary.
COMMON = (
    b'{"protocol":3,"name":"node-","code":null}{"code":null}{"needs-run":true}{"needs-request":true}'
    b'{"run":"","client":0,"round":1,"phase":1,"state":"","code":null}'
    b'"verb":"evaluate","verb":"join","verb":"prototypes","verb":"train","keeps":false,"keeps":true,'
    b'"attempt":0,"base":"","retain":[],"reminds":""}'
)


@dataclass(frozen=True)
class Announced:
    """A payload that is fetched in parts, by its SHA-256 and its size in bytes."""

    digest: bytes
    size: int

    @property
    def key(self) -> bytes:
        return self.digest[:KEY]

    @property
    def parts(self) -> int:
        return -(-self.size // PART)


Body: TypeAlias = bytes | Announced


def announce(payload: bytes) -> Announced:
    return Announced(bytes.fromhex(sha256(payload)), len(payload))


@dataclass(frozen=True)
class Request:
    """`exchange`: its number in the server's session; `back`: how many before it the dictionary's exchange is, or 0."""

    session: bytes
    exchange: int
    action: str
    back: int
    header: bytes  # compressed
    body: Body

    def encode(self) -> bytes:
        kind, body = _body(REQUEST, self.body)
        first = bytes([kind | KINDS * ACTIONS.index(self.action)])
        numbers = varint(self.exchange) + varint(self.back) + varint(len(self.header))
        return first + self.session + numbers + self.header + body


@dataclass(frozen=True)
class Reply:
    exchange: int
    header: bytes  # compressed
    body: Body

    def encode(self) -> bytes:
        kind, body = _body(REPLY, self.body)
        return bytes([kind]) + varint(self.exchange) + varint(len(self.header)) + self.header + body


@dataclass(frozen=True)
class Want:
    """Asks for `count` parts of a payload from part `first` on; they go to the server's session."""

    session: bytes
    key: bytes
    first: int
    count: int

    def encode(self) -> bytes:
        return bytes([WANT]) + self.session + self.key + varint(self.first) + varint(self.count)


@dataclass(frozen=True)
class Part:
    key: bytes
    number: int
    data: bytes

    def encode(self) -> bytes:
        return bytes([PAYLOAD_PART]) + self.key + varint(self.number) + self.data


@dataclass(frozen=True)
class Missing:
    """Answers a `Want` for a payload that its sender no longer has."""

    key: bytes

    def encode(self) -> bytes:
        return bytes([MISSING]) + self.key


@dataclass(frozen=True)
class NeedsHeader:
    """Asks for a request again, because the node does not have the dictionary of its header."""

    exchange: int

    def encode(self) -> bytes:
        return bytes([UNREADABLE]) + varint(self.exchange)


Frame: TypeAlias = Request | Reply | Want | Part | Missing | NeedsHeader


def read_frame(data: bytes) -> Frame:
    """Return a received frame, which may hold anything; raise Unreadable if it is none."""
    try:
        return _read(Reader(data))
    except (WireError, IndexError):
        raise Unreadable("it is not one of our messages") from None


def _read(reader: Reader) -> Frame:
    first = reader.byte()
    kind, announced, action = first & 7, bool(first & ANNOUNCED), first // KINDS
    if kind == REQUEST:
        session, exchange, back = bytes(reader.take(SESSION)), reader.varint(), reader.varint()
        header = bytes(reader.take(reader.varint()))
        return Request(session, exchange, ACTIONS[action], back, header, _read_body(reader, announced))
    if kind == REPLY:
        exchange, header = reader.varint(), bytes(reader.take(reader.varint()))
        return Reply(exchange, header, _read_body(reader, announced))
    if kind == WANT:
        return Want(bytes(reader.take(SESSION)), bytes(reader.take(KEY)), reader.varint(), reader.varint())
    if kind == PAYLOAD_PART:
        return Part(bytes(reader.take(KEY)), reader.varint(), bytes(reader.peek()))
    if kind == MISSING:
        return Missing(bytes(reader.take(KEY)))
    if kind == UNREADABLE:
        return NeedsHeader(reader.varint())
    raise Unreadable("it is of an unknown kind")


def _body(kind: int, body: Body) -> tuple[int, bytes]:
    if isinstance(body, Announced):
        return kind | ANNOUNCED, body.digest + varint(body.size)
    return kind, body


def _read_body(reader: Reader, announced: bool) -> Body:
    return Announced(bytes(reader.take(DIGEST)), reader.varint()) if announced else bytes(reader.peek())


def header_text(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def compress(text: bytes, dictionary: bytes = b"") -> bytes:
    squeezing = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, COMMON + dictionary)
    return _check(text) + squeezing.compress(text) + squeezing.flush()


def decompress(data: bytes, dictionary: bytes = b"") -> bytes:
    """Return a header's text; raise Unreadable if it is damaged, too long, or has another dictionary."""
    opening = zlib.decompressobj(-15, COMMON + dictionary)
    try:
        text = opening.decompress(data[CHECK:], HEADER)
    except zlib.error:
        raise Unreadable("its header is damaged") from None
    if not opening.eof:
        raise Unreadable("its header is too long")
    if _check(text) != data[:CHECK]:
        raise Unreadable("its header is damaged")
    return text


def _check(text: bytes) -> bytes:
    """Return a check sum: another dictionary may give another text."""
    return zlib.crc32(text).to_bytes(4)[:CHECK]


def read_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("its header is damaged") from None
    if not isinstance(header, dict):
        raise Unreadable("its header is damaged")
    return header
