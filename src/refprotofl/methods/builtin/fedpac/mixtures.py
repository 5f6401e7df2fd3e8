"""Which heads a client is best served by: the weights of FedPAC's classifier combination.

A head learned elsewhere brings the other client's bias, every head brings the variance of what it was learned from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.methods import erpa
from refprotofl.methods.common.prototypes import ClassMeans

LARGEST_SPREAD = 1e6  # times the median: a larger one would leave no digits to tell the others' apart

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class HeadStatistics:
    """What a client tells of its embeddings so that the server can weigh its head."""

    means: Tensor  # (C, m), h: class means times the class's share of the samples
    spread: float  # v: variance around them, divided by the number of samples


def head_statistics(embeddings: Tensor, labels: Tensor, num_classes: int) -> tuple[HeadStatistics, ClassMeans]:
    """(n, m), (n,) -> the statistics, and the class means that they are made of."""
    prototypes, counts = erpa.class_prototypes(embeddings, labels, num_classes)
    means = prototypes.to(torch.float64) * (counts / len(labels)).unsqueeze(1)
    squared = embeddings.to(torch.float64).square().sum(dim=1).mean()
    spread = float((squared - means.square().sum()).clamp(min=0)) / len(labels)
    return HeadStatistics(means.to(embeddings.dtype), spread), ClassMeans(prototypes, counts)


def mixture_weights(statistics: Sequence[HeadStatistics]) -> Tensor:
    """(clients, clients) float64: row i minimises sum_j w_j^2 v_j + |sum_j w_j (h_i - h_j)|^2 over convex weights."""
    means = np.stack([one.means.to(torch.float64).flatten().numpy() for one in statistics])  # (clients, C * m)
    told = np.array([one.spread for one in statistics])
    spreads = np.diag(np.minimum(told, LARGEST_SPREAD * float(np.median(told)) or np.inf))
    rows = [least_on_simplex(spreads + (apart := own - means) @ apart.T) for own in means]
    return torch.from_numpy(np.stack(rows))


def least_on_simplex(matrix: Numbers) -> Numbers:
    """The w >= 0 with sum 1 that minimises w' M w, for a positive semidefinite M.

    Without the sum, but with (sum - 1)^2 added, it is a non-negative least-squares problem. The solution is the same up
    to its length: along any direction w with q = w' M w the least value is q / (q + 1), which grows with q.
    """
    from scipy.optimize import nnls  # here, because importing it takes half a second

    size = len(matrix)
    scale = np.trace(matrix) / size
    if scale == 0:
        return np.full(size, 1 / size)
    values, vectors = np.linalg.eigh(matrix / scale)
    root = np.sqrt(values.clip(min=0))[:, None] * vectors.T  # root' root = M / scale
    stacked = np.vstack([root, np.ones(size)])
    weights, _ = nnls(stacked, np.append(np.zeros(size), 1.0), maxiter=100 * size)
    shares: Numbers = weights / weights.sum()
    return shares
