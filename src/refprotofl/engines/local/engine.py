"""The engine of this machine: it knows each client's newest state, and has an executor do the work."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from refprotofl.core import RunError
from refprotofl.engines.engine import STOPS, EngineInfo, Record, Request, Result
from refprotofl.engines.local.host import Executor, Task
from refprotofl.engines.local.logs import ClientLogs
from refprotofl.engines.local.store import Location, prepare_blobs, prepare_states, remove_others, sync_states


class LocalEngine:
    """Names the file of a client's state in each task, so that any process can answer for any client.

    `records` are those of the last committed round, `kept` by round those that a run may roll back to. Files in
    `folder` that none of them names are removed; then `start` starts the executor.
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
        self._deadline: float | None = None
        self._logs = ClientLogs(folder.parent)
        prepare_states(folder)
        prepare_blobs(folder)
        remove_others(folder, self._named())
        self._executor = start()

    def map(self, requests: Iterable[Request], deadline: float | None) -> Iterator[Result]:
        self._deadline = deadline
        tasks = (Task(one.client, one.round, self._newest.get(one.client, Location()), one) for one in requests)
        for task, outcome in self._executor.run(tasks, self.info.max_in_flight, deadline):
            if outcome.location is not None:
                self._newest[task.client] = outcome.location
                self._moved.add(task.client)
            yield outcome.result

    def discard(self, client: int) -> None:
        self._executor.forget(client)
        self._newest[client] = self._committed.get(client, Location())
        self._moved.discard(client)

    def settle(self, round: int) -> dict[int, Record]:
        self._executor.forget()
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
        """Yield the records of the last round, and of those that a run may roll back to."""
        return chain(self._records.values(), *(records.values() for records in self._kept.values()))

    def explain(self, client: int) -> str:
        return self._logs.last(client)

    def close(self) -> None:
        self._executor.close()

    def _merge(self, round: int, clients: list[int]) -> None:
        """Write each state that has loose changes into one file."""
        tasks = (Task(client, round, self._newest[client]) for client in clients)
        for task, outcome in self._executor.run(tasks, self.info.max_in_flight, self._deadline):
            if outcome.location is None:
                error, trouble = STOPS.get(outcome.result.kind, RunError), outcome.result.trouble
                raise error(f"Round {round}, client {task.client}: {trouble or 'its state was lost'}")
            self._newest[task.client] = outcome.location
