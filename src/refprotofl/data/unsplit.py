"""Samples as a source without a split has them, and their split into training and test samples.

A fifth is held out: of each client's samples of each class, by the seed; with an order the latest of each client; with
groups, such as the windows of a recording, whole groups.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, InputError, stream
from refprotofl.core.inputs import missing_rows
from refprotofl.data.array_files import regular_array
from refprotofl.data.arrays import ROWS
from refprotofl.data.draws import stratified_split
from refprotofl.data.reading import Roles

INPUTS, LABELS = "x", "y"
SPLITS = {"train": False, "training": False, "test": True, "testing": True}
HELD_OUT = 0.2
PART = 65_536  # rows that are moved at a time

Array = NDArray[Any]
Codes = NDArray[np.int64]  # (N,)


@dataclass(frozen=True, eq=False)
class Unsplit:
    """Labelled samples in the order of their source."""

    inputs: Array  # (N, …)
    labels: Array  # (N,) whole numbers or names
    clients: Array | None = None  # (N,) names
    test: NDArray[np.bool_] | None = None  # (N,) where the source has a split
    groups: Codes | None = None  # samples of one group stay on one side
    order: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    reusable: bool = False  # the inputs' memory may be overwritten
    rows: Codes | None = None  # (N,) positions in the source, where these are not all of its samples


def unsplit_from_arrays(arrays: Mapping[str, Any], roles: Roles, origin: str) -> Unsplit:
    """Return the samples of arrays that have no split: x and y, or as the experiment names them, and more by role."""

    def named(role: str, usual: str = "") -> Array | None:
        name = getattr(roles, role) or usual
        if name and name not in arrays:
            key = f"data.{role} = {name!r}: " if getattr(roles, role) else ""
            raise InputError(f"{key}{origin} has no array {name!r}, only {', '.join(arrays)}.")
        return regular_array(arrays[name], name, origin) if name else None

    inputs, labels = named("text", INPUTS), named("label", LABELS)
    clients = named("client", "client" if "client" in arrays else "")
    split, groups, order = (named(role) for role in ("split", "group", "order"))
    assert inputs is not None
    assert labels is not None
    for name, values in (("y", labels), ("client", clients), ("split", split), ("group", groups), ("order", order)):
        if values is not None and (values.ndim != 1 or len(values) != len(inputs)):
            raise DataError(f"{origin}: {name} has shape {values.shape}; give one value per sample, ({len(inputs)},).")
    if roles.missing == "error" and len(gaps := missing_rows(inputs)):
        more = f", as have {len(gaps) - 1:,} more" if len(gaps) > 1 else ""
        raise DataError(
            f"{origin}: sample {gaps[0]} has a missing value (NaN){more}; fill it in, or set data.missing = "
            '"drop" or "mean".'
        )
    return Unsplit(
        inputs,
        labels,
        None if clients is None else _as_names(clients),
        None if split is None else _as_sides(split, origin),
        None if groups is None else _numbered(groups),
        None if order is None else as_order(order, origin),
    )


def _as_names(clients: Array) -> Array:
    return clients if clients.dtype.kind in "uiUS" else clients.astype(str)


def _as_sides(split: Array, origin: str) -> NDArray[np.bool_]:
    """Return which samples are for testing."""
    names = np.char.lower(split.astype(str))
    if len(wrong := np.flatnonzero(~np.isin(names, list(SPLITS)))):
        raise DataError(f"{origin}: split has {str(split[wrong[0]])!r} for sample {wrong[0]}; write train or test.")
    return np.isin(names, [name for name, test in SPLITS.items() if test])


def as_order(values: Array | Sequence[str], origin: str) -> NDArray[np.float64]:
    """Return numbers or dates (N,) as numbers."""
    for kind in (np.float64, "datetime64[us]"):
        try:
            return np.asarray(values).astype(kind).astype(np.float64)
        except ValueError:
            continue
    raise DataError(f"{origin}: data.order needs numbers, or dates such as 2024-05-31 or 2024-05-31T12:00.")


def split_arrays(found: Unsplit, origin: str, seed: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return both splits as the arrays of a .npz file, and notes."""
    if found.test is None:
        found = _held_out(found, origin, seed)
    assert found.test is not None
    if found.test.all() or not found.test.any():
        raise DataError(f"{origin}: there are no {'train' if found.test.any() else 'test'} rows (data.split).")
    test, train = np.flatnonzero(found.test), np.flatnonzero(~found.test)
    arrays: dict[str, Any] = {
        "x_test": found.inputs[test],
        "y_test": found.labels[test],
        "y_train": found.labels[train],
    }
    if found.clients is not None:
        arrays |= {"client": found.clients[train], "client_test": found.clients[test]}
    for name, values in (("group", found.groups), ("order", found.order)):
        if values is not None:
            arrays[name] = values[train]
    for split, rows in (("train", train), ("test", test)):
        arrays[ROWS[split]] = rows if found.rows is None else found.rows[rows]
    return {**arrays, "x_train": _compacted(found, train)}, found.notes


