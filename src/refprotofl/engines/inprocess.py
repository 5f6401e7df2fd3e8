"""Clients in this very process, one after the other."""

from refprotofl.engines.host import ClientHost, Result, Task


class InProcessEngine:
    def __init__(self, host: ClientHost) -> None:
        self._host = host
        self._tasks: dict[int, Task] = {}
        self._issued = 0

    def submit(self, task: Task) -> int:
        self._issued += 1
        self._tasks[self._issued] = task
        return self._issued

    def result(self, ticket: int) -> Result:
        return self._host.answer(self._tasks.pop(ticket))

    def forget(self) -> None:
        self._tasks.clear()

    def close(self) -> None:
        self._tasks.clear()
