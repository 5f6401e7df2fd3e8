"""Faults of a deployment, made on purpose: links, processes, answers, disks."""

import asyncio
import datetime
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refprotofl.deploy import certificates
from refprotofl.deploy.headers import PROTOCOL, Answered, Route
from refprotofl.deploy.node_store import LAST, runs_in
from refprotofl.deploy.relay import Address, Relay
from refprotofl.deploy.transport import Envelope
from refprotofl.records import Crossed


class Link:
    """A relay in a thread of this process, before a port of this machine."""

    def __init__(self, port: int) -> None:
        self._relay = Relay(Address("127.0.0.1", port))
        self._loop = asyncio.new_event_loop()
        self._ready, self._end = threading.Event(), asyncio.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait(60)

    def _run(self) -> None:
        async def serve() -> None:
            async with self._relay.listen(Address("127.0.0.1", 0)) as address:
                self.port = address.port
                self._ready.set()
                await self._end.wait()

        self._loop.run_until_complete(serve())
        self._loop.close()

    @property
    def connections(self) -> int:
        return self._relay.connections

    @property
    def counts(self) -> Crossed:
        return self._relay.counts

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._relay.cut_off)

    def join(self) -> None:
        self._loop.call_soon_threadsafe(self._relay.restore)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)


def processes(naming: str) -> list[int]:
    """Those that have a text in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if naming.encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
    return found


def cpu_seconds(process: int) -> float:
    """The CPU time of a process so far."""
    used = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def answered(store: Path) -> tuple[int, int]:
    """Round and phase of the last answer that a node gave."""
    runs = runs_in(store)
    data = (runs[0].read(LAST) if runs else None) or b"\2\0\0\0{}"
    head = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    header = head.get("header", {})
    return header.get("round", 0), header.get("phase", 0)


def nonsense(action: str, envelope: Envelope, turn: int) -> Envelope:
    """Return what a hostile node answers: it joins as others do, and then says anything."""
    if action != "ask":
        return {"hello": Envelope({"protocol": PROTOCOL, "name": ""}), "run": Envelope({"code": None})}[action]
    return NONSENSE[turn % len(NONSENSE)](Answered.to(Route.read(envelope.header), state="f" * 64).header())


# What a node may say in place of an answer, of whose header all else is right.
NONSENSE: list[Callable[[dict[str, Any]], Envelope]] = [
    lambda header: Envelope({"round": "x"}, b"?"),
    lambda header: Envelope(header, os.urandom(20_000)),
    lambda header: Envelope({**header, "round": 99}),
    lambda header: Envelope({**header, "state": "no digest"}),
    lambda header: Envelope({**header, "state": "f" * 1_000_000}),
    lambda header: Envelope({**header, "state": ["f" * 64]}),
    lambda header: Envelope({**header, "phase": 10**400}),
    lambda header: Envelope({**header, "run": {"run": header["run"]}}),
    lambda header: Envelope({}),
]


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """Mount a file system of this size in megabytes; raise OSError if that is not possible."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise OSError("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    """Takes all the room that there is."""
    path = place / "filling"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return path


def shift_clock(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Create certificates as if it were this many days later."""

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Shifted":
            return cls.fromtimestamp(time.time() + 86_400 * days, tz)

    shifted = SimpleNamespace(datetime=Shifted, timedelta=datetime.timedelta, UTC=datetime.UTC)
    monkeypatch.setattr(certificates, "datetime", shifted)
