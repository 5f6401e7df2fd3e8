"""Clients in this very process, one after the other."""

import time

from refprotofl.engines.local.executor import too_late
from refprotofl.engines.local.host import ClientHost, Outcome, Task


class InProcess:
    """A deadline is looked at when the answer is there: nobody else could interrupt the client."""

    def __init__(self, host: ClientHost) -> None:
        self._host = host
        self._tasks: dict[int, Task] = {}
        self._issued = 0

    def submit(self, task: Task) -> int:
        self._issued += 1
        self._tasks[self._issued] = task
        return self._issued

    def outcome(self, ticket: int, deadline: float | None) -> Outcome:
        return do_in_time(self._host, self._tasks.pop(ticket), deadline)

    def forget(self) -> None:
        self._tasks.clear()

    def close(self) -> None:
        self._tasks.clear()


def do_in_time(host: ClientHost, task: Task, deadline: float | None) -> Outcome:
    begin = time.monotonic()
    outcome = host.do(task)
    if deadline is not None and time.monotonic() - begin > deadline:
        raise too_late(task, deadline)
    return outcome
