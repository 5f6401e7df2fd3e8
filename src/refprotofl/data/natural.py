"""Natural clients: each keeps the samples that are its own, and those with too few are left out."""

import numpy as np

from refprotofl.data.dataset import Dataset, Indices
from refprotofl.data.partitions import PartitionNotes, group
from refprotofl.errors import InputError


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
