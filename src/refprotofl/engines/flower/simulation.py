"""A run under Flower's simulation: the local engine, with Flower's nodes in place of worker processes.

Its nodes own no clients: any of them answers for any client, whose state is a file in the run folder. So the result is
the same for any number of nodes.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from refprotofl.core import InputError, MachineError, RefProtoFLError
from refprotofl.deploy.run import Settings
from refprotofl.deploy.transport import Envelope, Reply, Sending, Transport
from refprotofl.engines.engine import start_ahead
from refprotofl.engines.local.engine import LocalEngine
from refprotofl.engines.local.host import ClientHost, Outcome, Task, too_late
from refprotofl.engines.local.workers import pack_outcome, pack_task, unpack_outcome, unpack_task
from refprotofl.federation import Callback, RunResult, Site, build_worker_host, run, worker_specifications

TASK = "task"


@dataclass(eq=False)
class _Job:
    """A task, and its outcome once it is done."""

    number: int
    task: Task
    outcome: Outcome | None = None


class GridExecutor:
    """Runs tasks on Flower's nodes. `specifications`: by node, the specification of its client host.

    `sizes`: samples by client; the largest waiting tasks are sent first.
    """

    def __init__(
        self, transport: Transport, nodes: Sequence[int], specifications: Sequence[bytes], sizes: Sequence[int]
    ) -> None:
        self._transport = transport
        self._nodes = nodes
        self._specifications = [specification.decode() for specification in specifications]
        self._sizes = sizes
        self._waiting: list[_Job] = []
        self._sent: dict[str, _Job] = {}  # by the message's id
        self._issued = 0
        self._heard: float | None = None  # when the last reply came

    def run(self, tasks: Iterable[Task], most: int | None, deadline: float | None) -> Iterator[tuple[Task, Outcome]]:
        for job in start_ahead(tasks, self._queue, most):
            yield job.task, self._finish(job, deadline)

    def _queue(self, task: Task) -> _Job:
        self._issued += 1
        self._waiting.append(_Job(self._issued, task))
        return self._waiting[-1]

    def _finish(self, job: _Job, deadline: float | None) -> Outcome:
        self._send()
        while job.outcome is None:
            if not self._receive(deadline):
                self._find_late(deadline)
                self._transport.rest()
        return job.outcome

    def forget(self, client: int | None = None) -> None:
        self._waiting = [job for job in self._waiting if client not in (None, job.task.client)]
        while any(client in (None, job.task.client) for job in self._sent.values()):
            if not self._receive(None):
                self._transport.rest()

    def close(self) -> None:
        self._waiting.clear()

    def _send(self) -> None:
        jobs = sorted(self._waiting, key=lambda job: -self._sizes[job.task.client])
        self._waiting = []
        for identity, job in zip(self._transport.push([self._sending(job) for job in jobs]), jobs, strict=True):
            if not identity:
                raise MachineError(
                    "Flower did not accept a message; its log says why. Resume with the same run folder."
                )
            self._sent[identity] = job

    def _sending(self, job: _Job) -> Sending:
        place = job.number % len(self._nodes)
        header = {"specification": self._specifications[place]}
        return Sending(self._nodes[place], TASK, Envelope(header, pack_task(job.task)), str(job.task.round))

    def _receive(self, deadline: float | None) -> bool:
        replies = self._transport.pull(self._sent)
        for identity, reply in replies.items():
            job = self._sent.pop(identity)
            job.outcome = _read(job.task, reply, deadline)
            self._heard = time.monotonic()
        return bool(replies)

    def _find_late(self, deadline: float | None) -> None:
        """Raise if no reply arrived within the deadline; tasks that wait for a free process are not late."""
        if deadline is not None and self._heard is not None and time.monotonic() - self._heard > deadline:
            raise too_late(next(iter(self._sent.values())).task, deadline)


def _read(task: Task, reply: Reply, deadline: float | None) -> Outcome:
    if reply.envelope is None or "trouble" in reply.envelope.header:
        reason = reply.reason if reply.envelope is None else str(reply.envelope.header["trouble"])
        raise MachineError(f"Round {task.round}, client {task.client}: Flower's node failed: {reason.rstrip('.')}.")
    if deadline is not None and float(reply.envelope.header["seconds"]) > deadline:
        raise too_late(task, deadline)
    return unpack_outcome(reply.envelope.payload)


def simulate(transport: Transport, nodes: list[int], settings: Settings, callback: Callback) -> RunResult:
    """Run the server's part; an existing run in the folder is resumed."""

    def open_engine(site: Site) -> LocalEngine:
        sizes = [len(indices) for indices in site.federation.data.client_indices]
        places, specifications = nodes[: site.workers], worker_specifications(site)
        return LocalEngine(
            lambda: GridExecutor(transport, places, specifications, sizes), site.folder, site.records, site.kept
        )

    return run(
        settings.experiment,
        out=settings.out,
        data=settings.data,
        workers=len(nodes),
        resume=True,
        callback=callback,
        engine=open_engine,
    )


def do_task(envelope: Envelope) -> Envelope:
    """Do a task in a process of Flower's."""
    try:
        host = _host(str(envelope.header["specification"]))
        begin = time.monotonic()
        outcome = host.do(unpack_task(envelope.payload))
    except RefProtoFLError as problem:
        return Envelope({"trouble": str(problem)})
    return Envelope({"seconds": time.monotonic() - begin}, pack_outcome(outcome))


@lru_cache(maxsize=1)
def _host(specification: str) -> ClientHost:
    folder = Path(json.loads(specification)["folder"])
    if not folder.is_dir():
        raise InputError(
            f"This node does not see the run folder {folder.parent}, so it is on another machine than the server. "
            "For devices with their own data, see refprotofl deploy."
        )
    return build_worker_host(specification.encode())
