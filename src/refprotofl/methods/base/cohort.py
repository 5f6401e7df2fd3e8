"""The one verb between a server and its clients."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from refprotofl.core.errors import RunError
from refprotofl.wire import Message

Answer = TypeVar("Answer")


class Answers(Generic[Answer], Iterator[tuple[int, Answer]]):
    """Answers with their clients, as they come: a stream that can be gone through once.

    A second time it would be empty without a word, and a method would learn from nothing.
    """

    def __init__(self, verb: str, source: Iterator[tuple[int, Answer]]) -> None:
        self._verb = verb
        self._source = source
        self._over = False

    def __iter__(self) -> "Answers[Answer]":
        if self._over:
            raise RunError(
                f"The answers to {self._verb!r} were gone through before; they come once, as a stream: keep them with "
                f"answers = list(self.ask(cohort, {self._verb!r}, …)) to go through them again."
            )
        return self

    def __next__(self) -> tuple[int, Answer]:
        try:
            return next(self._source)
        except StopIteration:
            self._over = True
            raise


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
    ) -> Answers[Message]:
        """Answers in client order; who failed or sent something unreadable is absent and out of the round.

        `once` marks traffic that does not recur every round.
        """

    def drop(self, client: int, reason: str, code: str = "answer") -> None:
        """The client is out of the round, and on record; `code` is the kind of the reason."""

    def sent(self, client: int) -> int:
        """Bytes that this client's answers took in this round so far, one-off traffic apart."""
