"""The one verb between a server and its clients."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from refprotofl.wire import Message


class Cohort(Protocol):
    """The clients of one round, wherever they run."""

    round: int

    @property
    def clients(self) -> Sequence[int]:
        """Those still taking part, in id order."""

    def ask(
        self,
        verb: str,
        message: Message | Callable[[int], Message],
        *,
        to: Iterable[int] | None = None,
        once: bool = False,
    ) -> Iterator[tuple[int, Message]]:
        """Answers in client order; who failed or sent something unreadable is absent and out of the round.

        `once` marks traffic that does not recur every round.
        """

    def drop(self, client: int, reason: str) -> None: ...

    def sent(self, client: int) -> int:
        """Bytes that this client's answers took in this round so far, one-off traffic apart."""
