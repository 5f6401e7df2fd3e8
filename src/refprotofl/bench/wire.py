"""How many bytes the index code takes for some masks, beside the least possible and beside plain codes."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from refprotofl.wire.indices import decode_indices, describe, encode_indices
from refprotofl.wire.reader import Reader

Mask = NDArray[np.bool_]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class CodedMask:
    """One mask: what its indices take, in bytes, and how long coding them takes, in milliseconds."""

    name: str
    size: int
    marked: int
    bound_bytes: float  # log2 C(size, marked) / 8: the least that a uniformly random mask can take
    code_bytes: int
    ratio: float | None  # code_bytes / bound_bytes; None where the bound is zero
    variant: str
    bitmap_bytes: int
    uint32_bytes: int
    encode_ms: float
    decode_ms: float


def code_table(masks: Mapping[str, Mask], repeats: int = 5) -> list[CodedMask]:
    """A row for each mask; times are medians of `repeats`."""
    return [_measure(name, mask, repeats) for name, mask in masks.items()]


def uniform_masks(
    sizes: Sequence[int] = (66_954, 267_786),
    shares: Sequence[float] = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5),
    seed: int = 0,
) -> dict[str, Mask]:
    """Masks with a share of all coordinates marked at random."""
    masks: dict[str, Mask] = {}
    for size in sizes:
        for share in shares:
            generator = np.random.default_rng([seed, size, round(share * 1_000_000)])
            mask = np.zeros(size, bool)
            mask[generator.choice(size, round(share * size), replace=False)] = True
            masks[f"uniform {size} {share:.1%}"] = mask
    return masks


def bound_bytes(size: int, marked: int) -> float:
    """log2 of the number of masks with so many marks, in bytes."""
    nats = math.lgamma(size + 1) - math.lgamma(marked + 1) - math.lgamma(size - marked + 1)
    return max(nats, 0.0) / math.log(2) / 8


def _measure(name: str, mask: Mask, repeats: int) -> CodedMask:
    indices = np.flatnonzero(mask).astype(np.int64)
    code, encode_ms = timed(lambda: encode_indices(indices, mask.size), repeats)
    decoded, decode_ms = timed(lambda: decode_indices(Reader(code), mask.size, indices.size), repeats)
    if not np.array_equal(decoded, indices):
        raise AssertionError(f"the mask {name!r} did not survive its code")
    bound = bound_bytes(mask.size, indices.size)
    return CodedMask(
        name=name,
        size=mask.size,
        marked=indices.size,
        bound_bytes=bound,
        code_bytes=len(code),
        ratio=len(code) / bound if bound else None,
        variant=describe(code),
        bitmap_bytes=-(-mask.size // 8),
        uint32_bytes=4 * indices.size,
        encode_ms=encode_ms,
        decode_ms=decode_ms,
    )


def timed(work: Callable[[], _Result], repeats: int) -> tuple[_Result, float]:
    """What the work returns, and the median of its times in milliseconds."""
    times = []
    for _ in range(max(repeats, 1)):
        start = time.perf_counter()
        result = work()
        times.append(1000 * (time.perf_counter() - start))
    return result, median(times)
