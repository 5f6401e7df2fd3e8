"""Envelopes as the content of Flower messages.

Flower stores each record of a message under the hash of its bytes, and one that is there already is not sent again. So
every record has a random salt: the hash of a future message cannot be guessed, reserved or probed for.
"""

import json
import secrets
from collections.abc import Mapping
from typing import TypeAlias, cast

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_object_type_from_object_content
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from refprotofl.deploy.transport import Envelope, Unreadable

Packed: TypeAlias = dict[str, ConfigRecord]  # a payload's parts by name; those that go to many are one object each

HEADER, PAYLOAD = "header", "payload"
PART = 4_000_000  # bytes in one record: Flower sends a record in one piece
KINDS = frozenset({"Message", "RecordDict", "ConfigRecord"})  # objects that our messages consist of


def wrap(envelope: Envelope, packed: Packed | None = None) -> RecordDict:
    """Return the content of a message; `packed` is the payload as `pack` returns it, where it is at hand."""
    header = ConfigRecord({"json": json.dumps(envelope.header), "salt": secrets.token_bytes(16)})
    return RecordDict({HEADER: header, **(pack(envelope.payload) if packed is None else packed)})


def pack(payload: bytes) -> Packed:
    starts = range(0, max(1, len(payload)), PART)
    return {
        f"{PAYLOAD}-{number}": ConfigRecord({"bytes": payload[start : start + PART], "salt": secrets.token_bytes(16)})
        for number, start in enumerate(starts)
    }


def objects_of(size: int) -> int:
    """Return the number of objects of a message whose payload has `size` bytes."""
    return 4 + size // PART


def inflate(identity: str, contents: Mapping[str, bytes]) -> Message:
    """Return a received message; raise Unreadable if it is not one of records as ours.

    Other kinds of objects are not built: an array of a few bytes may claim to be of any size.
    """
    try:
        if any(get_object_type_from_object_content(content) not in KINDS for content in contents.values()):
            raise Unreadable("it has records of another kind")
        message = inflate_object_from_contents(identity, dict(contents))
    except Unreadable:
        raise
    except Exception as problem:  # Flower raises many kinds for malformed input
        raise Unreadable(f"it is not one of our messages ({type(problem).__name__})") from None
    if not isinstance(message, Message):
        raise Unreadable("it is not one of our messages")
    return message


def unwrap(content: RecordDict) -> Envelope:
    """Return the envelope of a received message, which may hold anything; raise Unreadable if it is not ours."""
    try:
        text = content.config_records[HEADER]["json"]
        header = json.loads(text) if isinstance(text, str) and len(text) <= PART else None
        parts = [record["bytes"] for record in _parts(content)]
    except Exception as problem:  # RecursionError for nested JSON, among others
        raise Unreadable(f"it is not one of our messages ({type(problem).__name__})") from None
    if not isinstance(header, dict) or not all(isinstance(part, bytes) for part in parts):
        raise Unreadable("it is not one of our messages")
    return Envelope(header, b"".join(cast(list[bytes], parts)))


def _parts(content: RecordDict) -> list[ConfigRecord]:
    """Return the payload's records in their order; KeyError if there are others, or one is missing."""
    records = content.config_records
    return [records[f"{PAYLOAD}-{number}"] for number in range(max(1, len(content) - 1))]
