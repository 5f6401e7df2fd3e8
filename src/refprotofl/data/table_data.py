"""Tables as samples: columns of numbers or a column of texts, with the columns of classes, clients and the split."""

import difflib
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, InputError, counted
from refprotofl.data.array_files import Budget
from refprotofl.data.delimited_files import SUFFIXES as DELIMITED
from refprotofl.data.delimited_files import Block, Column, TableFile, open_delimited
from refprotofl.data.parquet_files import open_parquet
from refprotofl.data.reading import Roles
from refprotofl.data.text_files import as_texts
from refprotofl.data.unsplit import SPLITS, Unsplit, as_order

SUFFIXES = (*DELIMITED, ".parquet")
USUAL_LABELS = ("label", "labels", "class", "target", "y")
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
NO_NAME = ("", "?")  # a class may be called none
LARGEST = float(np.finfo(np.float32).max)


def is_table(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def open_table(path: Path, named: Sequence[str] = ()) -> AbstractContextManager[TableFile]:
    return open_parquet(path) if path.suffix.lower() == ".parquet" else open_delimited(path, named)


def read_table(path: Path, roles: Roles, kind: str = "auto") -> Unsplit:
    """Read a table with the columns that the experiment names; all others are features, or unused next to texts.

    Of the kind `series` a row is one channel's steps, of `image` a square of pixels.
    """
    with open_table(path, roles.named) as table:
        used = find_columns(table.names, roles, str(path))
        rows = _Rows(path, table, used, roles.missing, used.named)
        for block in table.blocks:
            rows.add(block)
    found = rows.finished()
    if used.text is not None or kind in ("auto", "vector"):
        return found
    return replace(found, inputs=_shaped(found.inputs, kind, str(path)), feature_names=())


def read_features(path: Path, roles: Roles, names: Sequence[str], kind: str) -> tuple[NDArray[Any], list[str] | None]:
    """Read the samples of a table for a model with features of these names, and the labels if all rows have one."""
    with open_table(path, (*roles.named, *names)) as table:
        label = table.names.index(roles.label) if roles.label in table.names else None
        text = _position(table.names, roles.text, "data.text", str(path)) if roles.text else None
        taken = find_features(table.names, names, str(path)) if names else _all_but(table.names, roles)
        used = Columns(table.names, label, None, None, None, None, text, () if text is not None else taken)
        complete = () if text is None else (text,)
        rows = _Rows(path, table, used, "mean" if roles.missing == "mean" else "error", complete)
        for block in table.blocks:
            rows.add(block)
    inputs, labels = rows.unlabelled()
    return inputs if text is not None or kind == "vector" else _shaped(inputs, kind, str(path)), labels


def find_features(there: Sequence[str], wanted: Sequence[str], origin: str) -> tuple[int, ...]:
    """Return the positions of the columns with these names, in this order."""
    if lacking := [name for name in wanted if name not in there]:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise DataError(
            f"{origin} has no column {lacking[0]!r}{more}, which the model takes. Its columns: {_some(there)}."
        )
    return tuple(there.index(name) for name in wanted)


def _all_but(there: Sequence[str], roles: Roles) -> tuple[int, ...]:
    return tuple(number for number, name in enumerate(there) if name not in roles.named)


def _shaped(rows: NDArray[Any], kind: str, origin: str) -> NDArray[Any]:
    """Return rows (N, features) as samples of another kind than vectors."""
    if kind == "series":
        return rows[:, None]
    side = math.isqrt(rows.shape[1])
    if kind == "image" and side * side == rows.shape[1]:
        return rows.reshape(-1, side, side)
    square = ", which is no square" if kind == "image" else ""
    raise InputError(f"data.kind = {kind!r}: {origin} has {counted(rows.shape[1], 'number')} in a row{square}.")


@dataclass(frozen=True)
class Columns:
    """The positions of the columns in a table, by their role."""

    names: tuple[str, ...]
    label: int | None
    client: int | None
    split: int | None
    order: int | None
    group: int | None
    text: int | None
    features: tuple[int, ...]

    @property
    def named(self) -> list[int]:
        """Return the columns in which no value may be missing."""
        every = (self.label, self.client, self.split, self.order, self.group, self.text)
        return [position for position in every if position is not None]


def find_columns(names: tuple[str, ...], roles: Roles, origin: str) -> Columns:
    """Return the columns by role; raise InputError, naming the key, for one that the table lacks."""

    def position(role: str) -> int | None:
        name = getattr(roles, role)
        return _position(names, name, f"data.{role}", origin) if name else None

    label = position("label")
    if label is None:
        label = _guess_label(names, origin)
    client, split, order, group, text = (position(role) for role in ("client", "split", "order", "group", "text"))
    taken = {
        label,
        client,
        split,
        order,
        group,
        *(_position(names, one, "data.ignore", origin) for one in roles.ignore),
    }
    features = () if text is not None else tuple(number for number in range(len(names)) if number not in taken)
    if text is None and not features:
        raise InputError(f"{origin}: no column is left for the features. Its columns: {_some(names)}.")
    return Columns(names, label, client, split, order, group, text, features)


def _position(names: tuple[str, ...], name: str, key: str, origin: str) -> int:
    if name in names:
        return names.index(name)
    near = difflib.get_close_matches(name, names, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{key} = {name!r}: {origin} has no such column.{guess} Its columns: {_some(names)}.")


def _guess_label(names: tuple[str, ...], origin: str) -> int:
    usual = [number for number, name in enumerate(names) if name.lower() in USUAL_LABELS]
    if len(usual) == 1:
        return usual[0]
    raise InputError(f"{origin}: set data.label to the column with the classes. Its columns: {_some(names)}.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


class _Names:
    """Names of samples, one number a sample: a string for each would take 50 bytes."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._parts: list[NDArray[np.int32]] = []

    def add(self, names: Sequence[str]) -> None:
        known = self._numbers
        self._parts.append(np.array([known.setdefault(name, len(known)) for name in names], np.int32))

    def codes(self) -> NDArray[np.int64]:
        return np.concatenate(self._parts).astype(np.int64)

    def names(self) -> list[str]:
        return list(self._numbers)

    def values(self) -> NDArray[np.str_]:
        return np.array(self.names())[self.codes()]


class _Rows:
    """The samples read so far; the numbers go into memory that is allocated once."""

    def __init__(self, path: Path, table: TableFile, used: Columns, missing: str, complete: Sequence[int]) -> None:
        self._path, self._used, self._missing, self._complete = path, used, missing, complete
        self._budget = Budget(path.stat().st_size)
        self._count = self._dropped = 0
        self._features = self._allocated(table.expected_rows)
        self._texts: list[str] = []
        self._labels, self._clients, self._groups = _Names(), _Names(), _Names()
        self._test: list[NDArray[np.bool_]] = []
        self._rows: list[NDArray[np.int64]] = []  # positions in the file
        self._order: list[str] = []

    def add(self, block: Block) -> None:
        used, kept = self._used, np.ones(len(block), bool)
        numbers = self._numbers(block, kept)
        for position in self._complete:
            self._check_present(block, position, kept)
        rows = np.flatnonzero(kept)
        self._rows.append(self._count + self._dropped + rows)
        self._dropped += len(block) - len(rows)
        self._store(numbers[rows])
        roles = ((self._labels, used.label), (self._clients, used.client), (self._groups, used.group))
        for names, column in roles:
            if column is not None:
                names.add(_texts(block.columns[column], rows))
        if used.split is not None:
            self._test.append(self._sides(block, used.split, rows))
        for texts, column in ((self._order, used.order), (self._texts, used.text)):
            if column is not None:
                texts += _texts(block.columns[column], rows)

    def finished(self) -> Unsplit:
        if not self._count:
            raise DataError(f"{self._path} has no rows" + (" without missing values." if self._dropped else "."))
        used, inputs = self._used, self._features[: self._count]
        assert used.label is not None
        notes = () if used.text is not None else self._checked(inputs)
        return Unsplit(
            inputs if used.text is None else as_texts(self._texts, str(self._path)),
            as_labels(self._labels, f"{self._path}, column {used.names[used.label]!r}"),
            self._clients.values() if used.client is not None else None,
            np.concatenate(self._test) if self._test else None,
            self._groups.codes() if used.group is not None else None,
            as_order(self._order, f"{self._path}, column {used.names[used.order]!r}")
            if used.order is not None
            else None,
            notes + self._drop_note(),
            tuple(used.names[position] for position in used.features),
            reusable=True,
            rows=np.concatenate(self._rows) if self._dropped else None,
        )

    def unlabelled(self) -> tuple[NDArray[Any], list[str] | None]:
        """Return the inputs (N, …), and the labels as they are written; None if there are none or one is missing."""
        if not self._count:
            raise DataError(f"{self._path} has no rows.")
        labels = None if self._used.label is None else self._labels.values().tolist()
        if labels is not None and any(label in NO_NAME for label in labels):
            labels = None
        return (
            self._features[: self._count] if self._used.text is None else as_texts(self._texts, str(self._path))
        ), labels

    def _allocated(self, rows: int) -> NDArray[np.float32]:
        width = len(self._used.features)
        self._budget.spend(rows * width * 4, f"{self._path} with {rows:,} rows of {counted(width, 'number')}")
        return np.empty((rows, width), np.float32)

    def _store(self, numbers: NDArray[np.float64]) -> None:
        end = self._count + len(numbers)
        if end > len(self._features):
            larger = np.empty((end + len(self._features) // 4, self._features.shape[1]), np.float32)
            larger[: self._count] = self._features[: self._count]
            self._features = larger
        self._features[self._count : end] = numbers
        self._count = end

    def _numbers(self, block: Block, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the features (rows, F) of a block; rows that are dropped for a missing one are taken out of `kept`."""
        numbers = np.empty((len(block), len(self._used.features)), np.float64)
        for column, position in enumerate(self._used.features):
            numbers[:, column] = self._as_numbers(block, position)
        if (wrong := np.abs(numbers) > LARGEST).any():
            row, column = np.argwhere(wrong)[0]
            self._refuse(block, row, self._used.features[column], "is infinite or beyond float32: replace it")
        gaps = np.isnan(numbers)
        if self._missing == "error" and gaps.any():
            row, column = np.argwhere(gaps)[0]
            self._refuse_gap(block, int(row), self._used.features[column])
        if self._missing == "drop":
            kept &= ~gaps.any(axis=1)
        return numbers

    def _as_numbers(self, block: Block, position: int) -> Column | list[float]:
        column = block.columns[position]
        if isinstance(column, np.ndarray):
            return column
        try:
            return list(map(float, column))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return [self._number(block, row, position, value) for row, value in enumerate(column)]

    def _number(self, block: Block, row: int, position: int, value: str | None) -> float:
        if value is None or value.strip().lower() in MISSING:
            return float("nan")
        try:
            return float(value)
        except ValueError:
            remedy = (
                "write it with a decimal point"
                if _has_decimal_comma(value)
                else ("correct it, or leave the column out with data.ignore")
            )
            return self._refuse(block, row, position, f"is not a number: {remedy}")

    def _check_present(self, block: Block, position: int, kept: NDArray[np.bool_]) -> None:
        """Refuse or drop rows in which a class, client or other name is missing."""
        column = block.columns[position]
        if isinstance(column, np.ndarray):
            gaps = np.isnan(column)
        else:
            none = ("",) if position == self._used.text else NO_NAME  # a text may be a question mark
            gaps = np.array([value is None or value.strip() in none for value in column])
        if self._missing == "drop":
            kept &= ~gaps
        elif gaps.any():
            place = self._place(block, int(gaps.argmax()), position)
            raise DataError(f'{place} is empty: fill it in, or leave such rows out with data.missing = "drop".')

    def _sides(self, block: Block, position: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        names = _texts(block.columns[position], rows)
        for row, name in zip(rows.tolist(), names, strict=True):
            if name.lower() not in SPLITS:
                self._refuse(block, row, position, "is neither train nor test: write one of the two")
        return np.array([SPLITS[name.lower()] for name in names], bool)

    def _checked(self, inputs: NDArray[np.float32]) -> tuple[str, ...]:
        """Return a note on constant columns; refuse a column without any value."""
        constant = []
        for column, position in enumerate(self._used.features):
            name, low, high = self._used.names[position], *_range(inputs[:, column])
            if np.isnan(low):
                raise DataError(f"{self._path}, column {name!r} has no values: leave it out with data.ignore.")
            if low == high:
                constant.append(name)
        if not constant:
            return ()
        verb = "is constant and does" if len(constant) == 1 else "are constant and do"
        return (f"{self._path}: {_some(constant)} {verb} not distinguish classes (data.ignore leaves columns out).",)

    def _drop_note(self) -> tuple[str, ...]:
        if not self._dropped:
            return ()
        return (
            f"{self._path}: {counted(self._dropped, 'row')} with a missing value left out, {self._count:,} are used.",
        )

    def _place(self, block: Block, row: int, position: int) -> str:
        return f"{self._path}, {block.place(row)}, column {self._used.names[position]!r}"

    def _refuse(self, block: Block, row: int, position: int, problem: str) -> NoReturn:
        value = block.columns[position][row]
        raise DataError(f"{self._place(block, row, position)}: {str(value)[:60]!r} {problem}.")

    def _refuse_gap(self, block: Block, row: int, position: int) -> NoReturn:
        raise DataError(
            f'{self._place(block, row, position)} has no value: fill it in, or set data.missing = "drop" to leave '
            'such rows out, or "mean" for the mean of the column.'
        )


def _texts(column: Column, rows: NDArray[np.int64]) -> list[str]:
    """Return these rows of a column as texts; whole numbers are written without a fraction."""
    if isinstance(column, np.ndarray):
        return [str(int(one)) if one == int(one) else str(one) for one in column[rows].tolist()]
    return [str(column[row]).strip() for row in rows.tolist()]


def as_labels(labels: _Names, origin: str) -> NDArray[Any]:
    """Return labels (N,) as whole numbers if all are, else as names; fractions are measurements, not classes."""
    names = labels.names()
    try:
        values = [float(name) for name in names]
    except ValueError:
        return labels.values()
    if fraction := next((name for name, value in zip(names, values, strict=True) if value != int(value)), None):
        raise DataError(
            f"{origin}: the label {fraction!r} is a fraction, so that this is a measurement, not a class: name another "
            "column in data.label, or write the range that the number falls in as a class."
        )
    return np.array([int(value) for value in values], np.int64)[labels.codes()]


def _range(values: NDArray[np.float32]) -> tuple[float, float]:
    """Return the smallest and the largest value; NaN if all are missing."""
    known = values[~np.isnan(values)]
    return (float(known.min()), float(known.max())) if len(known) else (float("nan"), float("nan"))


def _has_decimal_comma(value: str) -> bool:
    whole, comma, fraction = value.strip().lstrip("+-").partition(",")
    return bool(comma) and whole.isdecimal() and fraction.isdecimal()
