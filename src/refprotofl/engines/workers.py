"""Clients in worker processes, one compute thread each.

Any worker may answer for any client. An idle one takes, of the requests that wait, that of the client with most data:
so all finish at about the same time, however unequal the clients and the cores are. A worker has one task at a time:
the parent never waits to send while the worker waits to send, whatever the messages' size. Processes take seconds to
start; until the first is ready, the parent answers by itself.
"""

import json
import multiprocessing
import os
import signal
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from refprotofl.basics.state import Kept
from refprotofl.engines.host import ClientHost, Result, Task
from refprotofl.errors import RefProtoFLError, RunError

BuildHost = Callable[[bytes], ClientHost]
_HEADER = struct.Struct("<I")


class WorkerEngine:
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
        self._starting = set(range(len(specifications)))
        self._waiting: dict[int, Task] = {}  # by ticket
        self._busy: list[int | None] = [None] * len(specifications)  # the ticket that a worker is at
        self._results: dict[int, Result] = {}
        self._issued = 0
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        for specification in specifications:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, build_host, specification), daemon=True)
            with _interrupts_ignored():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def submit(self, task: Task) -> int:
        """The task starts when a result is called for: by then all that belong together are here to choose from."""
        self._issued += 1
        self._waiting[self._issued] = task
        return self._issued

    def result(self, ticket: int) -> Result:
        while ticket not in self._results:
            self._feed()
            alone = self._meanwhile is not None and len(self._starting) == len(self._pipes)
            talking = [pipe for worker, pipe in enumerate(self._pipes) if self._is_to_speak(worker)]
            ready = wait(talking, timeout=0 if alone else None)
            for pipe in ready:
                self._hear(self._pipes.index(pipe))  # type: ignore[arg-type]
            if alone and not ready:
                self._answer_here()
        self._feed()  # whoever asked may take its time with the answer
        return self._results.pop(ticket)

    def forget(self) -> None:
        self._waiting.clear()
        for worker, busy in enumerate(self._busy):
            if busy is not None:
                self._hear(worker)  # lest it writes a state after the round's end
        self._results.clear()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for worker, process in enumerate(self._processes):
            process.join(timeout=0 if worker in self._starting else 1)
            if process.is_alive():
                process.kill()
                process.join()

    def _is_to_speak(self, worker: int) -> bool:
        return worker in self._starting or self._busy[worker] is not None

    def _feed(self) -> None:
        for worker in range(len(self._pipes)):
            if self._waiting and not self._is_to_speak(worker):
                ticket = max(self._waiting, key=lambda ticket: (self._sizes[self._waiting[ticket].client], -ticket))
                task = self._waiting.pop(ticket)
                self._busy[worker] = ticket
                self._send(worker, {**asdict(task), "payload": None}, task.payload)

    def _answer_here(self) -> None:
        """For the client with least data, so that workers do not wait long for this process to come back."""
        assert self._meanwhile is not None
        ticket = min(self._waiting, key=lambda ticket: (self._sizes[self._waiting[ticket].client], ticket))
        self._results[ticket] = self._meanwhile.answer(self._waiting.pop(ticket))

    def _hear(self, worker: int) -> None:
        """Takes what a worker says: that it is ready, or the result of its task."""
        header, payload = self._receive(worker)
        if worker in self._starting:
            if header.get("error"):
                raise RunError(f"A worker could not start: {header['error']}")
            self._starting.remove(worker)
            return
        ticket, self._busy[worker] = self._busy[worker], None
        assert ticket is not None
        kept = None if header["kept"] is None else Kept(**header["kept"])
        self._results[ticket] = Result(**{**header, "payload": payload, "kept": kept})

    def _send(self, worker: int, header: dict[str, Any], payload: bytes = b"") -> None:
        try:
            self._pipes[worker].send_bytes(_frame(header, payload))
        except OSError:
            raise self._death(worker) from None

    def _receive(self, worker: int) -> tuple[dict[str, Any], bytes]:
        try:
            return _unframe(self._pipes[worker].recv_bytes())
        except (EOFError, OSError):
            raise self._death(worker) from None

    def _death(self, worker: int) -> RunError:
        process = self._processes[worker]
        process.join(timeout=1)
        return RunError(
            f"Worker process {process.pid} ended unexpectedly (exit code {process.exitcode}); "
            "if memory ran out, use fewer --workers. Rounds committed so far are kept: go on with --resume."
        )


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A process started here is deaf to Ctrl-C from its first moment: the parent decides what an interrupt means."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change what a signal does
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _frame(header: dict[str, Any], payload: bytes = b"") -> bytes:
    encoded = json.dumps(header).encode()
    return _HEADER.pack(len(encoded)) + encoded + payload


def _unframe(frame: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = _HEADER.unpack_from(frame)
    end = _HEADER.size + length
    return json.loads(frame[_HEADER.size : end]), frame[end:]


def _work(pipe: Connection, build_host: BuildHost, specification: bytes) -> None:
    """A worker's life: build the host, then answer until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it is not inherited
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        host = build_host(specification)
    except RefProtoFLError as problem:
        pipe.send_bytes(_frame({"error": str(problem)}))
        return
    pipe.send_bytes(_frame({}))
    while True:
        try:
            header, payload = _unframe(pipe.recv_bytes())
            result = host.answer(Task(**{**header, "payload": payload, "kept": Kept(**header["kept"])}))
            pipe.send_bytes(_frame({**asdict(result), "payload": None}, result.payload))
        except (EOFError, OSError):
            return


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
