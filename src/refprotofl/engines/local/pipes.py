"""Tasks and outcomes as bytes: what crosses the pipe between this process and its workers."""

import json
import os
import socket
import struct
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from refprotofl.engines.engine import Request, Result
from refprotofl.engines.local.host import Outcome, Task
from refprotofl.engines.local.store import Location

_HEADER = struct.Struct("<I")


def pack_task(task: Task) -> bytes:
    header = {"client": task.client, "round": task.round, "location": asdict(task.location)}
    if task.request is None:
        return _pack(header)
    return _pack({**header, "verb": task.request.verb, "keeps": task.request.keeps}, task.request.payload)


def unpack_task(data: bytes) -> Task:
    header, payload = _unpack(data)
    client, round, location = header["client"], header["round"], Location(**header["location"])
    if "verb" not in header:
        return Task(client, round, location)
    return Task(client, round, location, Request(client, header["verb"], round, payload, header["keeps"]))


def pack_outcome(outcome: Outcome) -> bytes:
    result, location = outcome.result, outcome.location
    header = {"code": result.code, "trouble": result.trouble, "kind": result.kind}
    return _pack({**header, "location": None if location is None else asdict(location)}, result.payload)


def unpack_outcome(data: bytes) -> Outcome:
    header, payload = _unpack(data)
    location = header.pop("location")
    return Outcome(Result(payload, **header), None if location is None else Location(**location))


def _pack(header: dict[str, Any], payload: bytes = b"") -> bytes:
    encoded = json.dumps(header).encode()
    return _HEADER.pack(len(encoded)) + encoded + payload


def _unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = _HEADER.unpack_from(data)
    end = _HEADER.size + length
    return json.loads(data[_HEADER.size : end]), data[end:]


def limit_transfers(pipe: Connection, seconds: float | None) -> None:
    """Lets a transfer that gets no further for so long fail; where pipes are no sockets, it may take for ever."""
    if os.name == "nt":
        return
    whole, part = divmod(seconds or 0.0, 1)  # no time at all means no limit
    limit = struct.pack("ll", int(whole), int(1e6 * part))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
