"""The resident worker: a process beside a node's SuperNode that keeps data and model from one message to the next.

Flower starts a process for every message, and to import torch and load the data takes longer than most answers. The
ClientApp hands the message over a socket in the node's store, which only its owner can open. The worker ends by itself
when the SuperNode is gone or nobody has asked for a while; without one, the ClientApp answers by itself.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import filelock

from refprotofl.engines.flower.node_config import NodeConfig
from refprotofl.engines.flower.parcels import Parcel
from refprotofl.records.files import ensure_folder

IDLE = 900.0  # seconds without a message after which a worker ends
LOOK = 2.0  # seconds between two looks whether the SuperNode is still there
STARTING = 60.0  # seconds that a worker has to start
LONGEST_PATH = 100  # of a socket, in bytes; systems differ

_started: list["subprocess.Popen[bytes]"] = []  # workers that outlive whoever started them


def hand_over(config: NodeConfig, action: str, parcel: Parcel) -> Parcel | None:
    """The answer of the node's worker, which is started if there is none; None if it cannot be had from one."""
    place = config.folder / "worker.sock"
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(place)) > LONGEST_PATH:
        return None
    ensure_folder(config.folder, private=True)
    for _ in range(2):  # one that dies of a message is replaced, once
        try:
            with _connected(place) as end:
                known = {"version": version("refprotofl"), "parent": os.getppid()}  # which is a part of the SuperNode
                _send(end, {"action": action, "config": config.plain(), **known}, parcel)
                told, answer = _receive(end)
                if told.get("here"):
                    return answer
        except (OSError, ValueError):
            continue
    return None


def _connected(place: Path) -> socket.socket:
    """To the worker, a new one if need be; OSError if it does not come up."""
    with suppress(OSError):
        return _connect(place)
    log = os.open(place.with_name("worker.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        command = [sys.executable, "-m", "refprotofl.engines.flower.worker", str(place)]
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=place.parent, start_new_session=True
        )
        _started.append(started)
    finally:
        os.close(log)
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        with suppress(OSError):
            return _connect(place)
        if started.poll() not in (None, 0):
            break
        time.sleep(0.05)
    raise ConnectionError("the worker did not start")


def _connect(place: Path) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(str(place))
    except OSError:
        end.close()
        raise
    return end


def serve(place: Path, idle: float = IDLE) -> None:
    """Answers one message after the other until none comes for `idle` seconds; at once if there is a worker already."""
    lock = filelock.FileLock(place.with_name("worker.lock"), mode=0o600, blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        return
    try:
        with socket.socket(socket.AF_UNIX) as door:
            place.unlink(missing_ok=True)
            before = os.umask(0o177)  # nobody else may open it, from its first moment
            try:
                door.bind(str(place))
            finally:
                os.umask(before)
            door.listen(4)
            door.settimeout(min(LOOK, idle))
            _answer_all(door, idle)
    finally:
        place.unlink(missing_ok=True)
        lock.release()


def _answer_all(door: socket.socket, idle: float) -> None:
    own, parent, last = version("refprotofl"), 0, time.monotonic()
    while time.monotonic() - last < idle and _lives(parent):
        try:
            end, _ = door.accept()
        except TimeoutError:
            continue
        with end, suppress(OSError, ValueError):
            end.settimeout(None)
            asked, parcel = _receive(end)
            if asked.get("version") != own:
                return  # a newer one takes its place
            parent = int(asked["parent"])
            _send(end, {"here": True}, _answer(asked, parcel))
        last = time.monotonic()


def _lives(process: int) -> bool:
    """Whether there is such a process; nobody has told of one yet at 0."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _answer(asked: dict[str, Any], parcel: Parcel) -> Parcel:
    from refprotofl.engines.flower.node import ANSWERS, failure

    try:
        return ANSWERS[asked["action"]](NodeConfig.model_validate(asked["config"]), parcel)
    except Exception as problem:
        return failure(parcel, problem)


def _send(end: socket.socket, told: dict[str, Any], parcel: Parcel) -> None:
    head = json.dumps({**told, "header": dict(parcel.header)}).encode()
    end.sendall(len(head).to_bytes(8, "little") + len(parcel.payload).to_bytes(8, "little") + head + parcel.payload)


def _receive(end: socket.socket) -> tuple[dict[str, Any], Parcel]:
    sizes = _exactly(end, 16)
    head = json.loads(_exactly(end, int.from_bytes(sizes[:8], "little")))
    return head, Parcel(head.pop("header"), _exactly(end, int.from_bytes(sizes[8:], "little")))


def _exactly(end: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        part = end.recv(min(1 << 20, size - len(got)))
        if not part:
            raise ConnectionError("the other side has gone")
        got += part
    return bytes(got)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
