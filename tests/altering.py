"""An engine whose results a test alters on their way to the server."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from refprotofl.engines.engine import Engine, Request, Result

Alter = Callable[[Request, Result], Result]


class Altered:
    """Another engine, but each result is what `alter` makes of it."""

    def __init__(self, engine: Engine, alter: Alter) -> None:
        self._engine, self._alter = engine, alter
        self.settle, self.committed, self.close = engine.settle, engine.committed, engine.close
        self.discard, self.explain, self.info = engine.discard, engine.explain, engine.info

    def map(self, requests: Iterable[Request], deadline: float | None) -> Iterator[Result]:
        asked = deque[Request]()

        def noted() -> Iterator[Request]:
            for request in requests:
                asked.append(request)
                yield request

        for result in self._engine.map(noted(), deadline):
            yield self._alter(asked.popleft(), result)
