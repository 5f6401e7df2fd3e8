"""The check of a phase: decoded answers are compared with each other before anything is made of them.

What counts is the size of the numbers that a method will use (a change of the shared vector, class prototypes), not of
the fields that carry them: a code of a few bytes may stand for any number. Each answer's size is set against the median
of the phase, which fewer than half of the clients cannot move out of the others' range.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from statistics import median
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from refprotofl.wire import Sparse

FEWEST = 3  # sizes that it takes to call one of them usual
OUTWEIGHING = 0.3  # share of max-step that is left to a client which outweighs all others together
LARGER = 10.0  # how many times as large a client's answer may be for its many steps: it says itself how many
SUSPECT = 0.1  # share of max-step above which a client is suspected where a round fails

Sizes = dict[str, dict[int, float]]  # by part of the content, then by client


@runtime_checkable
class Measured(Protocol):
    """Decoded content that states the sizes to compare by itself."""

    def sizes(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class Standing:
    """How far a client's answer is from the usual size, in the part in which it is farthest."""

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
