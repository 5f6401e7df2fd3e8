"""Clients in worker processes, one compute thread each.

Every client lives in one worker, so its private state stays there. A worker has one task at a time: the parent never
waits to send while the worker waits to send, whatever the messages' size.
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

from refprotofl.engines.host import ClientHost, Records, Result, Task
from refprotofl.errors import RefProtoFLError, RunError

BuildHost = Callable[[bytes], ClientHost]
_HEADER = struct.Struct("<I")
_COMMIT = "commit"
_READY = "ready"


def balanced(sizes: Sequence[int], workers: int) -> list[int]:
    """The worker of each client: the largest first, each to whom has least so far."""
    loads = [0] * workers
    home = [0] * len(sizes)
    for client in sorted(range(len(sizes)), key=lambda client: (-sizes[client], client)):
        home[client] = loads.index(min(loads))
        loads[home[client]] += sizes[client]
    return home


class WorkerEngine:
    def __init__(self, build_host: BuildHost, specification: bytes, sizes: Sequence[int], workers: int) -> None:
        self._sizes = sizes
        self._home = balanced(sizes, workers)
        self._queues: list[list[tuple[int, Task]]] = [[] for _ in range(workers)]
        self._busy: list[int | None] = [None] * workers  # the ticket that a worker is at
        self._results: dict[int, Result] = {}
        self._issued = 0
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, build_host, specification), daemon=True)
            with _interrupts_ignored():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def wait_until_ready(self) -> None:
        for worker in range(len(self._pipes)):
            header, _ = self._receive(worker)
            if header.get("error"):
                raise RunError(f"A worker could not start: {header['error']}")

    def submit(self, task: Task) -> int:
        self._issued += 1
        worker = self._home[task.client]
        self._queues[worker].append((self._issued, task))
        self._feed(worker)
        return self._issued

    def result(self, ticket: int) -> Result:
        while ticket not in self._results:
            ready = wait([self._pipes[worker] for worker, busy in enumerate(self._busy) if busy is not None])
            for pipe in ready:
                self._collect(self._pipes.index(pipe))  # type: ignore[arg-type]
        return self._results.pop(ticket)

    def commit(self, round: int) -> Records:
        for queue in self._queues:
            queue.clear()  # what a dropped client was still to be asked
        for worker, busy in enumerate(self._busy):
            if busy is not None:
                self._collect(worker)
        self._results.clear()
        for worker in range(len(self._pipes)):
            self._send(worker, {"verb": _COMMIT, "round": round})
        written: Records = {}
        for worker in range(len(self._pipes)):
            header, _ = self._receive(worker)
            if header.get("error"):
                raise RunError(header["error"])
            written |= {int(client): record for client, record in header["records"].items()}
        return written

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
                process.join()

    def _feed(self, worker: int) -> None:
        """Gives an idle worker its next task: of those waiting, the client with most data first."""
        queue = self._queues[worker]
        if self._busy[worker] is not None or not queue:
            return
        ticket, task = max(queue, key=lambda waiting: (self._sizes[waiting[1].client], -waiting[0]))
        queue.remove((ticket, task))
        self._busy[worker] = ticket
        self._send(worker, {"verb": task.verb, "client": task.client, "round": task.round}, task.payload)

    def _collect(self, worker: int) -> None:
        header, payload = self._receive(worker)
        ticket, self._busy[worker] = self._busy[worker], None
        assert ticket is not None
        self._results[ticket] = Result(payload, **header)
        self._feed(worker)

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
    pipe.send_bytes(_frame({_READY: True}))
    while True:
        try:
            header, payload = _unframe(pipe.recv_bytes())
            pipe.send_bytes(_handle(host, header, payload))
        except (EOFError, OSError):
            return


def _handle(host: ClientHost, header: dict[str, Any], payload: bytes) -> bytes:
    if header["verb"] == _COMMIT:
        try:
            return _frame({"records": host.commit(header["round"])})
        except RefProtoFLError as problem:
            return _frame({"error": str(problem)})
    result = asdict(host.answer(Task(header["client"], header["verb"], header["round"], payload)))
    return _frame(result, result.pop("payload"))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
