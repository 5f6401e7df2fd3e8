"""The geometric median of whole changes (Pillutla et al. 2022), by Weiszfeld's iteration, smoothed."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods.aggregators.mean import Mean
from refprotofl.methods.base.aggregation import Aggregator, Upload, at_common_progress, within

BLOCK = 1 << 22  # values that are laid out at a time
STEPS = 1000  # of Weiszfeld's iteration, at most
NEAR = 1e-6  # share of the median norm that replaces shorter distances, by which Weiszfeld divides
TINY = 1e-150  # a distance whose inverse does not overflow
CONVERGED = 1e-10  # relative change of the weights at which it ends: a far vector's weight is small, but counts


class GeometricMedian(Aggregator):
    """The vector with the least sum of distances to the clients' whole changes, unweighted.

    It bears fewer hostile clients than half of the round's. A change is 0 where it was not sent, whatever `normalise`
    says: this is a median of whole vectors, and what few send moves little. It is a mean of the changes, whose weights
    are found from their products alone.
    """

    holds = True
    by_samples = False

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        even = at_common_progress(uploads)
        weights = weiszfeld(_products(size, even)).tolist() if even else []
        weighted = (replace(upload, weight=weight) for upload, weight in zip(even, weights, strict=True))
        return Mean("participants").aggregate(size, weighted)


def weiszfeld(products: np.ndarray) -> np.ndarray:
    """Return the weights (n,) with which vectors make up their geometric median, from their inner products (n, n).

    It begins at the origin, not at the mean: there a vector of any length has a weight that fits its length, and no
    product of a long one swallows the digits of the others.
    """
    norms = np.sqrt(products.diagonal())
    near = max(NEAR * float(np.median(norms)), TINY)  # where most are 0, so is their geometric median
    shares = _inverse(norms, near)
    for _ in range(STEPS):
        along = products @ shares
        distances = np.sqrt(np.maximum(shares @ along - 2 * along + products.diagonal(), 0.0))
        closer = _inverse(distances, near)
        if float(np.abs(closer / shares - 1).max()) < CONVERGED:
            return closer
        shares = closer
    return shares


def _inverse(distances: np.ndarray, near: float) -> np.ndarray:
    """Return weights (n,) inversely proportional to the distances (n,) that add up to 1."""
    inverse = 1 / np.maximum(distances, near)
    shares: np.ndarray = inverse / inverse.sum()
    return shares


def _products(size: int, uploads: Sequence[Upload]) -> np.ndarray:
    """Return the inner products (n, n) of the whole changes, 0 where unsent."""
    products = np.zeros((len(uploads), len(uploads)))
    width = max(1, BLOCK // max(1, len(uploads)))
    for start in range(0, size, width):
        changes = np.zeros((len(uploads), min(width, size - start)))
        for row, upload in zip(changes, uploads, strict=True):
            indices, change = within(upload, start, start + len(row))
            row[indices] = change
        block = torch.from_numpy(changes)  # its product keeps to the run's one thread
        products += (block @ block.T).numpy()
    return products
