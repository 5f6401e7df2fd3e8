"""Envelopes as the content of Flower messages."""

import json
from typing import TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from refprotofl.deploy.envelope import Envelope, Unreadable

Packed: TypeAlias = ConfigRecord | ArrayRecord

HEADER, PAYLOAD = "header", "payload"  # the records of a message; equal payloads are one object on the SuperLink
WHOLE = 4_000_000  # bytes that Flower can send in one piece; it sends a longer array in parts


def wrap(envelope: Envelope, packed: Packed | None = None) -> RecordDict:
    """Return the content of a message; `packed` is the payload as `pack` returns it, where it is at hand."""
    header = ConfigRecord({"json": json.dumps(envelope.header)})
    return RecordDict({HEADER: header, PAYLOAD: pack(envelope.payload) if packed is None else packed})


def pack(payload: bytes) -> Packed:
    if len(payload) <= WHOLE:
        return ConfigRecord({"bytes": payload})
    return ArrayRecord({"bytes": Array(np.frombuffer(payload, np.uint8))})


def unwrap(content: RecordDict) -> Envelope:
    """Return the envelope of a received message, which may hold anything; raise Unreadable if it is not ours."""
    try:
        text = content.config_records[HEADER]["json"]
        header = json.loads(text) if isinstance(text, str) and len(text) <= WHOLE else None
        payload = _payload(content)
    except Exception as problem:  # numpy has many of its own for bytes that are no array
        raise Unreadable(f"it is no message of ours ({type(problem).__name__})") from None
    if not isinstance(header, dict) or not isinstance(payload, bytes):
        raise Unreadable("it is no message of ours")
    return Envelope(header, payload)


def _payload(content: RecordDict) -> object:
    if PAYLOAD in content.config_records:
        return content.config_records[PAYLOAD]["bytes"]
    array = content.array_records[PAYLOAD]["bytes"].numpy()
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ValueError("its payload is no byte string")
    return array.tobytes()
