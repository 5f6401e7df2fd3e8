"""Partitions of samples among clients: pure functions over labels.

A partition is represented by the owner of every sample, so that everything is array work: ten thousand clients cost no
more Python than ten. Natural clients keep their own samples; those with too few are left out.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import InputError, counted, stream
from refprotofl.data.dataset import Dataset, Indices, Labels, Owners

Drawn = Literal["dirichlet", "iid", "shards", "classes-per-client", "quantity", "feature-shift"]

MOST_REDRAWS = 50
SHARDS_PER_CLIENT = 2  # as in McMahan et al. 2017


@dataclass(frozen=True)
class PartitionNotes:
    """The notes on how a partition was made, for the record."""

    kind: Drawn | Literal["natural"]
    redraws: int = 0  # draws thrown away because a client had too few samples
    moved: int = 0  # samples moved from the largest clients because redrawing did not help
    left_out: dict[str, int] = field(default_factory=dict)  # natural clients with too few samples, and how many
    shift: tuple[float, ...] = ()  # of "feature-shift": the standard deviation of each client's noise


def partition(
    kind: Drawn, labels: Labels, clients: int, alpha: float, min_size: int, seed: int, classes_per_client: int = 2
) -> tuple[list[Indices], PartitionNotes]:
    """Return the sorted positions in `labels` of every client; every position has exactly one owner."""
    least = max(1, min_size)
    if clients < 1:
        raise InputError(f"clients = {clients}: there must be at least 1.")
    if clients * least > len(labels):
        raise InputError(
            f"clients = {clients} with min-size = {min_size} need {clients * least:,} samples, but only "
            f"{len(labels):,} are left for clients: use at most {counted(len(labels) // least, 'client')}"
            + (f", or min-size = {len(labels) // clients} or less." if len(labels) >= clients else ".")
        )
    generator = stream(seed, "partition")
    redraws = 0
    if kind == "dirichlet":
        owners, redraws = draw_dirichlet(labels, clients, alpha, least, generator)
    elif kind == "quantity":
        owners, redraws = draw_quantity(len(labels), clients, alpha, least, generator)
    elif kind == "classes-per-client":
        owners = draw_classes(labels, clients, classes_per_client, generator)
        _check_classes(owners, clients, least, classes_per_client)
    elif kind == "shards":
        owners = draw_shards(labels, clients, generator)
    else:
        owners = draw_iid(len(labels), clients, generator)
    owners, moved = repair(owners, clients, least, generator)
    return group(owners, clients), PartitionNotes(kind, redraws, moved)


def draw_dirichlet(
    labels: Labels, clients: int, alpha: float, least: int, generator: np.random.Generator
) -> tuple[Owners, int]:
    """Spread each class over the clients by its own Dir(alpha) draw, redrawn while a client has too few samples.

    Return the owners and the number of redraws; after the last allowed one a client may have too few all the same.
    """
    _check_alpha(alpha)
    class_sizes = np.bincount(labels)
    redraws = 0
    counts = _cut(dirichlet(alpha, len(class_sizes), clients, generator), class_sizes)  # (C, clients)
    while counts.sum(axis=0).min() < least and redraws < MOST_REDRAWS:
        redraws += 1
        counts = _cut(dirichlet(alpha, len(class_sizes), clients, generator), class_sizes)
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # by class, shuffled within
    owners = np.empty(len(labels), np.int64)
    owners[order] = np.repeat(np.tile(np.arange(clients), len(class_sizes)), counts.ravel())
    return owners, redraws


def _check_alpha(alpha: float) -> None:
    if not (alpha > 0 and math.isfinite(alpha)):
        raise InputError(f"alpha = {alpha}: the Dirichlet draw needs a finite number above 0.")


def dirichlet(alpha: float, rows: int, clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return rows of symmetric Dirichlet draws that never underflow to NaN, however small alpha is.

    Gamma(alpha) is Gamma(alpha + 1) * U^(1/alpha). In logarithms, and with the row's largest term subtracted before
    dividing by alpha, the largest stays finite and only negligible terms become 0.
    """
    log_gamma = np.log(np.maximum(generator.gamma(alpha + 1, size=(rows, clients)), np.finfo(float).tiny))
    log_uniform = np.log1p(-generator.random((rows, clients)))
    with np.errstate(over="ignore"):
        log_weights = log_gamma + (log_uniform - log_uniform.max(axis=1, keepdims=True)) / alpha
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _cut(proportions: NDArray[np.float64], class_sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whole counts by cutting each class at its cumulative proportions."""
    edges = np.floor(np.cumsum(proportions, axis=1) * class_sizes[:, None]).astype(np.int64)
    edges = np.minimum(edges, class_sizes[:, None])
    edges[:, -1] = class_sizes  # the proportions may sum to just below 1
    return np.diff(edges, axis=1, prepend=0)


def draw_iid(samples: int, clients: int, generator: np.random.Generator) -> Owners:
    return np.asarray(generator.permutation(np.arange(samples) % clients))


def draw_quantity(
    samples: int, clients: int, alpha: float, least: int, generator: np.random.Generator
) -> tuple[Owners, int]:
    """Draw the clients' sizes from one Dir(alpha), redrawn while one is too small, and their samples uniformly.

    This is the quantity skew of Li et al. 2022; return the owners and the number of redraws.
    """
    _check_alpha(alpha)
    whole = np.array([samples])
    redraws = 0
    counts = _cut(dirichlet(alpha, 1, clients, generator), whole)[0]
    while counts.min() < least and redraws < MOST_REDRAWS:
        redraws += 1
        counts = _cut(dirichlet(alpha, 1, clients, generator), whole)[0]
    return generator.permutation(np.repeat(np.arange(clients), counts)), redraws


def draw_classes(labels: Labels, clients: int, each: int, generator: np.random.Generator) -> Owners:
    """Give every client `each` classes, and divide each class equally among the clients that have it.

    Clients choose in turn among the classes that the fewest clients have so far, ties at random, so that the numbers
    of clients of two classes differ by at most one.
    """
    present = np.unique(labels)
    if each > len(present):
        raise InputError(f"classes-per-client = {each}: the data have {len(present)} classes.")
    if each * clients < len(present):
        raise InputError(
            f"classes-per-client = {each}: {counted(clients, 'client')} cannot cover {len(present)} classes; use "
            f"{math.ceil(len(present) / clients)} or more, or more clients."
        )
    holders: list[list[int]] = [[] for _ in present]
    held = np.zeros(len(present), np.int64)
    for client in range(clients):
        for number in np.lexsort((generator.random(len(present)), held))[:each]:
            holders[number].append(client)
            held[number] += 1
    owners = np.empty(len(labels), np.int64)
    for label, having in zip(present, holders, strict=True):
        members = np.flatnonzero(labels == label)
        owners[generator.permutation(members)] = np.resize(generator.permutation(having), len(members))
    return owners


def _check_classes(owners: Owners, clients: int, least: int, each: int) -> None:
    """Refuse clients that are too small: the repair step would give them samples of further classes."""
    sizes = np.bincount(owners, minlength=clients)
    if (smallest := int(sizes.min())) < least:
        raise InputError(
            f"classes-per-client = {each}: client {int(sizes.argmin())} has {smallest} samples of its classes, fewer "
            f"than min-size = {least}: use min-size = {max(1, smallest)} or less, fewer clients, or more classes each."
        )


def draw_shards(labels: Labels, clients: int, generator: np.random.Generator) -> Owners:
    """Cut samples sorted by label into equal shards, and assign two of them at random to every client."""
    shards = SHARDS_PER_CLIENT * clients
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    shard_of_position = np.arange(len(labels)) * shards // len(labels)
    owner_of_shard = generator.permutation(np.arange(shards) % clients)
    owners = np.empty(len(labels), np.int64)
    owners[order] = owner_of_shard[shard_of_position]
    return owners


def repair(owners: Owners, clients: int, least: int, generator: np.random.Generator) -> tuple[Owners, int]:
    """Move random samples from the largest clients to those below `least`; return owners and the number moved."""
    sizes = np.bincount(owners, minlength=clients)
    lacking = np.maximum(least - sizes, 0)
    moved = int(lacking.sum())
    if not moved:
        return owners, 0
    gives = _taken_from_largest(sizes, moved)
    order = generator.permutation(len(owners))
    order = order[np.argsort(owners[order], kind="stable")]  # by client, shuffled within
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # position within the client
    taken = generator.permutation(order[rank < gives[owners[order]]])
    repaired = owners.copy()
    repaired[taken] = np.repeat(np.arange(clients), lacking)
    return repaired, moved


def _taken_from_largest(sizes: NDArray[np.int64], amount: int) -> NDArray[np.int64]:
    """Return what each client loses if `amount` samples are taken one by one from the client that is largest then."""
    low, high = 0, int(sizes.max())
    while high - low > 1:  # the lowest level that still yields no more than the amount is `high`
        middle = (low + high) // 2
        low, high = (low, middle) if np.maximum(sizes - middle, 0).sum() <= amount else (middle, high)
    gives = np.maximum(sizes - high, 0)
    at_level = np.flatnonzero(sizes >= high)
    gives[at_level[: amount - int(gives.sum())]] += 1
    return gives


def group(owners: Owners, clients: int) -> list[Indices]:
    """Return the sorted positions of every client."""
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owners, minlength=clients))[:-1])


def keep_owners(
    dataset: Dataset, private: Indices, key: str, least: int
) -> tuple[list[int], list[Indices], PartitionNotes]:
    """Return the numbers of the clients with at least `least` samples among `private`, and their samples."""
    assert dataset.train_owners is not None, "the data set has no clients"
    shares = group(dataset.train_owners[private], len(dataset.client_names))
    kept = [number for number, share in enumerate(shares) if len(share) >= least]
    sizes = {name: len(share) for name, share in zip(dataset.client_names, shares, strict=True)}
    if not kept:
        raise InputError(
            f"{key} = {least}: the largest client, {max(sizes, key=lambda name: sizes[name])!r}, has "
            f"{max(sizes.values())} samples after train-limit and public set; use a smaller {key}."
        )
    left_out = {name: sizes[name] for number, name in enumerate(dataset.client_names) if number not in set(kept)}
    return kept, [private[shares[number]] for number in kept], PartitionNotes("natural", left_out=left_out)


def own_tests(dataset: Dataset, kept: list[int], test: Indices) -> list[Indices]:
    """Return the evaluated test samples of every client that is kept; those of other clients have no owner."""
    assert dataset.test_owners is not None, "the data set does not assign test samples to clients"
    shares = group(dataset.test_owners[test], len(dataset.client_names))
    return [np.sort(test[shares[number]]) for number in kept]


def left_out_note(notes: PartitionNotes, key: str, least: int) -> tuple[str, ...]:
    """Return a sentence on the clients that do not take part."""
    if not notes.left_out:
        return ()
    shown = [f"{name} ({count})" for name, count in list(notes.left_out.items())[:10]]
    more = f" and {len(notes.left_out) - 10} more" if len(notes.left_out) > 10 else ""
    return (f"Clients left out, with fewer than {key} = {least} samples: {', '.join(shown)}{more}.",)