def _held_out(found: Unsplit, origin: str, seed: int) -> Unsplit:
    """Return the samples with a fifth for testing, without test samples of a class that no training sample has."""
    labels, clients = _numbered(found.labels), _numbered(found.clients, len(found.labels))
    draw = stream(seed, "unsplit")
    test = held_out_rows(labels, clients, found.groups, found.order, HELD_OUT, draw, origin)
    dropped = test & ~np.isin(labels, labels[~test])
    if not (test & ~dropped).any():
        raise DataError(f"{origin}: too few samples to hold out a fifth of each class for testing: add some.")
    if not dropped.any():
        return replace(found, test=test)
    names = ", ".join(sorted({str(label) for label in found.labels[dropped].tolist()})[:5])
    note = f"{origin}: {dropped.sum()} test samples left out, as no training sample has their class ({names})."
    kept = np.flatnonzero(~dropped)
    return replace(
        found,
        inputs=_compacted(found, kept),
        labels=found.labels[kept],
        clients=None if found.clients is None else found.clients[kept],
        test=test[kept],
        groups=None if found.groups is None else found.groups[kept],
        order=None if found.order is None else found.order[kept],
        rows=kept if found.rows is None else found.rows[kept],
        notes=(*found.notes, note),
    )


def _compacted(found: Unsplit, rows: Codes) -> Array:
    """Return the inputs of these sorted rows; if their memory may be used again, no second array is made."""
    values = found.inputs
    if not found.reusable:
        return values[rows]
    for start in range(0, len(rows), PART):
        part = rows[start : start + PART]
        values[start : start + len(part)] = values[part]
    return values[: len(rows)]


def held_out_rows(
    labels: Codes,
    clients: Codes,
    groups: Codes | None,
    order: NDArray[np.float64] | None,
    share: float,
    generator: np.random.Generator,
    origin: str,
) -> NDArray[np.bool_]:
    """Return which samples (N,) are held out; every client, and every class of a client, keeps at least one."""
    held = np.zeros(len(labels), bool)
    if groups is not None:
        return _whole_groups(labels, clients, groups, order, share, generator, origin)
    if order is not None:
        for rows in _members(clients):
            latest = rows[np.argsort(order[rows], kind="stable")]
            held[latest[len(rows) - min(round(share * len(rows)), len(rows) - 1) :]] = True
        return held
    strata = np.unique(clients * (labels.max() + 1) + labels, return_inverse=True)[1]
    _, test = stratified_split(strata, int(strata.max()) + 1, share, generator)
    held[test] = True
    return held


def _whole_groups(
    labels: Codes,
    clients: Codes,
    groups: Codes,
    order: NDArray[np.float64] | None,
    share: float,
    generator: np.random.Generator,
    origin: str,
) -> NDArray[np.bool_]:
    """Hold out whole groups of each client: the latest, or random ones by class, as near to the share as can be.

    What the groups of one class have too much or too little is made up for by the client's next class. The classes of
    a client come in random order, so that none with few large groups is always on the same side.
    """
    found, first, unit = np.unique(groups, return_index=True, return_inverse=True)
    owners = clients[first]
    if len(shared := np.flatnonzero(owners[unit] != clients)):
        raise DataError(
            f"{origin}: the group of row {shared[0] + 1} (data.group) has samples of two clients, so that no client "
            "could be split without the other: give each group one client."
        )
    sizes = np.bincount(unit)
    if order is None:
        rank = generator.permutation(len(found)).astype(float)
        strata = owners * (labels.max() + 1) + _most_frequent(labels, unit, len(found))
    else:
        rank = np.full(len(found), np.inf)
        np.minimum.at(rank, unit, order)
        strata = owners
    held = np.zeros(len(found), bool)
    missing = np.zeros(int(owners.max()) + 1)  # by client: samples that its classes so far hold out too few
    for members in sorted(_members(strata), key=lambda members: -rank[members].max()):
        in_turn = members[np.argsort(-rank[members], kind="stable")]
        target = missing[owners[members[0]]] + share * float(sizes[members].sum())
        taken = _nearest(in_turn, sizes, target, skip=order is None)
        held[taken] = True
        missing[owners[members[0]]] = target - sizes[taken].sum()
    for members in _members(owners):
        if not held[members].any() and len(members) > 1:
            chosen = members[np.argmax(rank[members])] if order is not None else members[np.argmin(sizes[members])]
            held[chosen] = True
    return held[unit]


def _nearest(members: Codes, sizes: Codes, target: float, *, skip: bool) -> list[int]:
    """Return members, in turn, with about this many samples; never all. `skip` passes over one too large."""
    taken: list[int] = []
    total = 0.0
    for member in members.tolist():
        if len(taken) < len(members) - 1 and abs(total + sizes[member] - target) < abs(total - target):
            taken.append(member)
            total += float(sizes[member])
        elif not skip:
            break
    return taken


def _most_frequent(labels: Codes, unit: Codes, units: int) -> Codes:
    """Return the most frequent label of each unit, the smaller one of two."""
    pairs, counts = np.unique(np.stack([unit, labels]), axis=1, return_counts=True)
    order = np.lexsort((-pairs[1], counts, pairs[0]))
    last = np.searchsorted(pairs[0][order], np.arange(units), side="right") - 1
    return np.asarray(pairs[1][order][last])


def _members(codes: Codes) -> Iterator[Codes]:
    """Yield the positions of each code, in the order of the codes."""
    order = np.argsort(codes, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def _numbered(values: Array | None, length: int = 0) -> Codes:
    """Return values as numbers 0.. in their sorted order; all 0 without values."""
    return np.zeros(length, np.int64) if values is None else np.unique(values, return_inverse=True)[1]
