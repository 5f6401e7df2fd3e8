"""The median of each coordinate (Yin et al. 2018)."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods.base.aggregation import Aggregator, Upload, at_common_progress, count_senders, within

BLOCK = 1 << 22  # values that are laid out and sorted at a time


class Median(Aggregator):
    """The median of each coordinate over its senders, unweighted.

    Fewer than half of them cannot take it out of the others' range. With `participants` it is scaled by the share of
    the round's clients that sent it, as the mean is.
    """

    holds = True
    by_samples = False
    needs_full_changes = True

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        senders = torch.zeros(size, dtype=torch.int64)
        even = list(count_senders(senders, at_common_progress(uploads)))
        update = np.full(size, -0.0)
        for start, ordered, counts in _by_coordinate(size, even, int(senders.max()) if size else 0):
            known = counts > 0
            update[start : start + len(counts)][known] = self.middle(ordered[known], counts[known])
        share = senders.numpy() / max(1, len(even)) if self.normalise == "participants" else 1.0
        return torch.from_numpy(np.where(senders > 0, update * share, -0.0))

    def middle(self, ordered: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the middle (coordinates,) of rows (coordinates, most senders): ascending, the first `counts` sent."""
        rows = np.arange(len(counts))
        middle: np.ndarray = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
        return middle


def _by_coordinate(size: int, uploads: Sequence[Upload], most: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield blocks of coordinates: their start, the ascending values (width, most), the numbers of senders (width,).

    `most` is how many senders a coordinate has at most; the rest of a row is infinite.
    """
    width = max(1, BLOCK // max(1, most))
    for start in range(0, size if most else 0, width):
        values = np.full((min(width, size - start), most), np.inf)
        counts = np.zeros(len(values), np.int64)
        for upload in uploads:
            indices, change = within(upload, start, start + len(values))
            values[indices, counts[indices]] = change
            counts[indices] += 1
        values.sort(axis=1)
        yield start, values, counts
