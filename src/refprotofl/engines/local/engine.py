"""The engine of this machine: tasks for whoever computes, and where every client's newest state lies."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from refprotofl.core.errors import RunError
from refprotofl.engines.engine import STOPS, EngineInfo, Record, Request, Result
from refprotofl.engines.local.host import Executor, Task
from refprotofl.engines.local.logs import ClientLogs
from refprotofl.engines.local.store import Location, prepare_blobs, prepare_states, remove_others, sync_states


class LocalEngine:
    """Knows committed states and those of the present round, so that any process can go on with any client.

    `records` are those of the last committed round, `kept` by round those that may be gone back to. Files in `folder`
    that none of them names are removed; then `start` is called for whoever computes.
    """

    info = EngineInfo()

    def __init__(
        self,
        start: Callable[[], Executor],
        folder: Path,
        records: Mapping[int, Record],
        kept: Mapping[int, Mapping[int, Record]] | None = None,
    ) -> None:
        self._folder = folder
        self._records = dict(records)
        self._kept = dict(kept or {})
        self._settled: dict[int, dict[int, Record]] = {}  # by round, not committed yet
        self._newest = {client: Location.recorded(record) for client, record in records.items()}
        self._committed = dict(self._newest)
        self._moved: set[int] = set()
        self._asked: dict[int, int] = {}  # the client of every ticket
        self._deadline: float | None = None
        self._logs = ClientLogs(folder.parent)
        prepare_states(folder)
        prepare_blobs(folder)
        remove_others(folder, self._named())
        self._executor = start()

    def submit(self, request: Request) -> int:
        location = self._newest.get(request.client, Location())
        ticket = self._executor.submit(Task(request.client, request.round, location, request))
        self._asked[ticket] = request.client
        return ticket

    def result(self, ticket: int, deadline: float | None) -> Result:
        self._deadline = deadline
        outcome = self._executor.outcome(ticket, deadline)
        client = self._asked.pop(ticket)
        if outcome.location is not None:
            self._newest[client] = outcome.location
            self._moved.add(client)
        return outcome.result

    def discard(self, client: int) -> None:
        self._newest[client] = self._committed.get(client, Location())
        self._moved.discard(client)

    def settle(self, round: int) -> dict[int, Record]:
        self._executor.forget()
        self._asked.clear()
        moved = sorted(self._moved)
        self._merge(round, [client for client in moved if self._newest[client].changes])
        records = {client: self._newest[client].record for client in moved}
        sync_states(self._folder, records.values())
        self._settled[round] = records
        return records

    def committed(self, round: int, oldest: int) -> None:
        self._records |= self._settled.pop(round)
        self._committed |= {client: self._newest[client] for client in self._moved}
        self._moved.clear()
        self._kept = {one: records for one, records in self._kept.items() if one >= oldest}
        self._kept[round] = dict(self._records)
        remove_others(self._folder, self._named())

    def _named(self) -> Iterator[Record]:
        """Of the last round, and of those that may be gone back to."""
        return chain(self._records.values(), *(records.values() for records in self._kept.values()))

    def explain(self, client: int) -> str:
        return self._logs.last(client)

    def close(self) -> None:
        self._executor.close()

    def _merge(self, round: int, clients: list[int]) -> None:
        """Brings every state with loose changes into one file."""
        tickets = [self._executor.submit(Task(client, round, self._newest[client])) for client in clients]
        for client, ticket in zip(clients, tickets, strict=True):
            outcome = self._executor.outcome(ticket, self._deadline)
            if outcome.location is None:
                kind, told = STOPS.get(outcome.result.kind, RunError), outcome.result.trouble or "its state was lost"
                raise kind(f"Round {round}, client {client}: {told}")
            self._newest[client] = outcome.location
