"""The resident worker: a process beside a node's SuperNode that keeps data and model from one message to the next.

Flower starts a process for every message, and to import torch and load the data takes longer than most answers. The
ClientApp hands the message over a socket in the node's store, which only its owner can open. While the worker computes
it says so every few seconds; one that falls silent is ended and replaced. It ends by itself when the SuperNode is gone
or nobody has asked for a while; without one, the ClientApp answers by itself.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import filelock

from refprotofl.engines.flower.node_config import NodeConfig
from refprotofl.engines.flower.parcels import Parcel
from refprotofl.errors import MachineError
from refprotofl.records.files import ensure_folder, write_whole

IDLE = 900.0  # seconds without a message after which a worker ends
LOOK = 2.0  # seconds between two looks whether the SuperNode is still there
BEAT = 2.0  # seconds between two signs of life of a worker that computes
SILENT = 30.0  # seconds without one after which a worker is given up
PAUSES = (0.0, 0.5, 2.0)  # seconds before each try: one that is dying may still let in whom it does not answer
STARTING = 60.0  # seconds that a worker has to start
LONGEST_PATH = 100  # of a socket, in bytes; systems differ
LOG = "worker.log"
LONGEST_LOG = 1_000_000  # bytes; the older half of a longer one goes

_started: list["subprocess.Popen[bytes]"] = []  # workers that outlive whoever started them


def hand_over(config: NodeConfig, action: str, parcel: Parcel, silent: float = SILENT) -> Parcel | None:
    """The answer of the node's worker, which is started if there is none; None if it cannot be had from one."""
    place = config.folder / "worker.sock"
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(place)) > LONGEST_PATH:
        return None
    ensure_folder(config.folder, private=True)
    for pause in PAUSES:  # one that dies of a message, or hangs, is replaced
        time.sleep(pause)
        try:
            with _connected(place, silent) as end:
                known = {"version": version("refprotofl"), "parent": os.getppid()}  # which is a part of the SuperNode
                _send(end, {"action": action, "config": config.plain(), **known}, parcel)
                while (told := _receive(end))[0].get("busy"):
                    pass
                if told[0].get("here"):
                    return told[1]
        except TimeoutError:
            print(f"The node's worker was silent for {silent:.0f} s: it is ended.", flush=True)
            _end(place, silent)
        except (OSError, ValueError):
            continue
    return None


def _connected(place: Path, silent: float) -> socket.socket:
    """To the worker, a new one if need be; OSError if it does not come up, TimeoutError if it does not listen."""
    try:
        return _connect(place, silent)
    except TimeoutError:
        raise
    except OSError:
        started = _start(place)
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        with suppress(OSError):
            return _connect(place, silent)
        if started.poll():
            break
        if started.poll() == 0:  # another one has the lock: it comes up, or is about to end
            time.sleep(1.0)
            started = _start(place)
        time.sleep(0.05)
    raise ConnectionError("the worker did not start")


def _start(place: Path) -> "subprocess.Popen[bytes]":
    """In the folder of the SuperNode, as this process: the owner's own code is found from there."""
    log = _opened(place.with_name(LOG))
    try:
        command = [sys.executable, "-m", "refprotofl.engines.flower.worker", str(place)]
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    finally:
        os.close(log)
    _started.append(started)
    return started


def _connect(place: Path, silent: float) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    try:
        end.settimeout(silent)
        end.connect(str(place))
    except OSError:
        end.close()
        raise
    return end


def _end(place: Path, patience: float) -> None:
    """Ends the worker that listens here, and waits until it does so no more."""
    with suppress(OSError, ValueError):
        os.kill(int(_named(place).read_text()), signal.SIGKILL)
    until = time.monotonic() + patience
    with suppress(OSError):
        while time.monotonic() < until:
            _connect(place, 1.0).close()
            time.sleep(0.05)


def _named(place: Path) -> Path:
    """The file with the worker's number as a process; it is that of the one that holds the lock."""
    return place.with_name("worker.pid")


@dataclass(frozen=True)
class _Asked:
    told: dict[str, Any]
    parcel: Parcel
    answer: "Future[Parcel]" = field(default_factory=Future)


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
            write_whole(_named(place), str(os.getpid()).encode())
            before = os.umask(0o177)  # nobody else may open it, from its first moment
            try:
                door.bind(str(place))
            finally:
                os.umask(before)
            door.listen(4)
            asked: SimpleQueue[_Asked] = SimpleQueue()
            threading.Thread(target=_let_in, args=(door, asked), daemon=True).start()
            _answer_all(asked, idle, place.with_name(LOG))
    finally:
        place.unlink(missing_ok=True)
        lock.release()


def _let_in(door: socket.socket, asked: "SimpleQueue[_Asked]") -> None:
    with suppress(OSError):  # the door is closed
        while True:
            end, _ = door.accept()
            threading.Thread(target=_attend, args=(end, asked), daemon=True).start()


def _attend(end: socket.socket, asked: "SimpleQueue[_Asked]") -> None:
    """Brings a message to the one that answers, and back what comes of it; signs of life meanwhile."""
    with end, suppress(OSError, ValueError):
        one = _Asked(*_receive(end))
        asked.put(one)
        while True:
            try:
                return _send(end, {"here": True}, one.answer.result(BEAT))
            except TimeoutError:
                _send(end, {"busy": True}, Parcel({}))


def _answer_all(asked: "SimpleQueue[_Asked]", idle: float, log: Path) -> None:
    """In the process's first thread, whose settings torch computes with."""
    own, parent, last = version("refprotofl"), 0, time.monotonic()
    while time.monotonic() - last < idle and _lives(parent):
        try:
            one = asked.get(timeout=min(LOOK, idle))
        except Empty:
            continue
        if one.told.get("version") != own:
            return  # a newer one takes its place
        parent = int(one.told.get("parent", 0))
        one.answer.set_result(_answer(one.told, one.parcel))
        _shorten(log)
        last = time.monotonic()


def _shorten(log: Path) -> None:
    """Puts the newer half of a log that has become too long in its place, in one step, and writes there from now on."""
    with suppress(OSError, MachineError):  # a long log is no reason not to answer
        if log.stat().st_size <= LONGEST_LOG:
            return
        with log.open("rb") as file:
            file.seek(-LONGEST_LOG // 2, os.SEEK_END)
            write_whole(log, file.read())
        shortened = _opened(log)
        os.dup2(shortened, sys.stdout.fileno())
        os.dup2(shortened, sys.stderr.fileno())
        os.close(shortened)


def _opened(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


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
