"""Dealing samples out to clients: pure functions over labels.

A partition is held as the owner of every sample, so that all of it is array work: ten thousand clients
cost no more Python than ten.

Natural clients: each keeps the samples that are its own, and those with too few are left out.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from refprotofl.core.errors import InputError
from refprotofl.core.streams import stream
from refprotofl.core.units import counted
from refprotofl.data.dataset import Dataset, Indices, Labels, Owners

Drawn = Literal["dirichlet", "iid", "shards"]

MOST_REDRAWS = 50
SHARDS_PER_CLIENT = 2  # as in McMahan et al. 2017


@dataclass(frozen=True)
class PartitionNotes:
    """How the partition came about, for the record."""

    kind: Drawn | Literal["natural"]
    redraws: int = 0  # draws thrown away because a client had too few samples
    moved: int = 0  # samples moved from the largest clients because redrawing did not help
    left_out: dict[str, int] = field(default_factory=dict)  # natural clients with too few samples, and how many


def partition(
    kind: Drawn, labels: Labels, clients: int, alpha: float, min_size: int, seed: int
) -> tuple[list[Indices], PartitionNotes]:
    """Positions in `labels` of every client, sorted; every position has exactly one owner."""
    least = max(1, min_size)
    if clients < 1:
        raise InputError(f"clients = {clients}: there must be 1 at least.")
    if clients * least > len(labels):
        raise InputError(
            f"clients = {clients} with min-size = {min_size} need {clients * least:,} samples, but only "
            f"{len(labels):,} are left for clients: take at most {counted(len(labels) // least, 'client')}"
            + (f", or min-size = {len(labels) // clients} or less." if len(labels) >= clients else ".")
        )
    generator = stream(seed, "partition")
    redraws = 0
    if kind == "dirichlet":
        owners, redraws = draw_dirichlet(labels, clients, alpha, least, generator)
    elif kind == "iid":
        owners = draw_iid(len(labels), clients, generator)
    else:
        owners = draw_shards(labels, clients, generator)
    owners, moved = repair(owners, clients, least, generator)
    return group(owners, clients), PartitionNotes(kind, redraws, moved)


def draw_dirichlet(
    labels: Labels, clients: int, alpha: float, least: int, generator: np.random.Generator
) -> tuple[Owners, int]:
    """Each class is spread over the clients by its own Dir(alpha) draw, redrawn while a client has too few.

    Gives the number of redraws too; after the last allowed one a client may still have too few.
    """
    if not (alpha > 0 and math.isfinite(alpha)):
        raise InputError(f"alpha = {alpha}: the Dirichlet draw needs a finite number above 0.")
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


def dirichlet(alpha: float, rows: int, clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Rows of symmetric Dirichlet draws that never underflow to NaN, however small alpha is.

    Gamma(alpha) is Gamma(alpha + 1) * U^(1/alpha). In logarithms, and with the row's largest term taken off
    before dividing by alpha, the largest stays finite and only what is truly negligible becomes 0.
    """
    log_gamma = np.log(np.maximum(generator.gamma(alpha + 1, size=(rows, clients)), np.finfo(float).tiny))
    log_uniform = np.log1p(-generator.random((rows, clients)))
    with np.errstate(over="ignore"):
        log_weights = log_gamma + (log_uniform - log_uniform.max(axis=1, keepdims=True)) / alpha
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _cut(proportions: NDArray[np.float64], class_sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole counts by cutting each class at its cumulative proportions."""
    edges = np.floor(np.cumsum(proportions, axis=1) * class_sizes[:, None]).astype(np.int64)
    edges = np.minimum(edges, class_sizes[:, None])
    edges[:, -1] = class_sizes  # the proportions may sum to just below 1
    return np.diff(edges, axis=1, prepend=0)


def draw_iid(samples: int, clients: int, generator: np.random.Generator) -> Owners:
    return np.asarray(generator.permutation(np.arange(samples) % clients))


def draw_shards(labels: Labels, clients: int, generator: np.random.Generator) -> Owners:
    """Samples sorted by label are cut into equal shards; every client gets two of them at random."""
    shards = SHARDS_PER_CLIENT * clients
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    shard_of_place = np.arange(len(labels)) * shards // len(labels)
    owner_of_shard = generator.permutation(np.arange(shards) % clients)
    owners = np.empty(len(labels), np.int64)
    owners[order] = owner_of_shard[shard_of_place]
    return owners


def repair(owners: Owners, clients: int, least: int, generator: np.random.Generator) -> tuple[Owners, int]:
    """Move random samples from the largest clients to those below `least`; gives the number moved."""
    sizes = np.bincount(owners, minlength=clients)
    lacking = np.maximum(least - sizes, 0)
    moved = int(lacking.sum())
    if not moved:
        return owners, 0
    gives = _shave(sizes, moved)
    order = generator.permutation(len(owners))
    order = order[np.argsort(owners[order], kind="stable")]  # by client, shuffled within
    place = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # position within the client
    taken = generator.permutation(order[place < gives[owners[order]]])
    repaired = owners.copy()
    repaired[taken] = np.repeat(np.arange(clients), lacking)
    return repaired, moved


def _shave(sizes: NDArray[np.int64], amount: int) -> NDArray[np.int64]:
    """What each gives if `amount` is taken one by one from whoever is largest then."""
    low, high = 0, int(sizes.max())
    while high - low > 1:  # the lowest level that still yields no more than the amount is `high`
        middle = (low + high) // 2
        low, high = (low, middle) if np.maximum(sizes - middle, 0).sum() <= amount else (middle, high)
    gives = np.maximum(sizes - high, 0)
    at_level = np.flatnonzero(sizes >= high)
    gives[at_level[: amount - int(gives.sum())]] += 1
    return gives


def group(owners: Owners, clients: int) -> list[Indices]:
    """The sorted positions of every client."""
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owners, minlength=clients))[:-1])


def keep_owners(dataset: Dataset, private: Indices, min_size: int) -> tuple[list[int], list[Indices], PartitionNotes]:
    """The clients that have `min_size` samples or more among `private`, by their number in the data set, and theirs."""
    assert dataset.train_owners is not None, "the data set does not tell its clients"
    shares = group(dataset.train_owners[private], len(dataset.client_names))
    kept = [number for number, share in enumerate(shares) if len(share) >= min_size]
    sizes = {name: len(share) for name, share in zip(dataset.client_names, shares, strict=True)}
    if not kept:
        raise InputError(
            f"min-size = {min_size}: the largest client, {max(sizes, key=lambda name: sizes[name])!r}, has "
            f"{max(sizes.values())} samples after train-limit and public set; take a smaller min-size."
        )
    left_out = {name: sizes[name] for number, name in enumerate(dataset.client_names) if number not in set(kept)}
    return kept, [private[shares[number]] for number in kept], PartitionNotes("natural", left_out=left_out)


def own_tests(dataset: Dataset, kept: list[int], test: Indices) -> list[Indices]:
    """Of the evaluated test samples those of every client that is kept; those of others are nobody's."""
    assert dataset.test_owners is not None, "the data set does not tell whose its test samples are"
    shares = group(dataset.test_owners[test], len(dataset.client_names))
    return [np.sort(test[shares[number]]) for number in kept]


def left_out_note(notes: PartitionNotes, min_size: int) -> tuple[str, ...]:
    """A sentence on who does not take part."""
    if not notes.left_out:
        return ()
    shown = [f"{name} ({count})" for name, count in list(notes.left_out.items())[:10]]
    more = f" and {len(notes.left_out) - 10} more" if len(notes.left_out) > 10 else ""
    return (f"Left out, with fewer than min-size = {min_size} samples: {', '.join(shown)}{more}.",)
