"""A user's own arrays brought into one form: samples of one kind, class numbers with names, clients.

Every source of a user's own data ends here, with the same checks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError
from refprotofl.core.inputs import BadSample, InputKind, missing_rows
from refprotofl.data.array_files import MissingArrays, regular_array
from refprotofl.data.dataset import Dataset, Inputs, Labels, Owners
from refprotofl.data.reading import AS_IT_COMES, Reading
from refprotofl.inputs import IMAGE, NAMES, find_kind


def number_labels(
    train: NDArray[np.generic], test: NDArray[np.generic], names: Sequence[str] | None, origin: str
) -> tuple[Labels, Labels, tuple[str, ...]]:
    """Return train and test labels as class numbers 0..C-1, and the names of the classes.

    Classes are numbered in the sorted order of the train labels: 1, 2, 5 become 0, 1, 2. Their names are the original
    labels, or those in `names`, by original label.
    """
    train, test = checked_labels(train, "train", origin), checked_labels(test, "test", origin)
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise DataError(
            f"{origin}: train labels are {train.dtype} and test labels {test.dtype}; use one kind for both."
        )
    known = np.unique(train)
    if len(known) < 2:
        raise DataError(f"{origin}: all train labels are {known[0]}; at least two classes are needed.")
    if len(unknown := np.setdiff1d(test, known)):
        raise DataError(f"{origin}: the test labels {_some(unknown)} do not occur in train, so they cannot be learned.")
    if names is not None and train.dtype.kind != "U":
        if int(known[-1]) >= len(names):
            raise DataError(f"{origin}: there is a label {known[-1]}, but only {len(names)} class names.")
        class_names = tuple(str(names[int(label)]) for label in known)
    else:
        class_names = tuple(str(label) for label in known)
    return np.searchsorted(known, train), np.searchsorted(known, test), class_names


def checked_labels(labels: NDArray[Any], split: str, origin: str) -> NDArray[Any]:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(
            f"{origin}: the {split} labels have shape {labels.shape}; give one label per sample, shape (N,)."
        )
    if not len(labels):
        raise DataError(f"{origin}: there are no {split} labels.")
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "uiU":
        raise DataError(
            f"{origin}: the {split} labels have type {labels.dtype}; use whole numbers (astype('int64')) "
            "or names (astype(str))."
        )
    if labels.dtype.kind != "U" and (labels < 0).any():
        raise DataError(f"{origin}: the smallest {split} label is {labels.min()}; labels must not be negative.")
    return labels


def _some(values: NDArray[np.generic]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown + (f" and {len(values) - 5} more" if len(values) > 5 else "")


SPLIT_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
VOCABULARY = "vocabulary"  # of tokens: entry i is token i + 1
ROWS = {"train": "rows of x_train", "test": "rows of x_test"}  # positions (n,) in a source that had no split
KIND = "kind"  # of the samples, where it does not follow from their array


def find_kind_of(inputs: NDArray[Any], arrays: Mapping[str, Any], wanted: str) -> InputKind:
    """Return the kind of an array: the one that is wanted, or that its file names, or what its type and axes say."""
    named = str(arrays.get(KIND, wanted)) if wanted == "auto" else wanted
    if named not in ("auto", *NAMES):
        raise DataError(f"{KIND} = {named!r} is not one of {', '.join(NAMES)}.")
    if named != "auto":
        return find_kind(named)
    if inputs.dtype.kind in "US" and inputs.ndim == 1:
        return find_kind("tokens")
    return find_kind("vector" if inputs.ndim == 2 else IMAGE)


def dataset_from_arrays(
    arrays: Mapping[str, Any],
    origin: str,
    class_names: Sequence[str] | None = None,
    reading: Reading = AS_IT_COMES,
) -> Dataset:
    """Make a data set of a user's arrays.

    `origin` names the source in errors; `class_names` are by label, where the source has them.
    """
    if missing := [name for name in SPLIT_ARRAYS if name not in arrays]:
        raise MissingArrays(f"{origin} lacks {', '.join(missing)}; it must hold {', '.join(SPLIT_ARRAYS)}, or x and y.")
    arrays, notes = without_gaps(arrays, origin) if reading.roles.missing == "drop" else (arrays, ())
    parts = {name: regular_array(arrays[name], name, origin) for name in SPLIT_ARRAYS}
    kind = find_kind_of(parts["x_train"], arrays, reading.kind)
    vocabulary = tuple(str(token) for token in np.ravel(arrays.get(VOCABULARY, ())))
    try:
        found = kind.convert(parts["x_train"], parts["x_test"], origin, reading.code, vocabulary)
    except BadSample as problem:
        rows = arrays.get(ROWS[problem.split])
        raise problem if rows is None else problem.in_source(rows) from None
    check_alike(kind, found.train, found.test, origin)
    train_labels, test_labels, names = number_labels(parts["y_train"], parts["y_test"], class_names, origin)
    for split, inputs, labels in (("train", found.train, train_labels), ("test", found.test, test_labels)):
        check_complete(inputs, split, reading, origin)
        if len(inputs) != len(labels):
            raise DataError(f"{origin}: there are {len(inputs):,} {split} {kind.plural} but {len(labels):,} labels.")
    mean, std = kind.statistics(found.train) if kind.published else ((), ())
    owners = {name: regular_array(arrays[name], name, origin) for name in CLIENT_ARRAYS if arrays.get(name) is not None}
    clients = number_clients(owners, len(train_labels), len(test_labels), origin)
    return Dataset(
        found.train,
        train_labels,
        found.test,
        test_labels,
        names,
        mean,
        std,
        *clients,
        notes=(*notes, *found.notes),
        kind=kind.name,
        vocabulary=found.vocabulary,
        train_groups=arrays.get("group"),
        train_order=arrays.get("order"),
        test_rows=arrays.get(ROWS["test"]),
    )


def without_gaps(arrays: Mapping[str, Any], origin: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arrays without samples that have a missing value (NaN), and a note on them."""
    found, notes = dict(arrays), []
    for split in ("train", "test"):
        inputs = regular_array(arrays[f"x_{split}"], f"x_{split}", origin)
        rows = missing_rows(inputs)
        if not len(rows):
            continue
        owner = "client" if split == "train" else "client_test"
        for name in (f"x_{split}", f"y_{split}", owner, ROWS[split], *(("group", "order") if split == "train" else ())):
            if name in arrays:
                found[name] = np.delete(regular_array(arrays[name], name, origin), rows, axis=0)
        notes.append(f"{origin}: {len(rows):,} {split} samples with a missing value left out.")
    return found, tuple(notes)


