"""Clients in this very process, one after the other."""

from refprotofl.engines.host import ClientHost, Records, Result, Task


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

    def commit(self, round: int) -> Records:
        self._tasks.clear()  # what a dropped client was still to be asked
        return self._host.commit(round)

    def close(self) -> None:
        self._tasks.clear()
