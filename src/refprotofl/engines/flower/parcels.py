"""What crosses between our ServerApp and ClientApp: a header in JSON and one byte string."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from refprotofl.errors import RefProtoFLError

Header = Mapping[str, Any]
Packed: TypeAlias = ConfigRecord | ArrayRecord

HEADER, PAYLOAD = "header", "payload"  # the records of a message; equal payloads are one object on the SuperLink
WHOLE = 4_000_000  # bytes that Flower can send in one piece; it sends a longer array in parts


class Unreadable(RefProtoFLError):
    """A message of Flower's that is none of ours."""


@dataclass(frozen=True)
class Parcel:
    header: Header
    payload: bytes = b""


def wrap(parcel: Parcel, packed: Packed | None = None) -> RecordDict:
    """`packed`: the payload as `pack` gives it, for who has it already."""
    header = ConfigRecord({"json": json.dumps(parcel.header)})
    return RecordDict({HEADER: header, PAYLOAD: pack(parcel.payload) if packed is None else packed})


def pack(payload: bytes) -> Packed:
    if len(payload) <= WHOLE:
        return ConfigRecord({"bytes": payload})
    return ArrayRecord({"bytes": Array(np.frombuffer(payload, np.uint8))})


def unwrap(content: RecordDict) -> Parcel:
    """Whoever sent it may have put anything into it."""
    try:
        text = content.config_records[HEADER]["json"]
        header = json.loads(text) if isinstance(text, str) and len(text) <= WHOLE else None
        payload = _payload(content)
    except Exception as problem:  # numpy has many of its own for bytes that are no array
        raise Unreadable(f"it is no message of ours ({type(problem).__name__})") from None
    if not isinstance(header, dict) or not isinstance(payload, bytes):
        raise Unreadable("it is no message of ours")
    return Parcel(header, payload)


def _payload(content: RecordDict) -> object:
    if PAYLOAD in content.config_records:
        return content.config_records[PAYLOAD]["bytes"]
    array = content.array_records[PAYLOAD]["bytes"].numpy()
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ValueError("its payload is no byte string")
    return array.tobytes()
