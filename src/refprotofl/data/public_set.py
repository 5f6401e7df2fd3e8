"""The public set: a class-balanced hold-out of the training split, taken before anything goes to clients."""

from collections.abc import Sequence

import numpy as np

from refprotofl.core.errors import InputError
from refprotofl.core.streams import stream
from refprotofl.data.dataset import Indices, Labels
from refprotofl.data.sampling import shuffled_classes


def default_per_class(num_classes: int) -> int:
    return 50 if num_classes <= 10 else 10


def covered_classes(num_classes: int, coverage: float, classes: Sequence[int] | None, seed: int) -> tuple[int, ...]:
    """The public set's classes, sorted: those given, or the first of a seeded permutation."""
    if classes is not None:
        if wrong := [number for number in classes if not 0 <= number < num_classes]:
            raise InputError(
                f"public.classes = {list(classes)}: there is no class {wrong[0]}, only 0 to {num_classes - 1}."
            )
        return tuple(sorted(set(classes)))
    if not 0 <= coverage <= 1:
        raise InputError(f"public.coverage = {coverage}: it must lie in 0 to 1.")
    permutation = stream(seed, "public/classes").permutation(num_classes)
    return tuple(sorted(int(number) for number in permutation[: round(coverage * num_classes)]))


def draw_public(
    labels: Labels, class_names: Sequence[str], per_class: int | None, classes: Sequence[int], seed: int
) -> Indices:
    """Sorted positions of `per_class` samples of each of the classes; one of each at least stays private."""
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
            f"{chosen}: class {class_names[scarcest]!r} has {sizes[scarcest]} training images, "
            f"and one at least must stay private; take {max(0, int(sizes[scarcest]) - 1)} or fewer, "
            "or raise train-limit."
        )
    # Shuffling all classes, covered or not, makes a smaller public set a part of a larger one.
    members = shuffled_classes(labels, num_classes, stream(seed, "public/images"))
    return np.sort(np.concatenate([members[number][:wanted] for number in classes]))


def draw_from_own(
    labels: Labels, class_names: Sequence[str], per_class: int | None, classes: Sequence[int], seed: int
) -> tuple[Indices, tuple[int, ...]]:
    """The same from a public set of the user's own, all of which may be taken; and the classes that it covers.

    Without `per_class` it is as many as the scarcest class has, up to the default. A class that it has no image of is
    not covered.
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
            f"public.per-class = {wanted}: public.dataset has {fewest} images of class {class_names[scarcest]!r}; take "
            f"{fewest} or fewer."
        )
    members = shuffled_classes(labels, len(class_names), stream(seed, "public/images"))
    return np.sort(np.concatenate([members[number][:wanted] for number in covered])), covered