def check_alike(kind: InputKind, train: Inputs, test: Inputs, origin: str) -> None:
    """Raise DataError if the splits have samples of different shapes, or of an impossible one."""
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{origin}: train {kind.plural} are {kind.describe(train.shape[1:])} but test {kind.plural} "
            f"{kind.describe(test.shape[1:])}; bring them to one size."
        )
    try:
        kind.check_shape(train.shape[1:])
    except ValueError as problem:
        raise DataError(f"{origin} {problem}.") from None


def check_complete(inputs: Inputs, split: str, reading: Reading, origin: str) -> None:
    """Raise DataError for missing values, unless the source marks them on purpose."""
    rows = [] if reading.missing else missing_rows(inputs).tolist()
    if len(rows):
        more = f", as have {len(rows) - 1:,} more" if len(rows) > 1 else ""
        raise BadSample(origin, split, rows[0], f"has a missing value (NaN){more}; fill it in or remove it.")


CLIENT_ARRAYS = ("client", "client_test")  # one entry per training or test sample


def number_clients(
    given: Mapping[str, NDArray[Any]], train_size: int, test_size: int, origin: str
) -> tuple[tuple[str, ...], Owners | None, Owners | None]:
    """Return the clients' names, the owner of each training sample, and of each test sample if `client_test` is given.

    Clients are numbered in the order of their names, by value if all are whole numbers.
    """
    if "client" not in given:
        if "client_test" in given:
            raise DataError(f"{origin} has client_test but no client: add the clients of the training samples.")
        return (), None, None
    train, positions = _names(given["client"], "client", train_size, origin)
    names = _in_order(train)
    numbers = {name: number for number, name in enumerate(names)}
    owners, test_owners = np.array([numbers[name] for name in train], np.int64)[positions], None
    if "client_test" in given:
        test, positions = _names(given["client_test"], "client_test", test_size, origin)
        if unknown := sorted(set(test) - numbers.keys()):
            raise DataError(f"{origin}: the test client {unknown[0]!r} has no training samples.")
        test_owners = np.array([numbers[name] for name in test], np.int64)[positions]
    return tuple(names), owners, test_owners


def _names(values: NDArray[Any], array: str, samples: int, origin: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return the clients that occur, and the position of each sample's (N,) client among them."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if values.dtype.kind not in "uiU":
        raise DataError(f"{origin}: {array} has type {values.dtype}; use names (astype(str)) or whole numbers.")
    if values.shape != (samples,):
        raise DataError(f"{origin}: {array} has shape {values.shape}; give one client per sample, shape ({samples},).")
    found, positions = np.unique(values, return_inverse=True)
    names = [str(name) for name in found.tolist()]
    if not all(name.strip() for name in names):
        raise DataError(f"{origin}: {array} contains an empty name.")
    _refuse_alike(names, origin)
    return names, positions


def _refuse_alike(names: Sequence[str], origin: str) -> None:
    """Refuse clients whose names differ only in case or in spaces around them: most likely they are one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.strip().casefold(), name)
        if other != name:
            raise DataError(
                f"{origin}: the clients {other!r} and {name!r} differ only in case or spaces: write one client one way."
            )


def _in_order(names: list[str]) -> list[str]:
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)
