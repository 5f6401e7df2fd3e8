"""Where every client's newest state lies, so that any process can go on with any client."""

from collections.abc import Mapping

from refprotofl.basics.state import Kept
from refprotofl.engines.host import FATAL, SETTLE, Engine, Task
from refprotofl.errors import RunError


class Whereabouts:
    """Committed states and those of the present round, which exist only once their client's answer was taken."""

    def __init__(self, committed: Mapping[int, Mapping[str, str]]) -> None:
        self._kept = {client: Kept(**record, checked=False) for client, record in committed.items()}
        self._moved: set[int] = set()

    def of(self, client: int) -> Kept:
        return self._kept.get(client, Kept())

    def move(self, client: int, kept: Kept) -> None:
        self._kept[client] = kept
        self._moved.add(client)

    def settle(self, engine: Engine, round: int) -> dict[int, dict[str, str]]:
        """File and digest of each client whose state has moved since the last time."""
        engine.forget()
        moved = sorted(self._moved)
        loose = [client for client in moved if self._kept[client].changes]
        tickets = [engine.submit(Task(client, SETTLE, round, kept=self._kept[client])) for client in loose]
        for client, ticket in zip(loose, tickets, strict=True):
            result = engine.result(ticket)
            if result.kept is None:
                raise FATAL.get(result.fatal or "", RunError)(f"Round {round}, client {client}: {result.error}")
            self._kept[client] = result.kept
        self._moved.clear()
        return {client: {"file": self._kept[client].file, "digest": self._kept[client].digest} for client in moved}
