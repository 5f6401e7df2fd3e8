"""The check of a phase: decoded answers are compared with each other before a method sees any of them.

The sizes compared are those of the numbers that a method will use (a change of the shared vector, class prototypes),
not of the fields that carry them: a code of a few bytes may represent any number. Each answer's size is compared with
the median of the phase, which fewer than half of the clients cannot move out of the others' range.

Until all answers are in, decoded ones are held in memory up to a limit. Above that the answers go to a temporary file,
encoded, and are decoded once more when their turn comes: memory does not grow with the number of clients.
"""

import math
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from statistics import median
from typing import IO, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from refprotofl.core import MachineError
from refprotofl.methods.base.cohort import Cohort
from refprotofl.methods.base.schema import LOST, Refused, is_lost
from refprotofl.wire import Message, Sparse, decode, encode

FEWEST = 3  # sizes that it takes to call one of them usual
OUTWEIGHING = 0.3  # share of max-step for a client that outweighs all others together
LARGER = 10.0  # the most that many steps may enlarge a client's answer: it states their number itself
SUSPECT = 0.1  # share of max-step above which a client is suspected where a round fails

Sizes = dict[str, dict[int, float]]  # by part of the content, then by client


@runtime_checkable
class Measured(Protocol):
    """Decoded content that knows the sizes to compare."""

    def sizes(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class Standing:
    """The largest ratio of a client's answer to the usual size, over the parts of the answer."""

    part: str
    ratio: float
    limit: float  # that the ratio must not exceed

    @property
    def is_outlier(self) -> bool:
        return not self.ratio <= self.limit


def sizes(content: object) -> dict[str, float]:
    """Return the Euclidean norm of each floating-point tensor in the content, by its path in it."""
    return dict(_walk(content, ""))


def _walk(content: object, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(content, Measured):
        yield from ((_join(path, name), size) for name, size in content.sizes().items())
        return
    value = content.values if isinstance(content, Sparse) else content
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield path, norm(value)
        return
    for name, part in _parts(value):
        yield from _walk(part, _join(path, name))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _parts(content: object) -> Iterator[tuple[str, object]]:
    if is_dataclass(content) and not isinstance(content, type):
        yield from ((field.name, getattr(content, field.name)) for field in fields(content))
    elif isinstance(content, Mapping):
        yield from ((str(name), part) for name, part in content.items())
    elif isinstance(content, tuple | list):
        yield from ((str(number), part) for number, part in enumerate(content))


def norm(value: Tensor) -> float:
    """Return the Euclidean norm, in float64: no float32 is too large to be squared there."""
    return float(torch.linalg.vector_norm(value, dtype=torch.float64))


def longest_row(*rows: Tensor) -> float:
    """Return the norm of the longest row of matrices (n, m): one class among many is not diluted by the others."""
    lengths = [torch.linalg.vector_norm(one, dim=1, dtype=torch.float64) for one in rows if len(one)]
    return float(torch.cat(lengths).max()) if lengths else 0.0


def compare(found: Sizes, max_step: float, steps: Callable[[int], int], floor: float = 0.0) -> dict[int, Standing]:
    """Return each client's standing among the answers of a phase.

    `steps` is the number of a client's training steps: a client that takes more may go farther. `floor` is a size that
    is usual whatever this phase's answers are.
    """
    standings: dict[int, Standing] = {}
    for part, by_client in found.items():
        for client, standing in _compare_part(part, by_client, max_step, steps, floor):
            if client not in standings or _excess(standing) > _excess(standings[client]):
                standings[client] = standing
    return standings


def _excess(standing: Standing) -> float:
    return standing.ratio / standing.limit


def _compare_part(
    part: str, by_client: Mapping[int, float], max_step: float, steps: Callable[[int], int], floor: float
) -> Iterator[tuple[int, Standing]]:
    known = [size for size in by_client.values() if size > 0]
    if len(known) < FEWEST:  # 0 says nothing about how large others may be
        return
    usual, total = max(median(known), floor), math.fsum(known)
    middle = median(steps(client) for client in by_client)
    for client, size in by_client.items():
        allowed = usual * min(LARGER, max(1.0, steps(client) / middle))
        outweighs = size > total - size
        yield client, Standing(part, size / allowed, max_step * (OUTWEIGHING if outweighs else 1.0))


IN_MEMORY = 1 << 28  # bytes of decoded content

Content = TypeVar("Content")


class Held(Generic[Content]):
    """Decoded answers in the order in which they came. `read` reads a decoded message once more."""

    def __init__(self, read: Callable[[int, Message], Content], in_memory: int | None = None) -> None:
        self._read = read
        self._left = IN_MEMORY if in_memory is None else in_memory
        self._file: IO[bytes] | None = None
        self._held: deque[tuple[int, Callable[[], Content], int]] = deque()  # client, its content, bytes in the file
        self._seen: set[int] = set()  # tensors that all have in common count once

    def add(self, client: int, answer: Message, content: Content) -> None:
        size = self._size_of(content)
        if self._file is None and size <= self._left:
            self._left -= size
            self._held.append((client, lambda: content, 0))
        else:
            length = self._spill(encode(answer))
            self._held.append((client, lambda: self._reread(client, length), length))

    def take(self, clients: Iterable[int]) -> Iterator[tuple[int, Content]]:
        """Yield the content of these clients' answers, and release it."""
        wanted = set(clients)
        if self._file is not None:
            self._file.seek(0)
        while self._held:
            client, content, length = self._held.popleft()
            if client in wanted:
                yield client, content()
            elif self._file is not None:
                self._file.seek(length, os.SEEK_CUR)
        if self._file is not None:
            self._file.close()

    def _reread(self, client: int, length: int) -> Content:
        assert self._file is not None
        return self._read(client, decode(self._file.read(length)))

    def _spill(self, data: bytes) -> int:
        try:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 - open until all is taken
            return self._file.write(data)
        except OSError as problem:
            raise MachineError(
                f"The answers of a phase take more than memory is used for, and the temporary folder does not take "
                f"them: {problem}. Set TMPDIR to a folder with more space."
            ) from None

    def _size_of(self, content: object) -> int:
        if isinstance(content, Tensor):
            if content.data_ptr() in self._seen:
                return 0
            self._seen.add(content.data_ptr())
            return content.nbytes
        if isinstance(content, Sparse):
            return content.indices.nbytes + content.values.nbytes
        if is_dataclass(content) and not isinstance(content, type):
            return sum(self._size_of(getattr(content, field.name)) for field in fields(content))
        if isinstance(content, Mapping):
            return sum(self._size_of(part) for part in content.values())
        return sum(self._size_of(part) for part in content) if isinstance(content, tuple | list) else 0


class Screening:
    """The check of a round's answers, one phase after the other.

    `compares`: clients' answers are compared with each other. Where a client's presence is protected they are not: if
    another client's answer decided whether one counts, that would reveal more than the noised sum does. There each
    answer is shortened to a fixed norm instead.
    `steps`: of a client's epoch. `usual`: a size that is usual for these clients, whatever their answers are.
    """

    def __init__(
        self, max_step: float, compares: bool, steps: Callable[[int], int], usual: Callable[[Iterable[int]], float]
    ) -> None:
        self.max_step = max_step
        self.compares = compares
        self.round = 0  # of the last request
        self.standings: dict[int, Standing] = {}  # each client's farthest from the usual in that round
        self.compared: set[str] = set()  # the verbs whose answers were compared in it
        self._steps = steps
        self._usual = usual

    def begin(self, round: int) -> None:
        """Forget the last round, if this is another."""
        if round != self.round:
            self.round, self.standings, self.compared = round, {}, set()

    def screen(
        self,
        cohort: Cohort,
        verb: str,
        answers: Iterable[tuple[int, Message]],
        read: Callable[[int, Message], Content],
    ) -> Iterator[tuple[int, Content]]:
        """Yield the content of the accepted answers, once all of the phase are in and no outlier is among them."""
        if not self.compares:
            for client, answer in answers:
                yield from accepted(cohort, client, verb, answer, read)
            return
        found: Sizes = {}
        held = Held[Content](read)
        for client, answer in answers:
            for _, content in accepted(cohort, client, verb, answer, read):
                held.add(client, answer, content)
                for part, size in sizes(content).items():
                    found.setdefault(part, {})[client] = size
        self._drop_outliers(cohort, verb, found)
        yield from held.take(cohort.clients)

    def _drop_outliers(self, cohort: Cohort, verb: str, found: Sizes) -> None:
        if found:  # content of a form that has no sizes is left to the check before the commit
            self.compared.add(verb)
        usual = self._usual({client for by_client in found.values() for client in by_client})
        for client, standing in compare(found, self.max_step, self._steps, usual).items():
            if standing.is_outlier:
                cohort.drop(client, f"{verb}: {self._outlying(standing)}", "outlier")
            elif client not in self.standings or standing.ratio > self.standings[client].ratio:
                self.standings[client] = standing

    def _outlying(self, standing: Standing) -> str:
        part = f"its {standing.part.rpartition('.')[2]}" if not standing.part[-1:].isdigit() else "its answer"
        outweighs = standing.limit < self.max_step
        return (
            f"{part if standing.part else 'its answer'} is {standing.ratio:.3g} times as large as the median of the "
            f"clients', above the limit of {standing.limit:g} (max-step = {self.max_step:g}"
            + (", 30 % of it for an answer that outweighs all others)" if outweighs else ")")
        )


def accepted(
    cohort: Cohort, client: int, verb: str, answer: Message, read: Callable[[int, Message], Content]
) -> Iterator[tuple[int, Content]]:
    """Yield the answer's content, or nothing: a client that sends something else than asked for is dropped."""
    try:
        if is_lost(answer):
            raise Refused("its store is lost and did not come back")
        if LOST in answer:
            raise Refused("it says that its store is lost, and something else too")
        content = read(client, answer)
        if not all(map(math.isfinite, sizes(content).values())):
            raise Refused("it has numbers that are not finite")
    except KeyError as field:
        cohort.drop(client, f"{verb}: the field {field} is missing")
    except Refused as problem:
        cohort.drop(client, f"{verb}: {problem}")
    except Exception as problem:  # an unforeseen way to break the reader costs its sender the turn
        cohort.drop(client, f"{verb}: it cannot be read ({type(problem).__name__})")
    else:
        yield client, content
