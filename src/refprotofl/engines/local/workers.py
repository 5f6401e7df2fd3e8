"""Clients in worker processes, one compute thread each.

Any worker may answer for any client. An idle worker takes, of the tasks that wait, that of the client with most data:
so all finish at about the same time, however unequal the clients and the cores are. A worker has one task at a time:
the parent never waits to send while the worker waits to send, whatever the messages' size. Processes take seconds to
start; until the first is ready, the parent answers by itself.

Tasks and outcomes cross the pipe as a JSON header and a payload.
"""

import json
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from refprotofl.core import MachineError, RefProtoFLError, interrupts_ignored, live_with_parent, main_hidden
from refprotofl.engines.engine import Request, Result, start_ahead
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
    """Let a transfer fail that makes no progress for `seconds`; where pipes are no sockets, it may take for ever."""
    if os.name == "nt":
        return
    whole, part = divmod(seconds or 0.0, 1)  # no time at all means no limit
    limit = struct.pack("ll", int(whole), int(1e6 * part))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


BuildHost = Callable[[bytes], ClientHost]
READY = b"ready"  # a worker's first message; any other is the reason why it cannot start


@dataclass(eq=False)
class _Job:
    """A task, and its outcome once it is done."""

    task: Task
    begun: float = 0.0  # when it was given to a worker
    outcome: Outcome | None = None


class WorkerProcesses:
    """`sizes`: the number of samples of each client. `meanwhile` answers in this process until a worker is ready."""

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
        self._waiting: list[_Job] = []
        self._busy: list[_Job | None] = [None] * len(specifications)  # by worker
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        for specification in specifications:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, build_host, specification), daemon=True)
            with interrupts_ignored(), main_hidden():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, tasks: Iterable[Task], most: int | None, deadline: float | None) -> Iterator[tuple[Task, Outcome]]:
        for job in start_ahead(tasks, self._queue, most):
            yield job.task, self._finish(job, deadline)

    def _queue(self, task: Task) -> _Job:
        """Let a task wait until an outcome is asked for: by then all that belong together are here to choose from."""
        self._waiting.append(_Job(task))
        return self._waiting[-1]

    def _finish(self, job: _Job, deadline: float | None) -> Outcome:
        self._limit(deadline)
        while job.outcome is None:
            self._feed()
            alone = self._meanwhile is not None and len(self._starting) == len(self._pipes)
            talking = [pipe for worker, pipe in enumerate(self._pipes) if self._is_to_speak(worker)]
            ready = wait(talking, timeout=0 if alone else self._time_left())
            for pipe in ready:
                self._handle_message(self._pipes.index(pipe))  # type: ignore[arg-type]
            if alone and not ready:
                self._do_here()
            elif not ready:
                self._find_late()
        self._feed()  # the caller may take its time with the answer
        return job.outcome

    def forget(self, client: int | None = None) -> None:
        self._waiting = [job for job in self._waiting if client not in (None, job.task.client)]
        for worker, job in enumerate(self._busy):
            if job is not None and client in (None, job.task.client):
                self._handle_message(worker)  # lest it writes a state later

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
        """Set the deadline for transfers, too: a worker that hangs in the middle of a message is found."""
        if deadline != self._deadline:
            self._deadline = deadline
            for pipe in self._pipes:
                limit_transfers(pipe, deadline)

    def _time_left(self) -> float | None:
        """Return the seconds until the first of the busy workers is late."""
        begun = [job.begun for job in self._busy if job is not None]
        if self._deadline is None or not begun:
            return None
        return max(0.0, min(begun) + self._deadline - time.monotonic())

    def _find_late(self) -> None:
        for job in self._busy:
            if self._deadline is not None and job is not None and time.monotonic() - job.begun >= self._deadline:
                raise too_late(job.task, self._deadline)

    def _feed(self) -> None:
        """Give each idle worker the longest of the tasks that wait; of equal ones the first."""
        for worker in range(len(self._pipes)):
            if self._waiting and not self._is_to_speak(worker):
                job = max(self._waiting, key=self._size_of)
                self._waiting.remove(job)
                job.begun = time.monotonic()
                self._busy[worker] = job
                self._send(worker, job.task)

    def _size_of(self, job: _Job) -> int:
        return self._sizes[job.task.client]

    def _do_here(self) -> None:
        """Answer for the client with least data, so that workers do not wait long for this process to come back."""
        assert self._meanwhile is not None
        job = min(self._waiting, key=self._size_of)
        self._waiting.remove(job)
        job.outcome = do_in_time(self._meanwhile, job.task, self._deadline)

    def _handle_message(self, worker: int) -> None:
        """Take a worker's message: that it is ready, or the outcome of its task."""
        message = self._receive(worker)
        if worker in self._starting:
            if message != READY:
                raise MachineError(f"A worker could not start: {message.decode()}")
            self._starting.remove(worker)
            return
        job, self._busy[worker] = self._busy[worker], None
        assert job is not None
        job.outcome = unpack_outcome(message)

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
            "if memory ran out, use fewer --workers. Committed rounds are kept: resume with --resume."
        )


def _work(pipe: Connection, build_host: BuildHost, specification: bytes) -> None:
    """Run a worker: build the host, then answer until the parent closes the pipe or dies."""
    live_with_parent()
    try:
        host, message = build_host(specification), READY
    except RefProtoFLError as problem:
        host, message = None, str(problem).encode()
    with suppress(EOFError, OSError):  # the parent may close the pipe at any time, while the host is built, too
        pipe.send_bytes(message)
        while host is not None:
            pipe.send_bytes(pack_outcome(host.do(unpack_task(pipe.recv_bytes()))))
