"""Test data with each client's own class mix: what the `own` protocol evaluates on."""

import numpy as np
from numpy.typing import NDArray

from refprotofl.basics.streams import stream
from refprotofl.data.dataset import Indices, Labels
from refprotofl.data.draws import shuffled_classes
from refprotofl.data.partitions import group


def split_like_training(test_labels: Labels, class_counts: NDArray[np.int64], seed: int) -> list[Indices]:
    """Positions in `test_labels` of every client, sorted.

    Each class goes to the clients in proportion to their training samples of it, `class_counts` (clients, C).
    A test sample of a class that any client holds has one owner, those of other classes have none.
    """
    clients, num_classes = class_counts.shape
    nobody = clients
    owners = np.full(len(test_labels), nobody, np.int64)
    members = shuffled_classes(test_labels, num_classes, stream(seed, "own-tests"))
    for number, places in enumerate(members):
        if class_counts[:, number].any():
            shares = largest_remainder(class_counts[:, number], len(places))
            owners[places] = np.repeat(np.arange(clients), shares)
    return group(owners, clients + 1)[:clients]


def largest_remainder(weights: NDArray[np.int64], seats: int) -> NDArray[np.int64]:
    """Whole shares of `seats` in proportion to the weights; equal remainders favour the lower index."""
    exact = weights * seats  # integers throughout, so that no rounding decides
    shares = exact // weights.sum()
    remainders = exact % weights.sum()
    first = np.argsort(-remainders, kind="stable")
    shares[first[: seats - int(shares.sum())]] += 1
    return np.asarray(shares)
