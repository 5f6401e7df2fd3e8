"""What crosses between our ServerApp and ClientApp: a header in JSON and one byte string."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from refprotofl.errors import RefProtoFLError

Header = Mapping[str, Any]

HEADER, PAYLOAD = "header", "payload"  # the records of a message; equal payloads are one object on the SuperLink
WHOLE = 4_000_000  # bytes that Flower can send in one piece; it sends a longer array in parts


class Unreadable(RefProtoFLError):
    """A message of Flower's that is none of ours."""


@dataclass(frozen=True)
class Parcel:
    header: Header
    payload: bytes = b""


def wrap(parcel: Parcel) -> RecordDict:
    content = RecordDict({HEADER: ConfigRecord({"json": json.dumps(parcel.header)})})
    if len(parcel.payload) <= WHOLE:
        content[PAYLOAD] = ConfigRecord({"bytes": parcel.payload})
    else:
        content[PAYLOAD] = ArrayRecord({"bytes": Array(np.frombuffer(parcel.payload, np.uint8))})
    return content


def unwrap(content: RecordDict) -> Parcel:
    """Whoever sent it may have put anything into it."""
    try:
        text = content.config_records[HEADER]["json"]
        header = json.loads(text) if isinstance(text, str) else None
        payload = _payload(content)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as problem:
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
