"""Class-balanced draws: train and test limits, the public set and the split of a set that has none."""

import numpy as np
from numpy.typing import NDArray

from refprotofl.data.dataset import Indices, Labels


def shuffled_classes(labels: Labels, num_classes: int, generator: np.random.Generator) -> list[Indices]:
    """For every class its positions in random order; prefixes of it are nested draws."""
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(labels, minlength=num_classes))[:-1])


def level(sizes: NDArray[np.int64], total: int, first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Shares of `total`, as equal as the sizes allow; what does not divide goes to the classes in `first`."""
    shares = np.zeros_like(sizes)
    total = min(total, int(sizes.sum()))
    while (left := total - int(shares.sum())) > 0:
        open_classes = first[shares[first] < sizes[first]]
        step = left // len(open_classes)
        if step == 0:
            shares[open_classes[:left]] += 1
        else:
            shares[open_classes] = np.minimum(shares[open_classes] + step, sizes[open_classes])
    return shares


def balanced_draw(labels: Labels, num_classes: int, total: int, generator: np.random.Generator) -> Indices:
    """`total` positions with the classes as equal as they can be, sorted; all of them if there are fewer."""
    if total >= len(labels):
        return np.arange(len(labels))
    first = generator.permutation(num_classes)
    classes = shuffled_classes(labels, num_classes, generator)
    shares = level(np.bincount(labels, minlength=num_classes), total, first)
    return np.sort(np.concatenate([members[:share] for members, share in zip(classes, shares, strict=True)]))


def stratified_split(
    labels: Labels, num_classes: int, test_share: float, generator: np.random.Generator
) -> tuple[Indices, Indices]:
    """Train and test positions; every class keeps at least one training sample."""
    train, test = [], []
    for members in shuffled_classes(labels, num_classes, generator):
        held_out = min(round(len(members) * test_share), max(0, len(members) - 1))
        test.append(members[:held_out])
        train.append(members[held_out:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
