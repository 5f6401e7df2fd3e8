"""Tasks and outcomes as bytes: what crosses the pipe between this process and its workers.

Clients in worker processes, one compute thread each.

Any worker may answer for any client. An idle one takes, of the requests that wait, that of the client with most data:
so all finish at about the same time, however unequal the clients and the cores are. A worker has one task at a time:
the parent never waits to send while the worker waits to send, whatever the messages' size. Processes take seconds to
start; until the first is ready, the parent answers by itself.
"""

import json
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from refprotofl.core.errors import MachineError, RefProtoFLError
from refprotofl.core.process import interrupts_ignored, live_with_parent
from refprotofl.engines.engine import Request, Result
from refprotofl.engines.local.host import ClientHost, Outcome, Task, do_in_time, too_late
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


BuildHost = Callable[[bytes], ClientHost]
READY = b"ready"  # what a worker says first; anything else is why it cannot start


@dataclass(frozen=True)
class _Work:
    """What a worker is at, and since when."""

    ticket: int
    task: Task
    begun: float


class WorkerProcesses:
    """`sizes`: how much data each client has. `meanwhile` answers in this process until a worker is ready."""

    def __init__(
        self,
        build_host: BuildHost,
        specifications: Sequence[bytes],
        sizes: Sequence[int],
        meanwhile: ClientHost | None = None,
    ) -> None:
        self._sizes = sizes
        self._meanwhile = meanwhile
        self._deadline: float | None = None
        self._starting = set(range(len(specifications)))
        self._waiting: dict[int, Task] = {}  # by ticket
        self._busy: list[_Work | None] = [None] * len(specifications)  # what a worker is at
        self._outcomes: dict[int, Outcome] = {}
        self._issued = 0
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        for specification in specifications:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, build_host, specification), daemon=True)
            with interrupts_ignored():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def submit(self, task: Task) -> int:
        """The task starts when an outcome is called for: by then all that belong together are here to choose from."""
        self._issued += 1
        self._waiting[self._issued] = task
        return self._issued

    def outcome(self, ticket: int, deadline: float | None) -> Outcome:
        self._limit(deadline)
        while ticket not in self._outcomes:
            self._feed()
            alone = self._meanwhile is not None and len(self._starting) == len(self._pipes)
            talking = [pipe for worker, pipe in enumerate(self._pipes) if self._is_to_speak(worker)]
            ready = wait(talking, timeout=0 if alone else self._time_left())
            for pipe in ready:
                self._hear(self._pipes.index(pipe))  # type: ignore[arg-type]
            if alone and not ready:
                self._do_here()
            elif not ready:
                self._find_late()
        self._feed()  # whoever asked may take its time with the answer
        return self._outcomes.pop(ticket)

    def forget(self) -> None:
        self._waiting.clear()
        for worker, busy in enumerate(self._busy):
            if busy is not None:
                self._hear(worker)  # lest it writes a state after the round's end
        self._outcomes.clear()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for worker, process in enumerate(self._processes):
            process.join(timeout=0 if worker in self._starting else 1)
            if process.is_alive():
                process.kill()  # which ends a process that was stopped, too
                process.join()

    def _is_to_speak(self, worker: int) -> bool:
        return worker in self._starting or self._busy[worker] is not None

    def _limit(self, deadline: float | None) -> None:
        """A worker that hangs in the middle of a message is found, too."""
        if deadline != self._deadline:
            self._deadline = deadline
            for pipe in self._pipes:
                limit_transfers(pipe, deadline)

    def _time_left(self) -> float | None:
        """Until the first of the workers that are at a task is late."""
        begun = [busy.begun for busy in self._busy if busy is not None]
        if self._deadline is None or not begun:
            return None
        return max(0.0, min(begun) + self._deadline - time.monotonic())

    def _find_late(self) -> None:
        for busy in self._busy:
            if self._deadline is not None and busy is not None and time.monotonic() - busy.begun >= self._deadline:
                raise too_late(busy.task, self._deadline)

    def _feed(self) -> None:
        for worker in range(len(self._pipes)):
            if self._waiting and not self._is_to_speak(worker):
                ticket = max(self._waiting, key=lambda ticket: (self._sizes[self._waiting[ticket].client], -ticket))
                task = self._waiting.pop(ticket)
                self._busy[worker] = _Work(ticket, task, time.monotonic())
                self._send(worker, task)

    def _do_here(self) -> None:
        """For the client with least data, so that workers do not wait long for this process to come back."""
        assert self._meanwhile is not None
        ticket = min(self._waiting, key=lambda ticket: (self._sizes[self._waiting[ticket].client], ticket))
        self._outcomes[ticket] = do_in_time(self._meanwhile, self._waiting.pop(ticket), self._deadline)

    def _hear(self, worker: int) -> None:
        """Takes what a worker says: that it is ready, or the outcome of its task."""
        said = self._receive(worker)
        if worker in self._starting:
            if said != READY:
                raise MachineError(f"A worker could not start: {said.decode()}")
            self._starting.remove(worker)
            return
        work, self._busy[worker] = self._busy[worker], None
        assert work is not None
        self._outcomes[work.ticket] = unpack_outcome(said)

    def _send(self, worker: int, task: Task) -> None:
        try:
            self._pipes[worker].send_bytes(pack_task(task))
        except OSError as problem:
            raise self._silence(worker, problem) from None

    def _receive(self, worker: int) -> bytes:
        try:
            return self._pipes[worker].recv_bytes()
        except (EOFError, OSError) as problem:
            raise self._silence(worker, problem) from None

    def _silence(self, worker: int, problem: Exception) -> MachineError:
        busy = self._busy[worker]
        if isinstance(problem, BlockingIOError) and busy is not None and self._deadline is not None:
            return too_late(busy.task, self._deadline)
        return self._death(worker)

    def _death(self, worker: int) -> MachineError:
        process = self._processes[worker]
        process.join(timeout=1)
        return MachineError(
            f"Worker process {process.pid} ended unexpectedly (exit code {process.exitcode}); "
            "if memory ran out, use fewer --workers. Rounds committed so far are kept: go on with --resume."
        )


def _work(pipe: Connection, build_host: BuildHost, specification: bytes) -> None:
    """A worker's life: build the host, then answer until the parent closes the pipe or dies."""
    live_with_parent()
    try:
        host, said = build_host(specification), READY
    except RefProtoFLError as problem:
        host, said = None, str(problem).encode()
    with suppress(EOFError, OSError):  # the parent may close the pipe at any time, while the host is built, too
        pipe.send_bytes(said)
        while host is not None:
            pipe.send_bytes(pack_outcome(host.do(unpack_task(pipe.recv_bytes()))))
