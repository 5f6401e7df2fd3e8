"""Class-balanced draws: limits, the split of a set that has none, and the public set.

The public set is held out of the training split before the partition among clients.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import InputError, stream
from refprotofl.data.dataset import Indices, Labels


def shuffled_classes(labels: Labels, num_classes: int, generator: np.random.Generator) -> list[Indices]:
    """Return the positions of each class in random order; prefixes of it are nested draws."""
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(labels, minlength=num_classes))[:-1])


def level(sizes: NDArray[np.int64], total: int, first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return shares of `total`, as equal as the sizes allow; the remainder goes to the classes in `first`."""
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
    """Return `total` sorted positions with classes as equal as possible; all of them if there are fewer."""
    if total >= len(labels):
        return np.arange(len(labels))
    first = generator.permutation(num_classes)
    classes = shuffled_classes(labels, num_classes, generator)
    shares = level(np.bincount(labels, minlength=num_classes), total, first)
    return np.sort(np.concatenate([members[:share] for members, share in zip(classes, shares, strict=True)]))


def stratified_split(
    labels: Labels, num_classes: int, test_share: float, generator: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return train and test positions; every class keeps at least one training sample."""
    train, test = [], []
    for members in shuffled_classes(labels, num_classes, generator):
        held_out = min(round(len(members) * test_share), max(0, len(members) - 1))
        test.append(members[:held_out])
        train.append(members[held_out:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def default_per_class(num_classes: int) -> int:
    return 50 if num_classes <= 10 else 10


def covered_classes(num_classes: int, coverage: float, classes: Sequence[int] | None, seed: int) -> tuple[int, ...]:
    """Return the public set's classes, sorted: those given, or the first of a seeded permutation."""
    if classes is not None:
        if wrong := [number for number in classes if not 0 <= number < num_classes]:
            raise InputError(
                f"public.classes = {list(classes)}: there is no class {wrong[0]}, only 0 to {num_classes - 1}."
            )
        return tuple(sorted(set(classes)))
    if not 0 <= coverage <= 1:
        raise InputError(f"public.coverage = {coverage}: it must be in 0 to 1.")
    permutation = stream(seed, "public/classes").permutation(num_classes)
    return tuple(sorted(int(number) for number in permutation[: round(coverage * num_classes)]))


def draw_public(
    labels: Labels, class_names: Sequence[str], per_class: int | None, classes: Sequence[int], seed: int
) -> Indices:
    """Return sorted positions of `per_class` samples of each class; at least one of each stays private."""
    num_classes = len(class_names)
    wanted = default_per_class(num_classes) if per_class is None else per_class
    if wanted < 0:
        raise InputError(f"public.per-class = {wanted}: it must be 0 or more.")
    if not classes or not wanted:
        return np.empty(0, np.int64)
    sizes = np.bincount(labels, minlength=num_classes)
    scarcest = min(classes, key=lambda number: int(sizes[number]))
    if wanted >= sizes[scarcest]:
        chosen = f"public.per-class = {wanted}" + (" (the default)" if per_class is None else "")
        raise InputError(
            f"{chosen}: class {class_names[scarcest]!r} has {sizes[scarcest]} training samples, "
            f"and at least one must stay private; use {max(0, int(sizes[scarcest]) - 1)} or fewer, "
            "or raise train-limit."
        )
    # Shuffling all classes, covered or not, makes a smaller public set a part of a larger one.
    members = shuffled_classes(labels, num_classes, stream(seed, "public/images"))
    return np.sort(np.concatenate([members[number][:wanted] for number in classes]))


def draw_from_own(
    labels: Labels, class_names: Sequence[str], per_class: int | None, classes: Sequence[int], seed: int
) -> tuple[Indices, tuple[int, ...]]:
    """Return positions in a separate public set, all of which may be used, and the classes that it covers.

    Without `per_class` it is the size of the scarcest class, up to the default. A class without an image is not
    covered.
    """
    sizes = np.bincount(labels, minlength=len(class_names))
    covered = tuple(number for number in classes if sizes[number])
    fewest = min((int(sizes[number]) for number in covered), default=0)
    wanted = min(fewest, default_per_class(len(class_names))) if per_class is None else per_class
    if not wanted or not covered:
        return np.empty(0, np.int64), ()
    if wanted > fewest:
        scarcest = min(covered, key=lambda number: int(sizes[number]))
        raise InputError(
            f"public.per-class = {wanted}: public.dataset has {fewest} samples of class {class_names[scarcest]!r}; use "
            f"{fewest} or fewer."
        )
    members = shuffled_classes(labels, len(class_names), stream(seed, "public/images"))
    return np.sort(np.concatenate([members[number][:wanted] for number in covered])), covered
