"""A first look at a file or folder: its columns or arrays, their most likely roles, and the settings of a first run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from refprotofl.core import DataError, InputError
from refprotofl.data.array_files import BROKEN, read_npz
from refprotofl.data.arrays import SPLIT_ARRAYS
from refprotofl.data.delimited_files import Column
from refprotofl.data.loading import locate
from refprotofl.data.table_data import MISSING, USUAL_LABELS, is_table, open_table
from refprotofl.data.unsplit import INPUTS, LABELS
from refprotofl.experiment import read_settings

MOST_ROWS = 100_000  # that are looked at
MOST_DISTINCT = 1000  # values of a column that are counted
MOST_CLASSES = 100
LONG = 30  # characters of a value, on average, above which a column holds texts
USUAL_CLIENTS = (
    *("client", "site", "hospital", "centre", "center", "clinic", "institution", "source"),
    *("subject", "patient", "person", "user", "speaker", "role", "writer", "author", "device", "node", "machine"),
)


@dataclass
class Profile:
    """A column or an array, as far as it was looked at."""

    name: str
    form: str = ""  # numbers, whole numbers, names, texts; of an array its type and shape
    missing: int = 0
    distinct: int = 0
    examples: str = ""
    role: str = ""
    values: dict[str, int] = field(default_factory=dict)
    _length: int = 0
    _rows: int = 0
    _kinds: set[str] = field(default_factory=set)

    def add(self, column: Column) -> None:
        for value in column.tolist() if isinstance(column, np.ndarray) else column:
            text = "" if value is None or value != value else str(value).strip()
            self._rows += 1
            if text.lower() in MISSING:
                self.missing += 1
                continue
            self._length += len(text)
            self._kinds.add(form := _form_of(text))
            text = str(int(float(text))) if form == "whole numbers" else text  # 1.0 is 1
            if text in self.values or len(self.values) <= MOST_DISTINCT:
                self.values[text] = self.values.get(text, 0) + 1

    def finish(self) -> None:
        known = self._rows - self.missing
        self.distinct = len(self.values)
        self.examples = ", ".join(list(self.values)[:3])[:60]
        if not known:
            self.form = "no values"
        elif self._kinds <= {"whole numbers"}:
            self.form = "whole numbers"
        elif self._kinds <= {"whole numbers", "numbers"}:
            self.form = "numbers"
        else:
            self.form = "texts" if self._length > LONG * known or self.distinct > MOST_DISTINCT else "names"

    @property
    def separates(self) -> bool:
        """Return True if the column has as many values as classes or clients can have."""
        return 2 <= self.distinct <= MOST_CLASSES


@dataclass(frozen=True)
class Description:
    """The columns of a file, and the settings with which a run would read it."""

    path: str
    profiles: tuple[Profile, ...]
    rows: int  # 0 where it was not looked at
    settings: tuple[str, ...]
    complete: bool = True  # all rows were looked at


def describe(name: str, settings: Sequence[str] = ()) -> Description:
    """Return what a file or folder seems to hold. `settings` are those that the user gives; they are kept."""
    path = locate(name)
    if path is None:
        raise InputError(f"Path not found: {name}, in {Path.cwd()}.")
    typed = read_settings(settings).get("data", {})
    given = {role: str(value) for role, value in (typed if isinstance(typed, dict) else {}).items()}
    profiles: tuple[Profile, ...] = ()
    rows, complete = 0, True
    if path.is_dir():
        roles = _folder_settings(path)
    elif is_table(path):
        profiles, rows, complete = _profile_table(path, given)
        roles = _table_settings(profiles, given)
    elif path.suffix == ".npz":
        profiles = _profile_arrays(path)
        roles = _array_settings(profiles, given)
    else:
        raise InputError(f"{path}: files of this type are not supported. Give a table, a .npz file or a folder.")
    return Description(name, profiles, rows, (*roles, *settings), complete)


def _form_of(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return "texts"
    return "whole numbers" if math.isfinite(value) and value.is_integer() else "numbers"


def _profile_table(path: Path, given: dict[str, str]) -> tuple[tuple[Profile, ...], int, bool]:
    named = [value for role, value in given.items() if role in ("label", "client", "split", "text", "order", "group")]
    rows = 0
    with open_table(path, named) as table:
        profiles = tuple(Profile(name) for name in table.names)
        for block in table.blocks:
            for profile, column in zip(profiles, block.columns, strict=True):
                profile.add(column)
            rows += len(block)
            if rows >= MOST_ROWS:
                break
        complete = next(table.blocks, None) is None
    if not rows:
        raise DataError(f"{path} has no rows.")
    for profile in profiles:
        profile.finish()
    return profiles, rows, complete


def _table_settings(profiles: Sequence[Profile], given: dict[str, str]) -> list[str]:
    """Return a setting for each role that a column most likely has."""
    roles = {value: role for role, value in given.items()}
    for profile in profiles:
        profile.role = roles.get(profile.name, "")
    for role, candidates in (
        ("text", [one for one in profiles if one.form == "texts"]),
        ("label", _label_candidates(profiles)),
        ("client", _client_candidates(profiles)),
    ):
        free = [one for one in candidates if not one.role]
        if role not in given and free:
            free[0].role = role
    texts = any(one.role == "text" for one in profiles)
    ignored = [one for one in profiles if not one.role and not texts and one.form in ("names", "texts", "no values")]
    for one in ignored:
        one.role = "ignored"
    found = [f"data.{one.role}={_quoted(one.name)}" for one in profiles if one.role in ("text", "label", "client")]
    if ignored and "ignore" not in given:
        found.append(f"data.ignore=[{', '.join(_quoted(one.name, True) for one in ignored)}]")
    gaps = any(one.missing for one in profiles if not texts and not one.role)
    if any(one.missing for one in profiles if one.role in ("text", "label", "client")):
        found.append("data.missing=drop")
    elif gaps and "missing" not in given:
        found.append("data.missing=mean")
    return [one for one in found if one.partition("=")[0].removeprefix("data.") not in given]


def _label_candidates(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the columns that may hold the classes, the most likely first: by name, then from the last one."""
    usual = [one for one in profiles if one.name.lower() in USUAL_LABELS]
    fitting = [one for one in reversed(profiles) if one.separates and one.form in ("whole numbers", "names")]
    return [*usual, *(one for one in fitting if one.name.lower() not in USUAL_CLIENTS)]


def _client_candidates(profiles: Sequence[Profile]) -> list[Profile]:
    usual = [one for one in profiles if one.name.lower().strip("#_ ").removesuffix("_id") in USUAL_CLIENTS]
    return [*usual, *(one for one in profiles if one.form == "names" and one.separates)]


def _quoted(name: str, always: bool = False) -> str:
    """Return a name as a TOML value, bare where `--set` reads it as a text."""
    bare = name.replace("_", "a").replace("-", "a").isalnum() and not name[0].isdigit()
    return name if bare and not always else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _profile_arrays(path: Path) -> tuple[Profile, ...]:
    try:
        arrays = read_npz(path, lambda names: names)
    except BROKEN as problem:
        raise DataError(f"{path} is not a readable .npz file ({problem}): save it again.") from None
    found = []
    for name, array in arrays.items():
        flat = array.ndim == 1
        values = dict.fromkeys(map(str, np.unique(array)[: MOST_DISTINCT + 1].tolist()), 0) if flat else {}
        shape = " x ".join(map(str, array.shape))
        found.append(Profile(name, f"{array.dtype}, {shape}", 0, len(values), ", ".join(list(values)[:3])[:60]))
    return tuple(found)


def _array_settings(profiles: Sequence[Profile], given: dict[str, str]) -> list[str]:
    names = {one.name: one for one in profiles}
    found = []
    if not set(SPLIT_ARRAYS) <= set(names):
        for one in profiles:
            one.role = {INPUTS: "inputs", given.get("label", LABELS): "label"}.get(one.name, "")
    if "client" not in given:
        usual = [one for one in profiles if one.name.lower() in USUAL_CLIENTS and one.distinct > 1]
        if usual:
            usual[0].role = "client"
            found.append(f"data.client={_quoted(usual[0].name)}")
    return found


def _folder_settings(folder: Path) -> list[str]:
    """Return natural clients for a folder of folders of folders."""
    deepest = max((len(parts) for parts in _first_files(folder)), default=0)
    return ["partition=natural"] if deepest >= 3 else []


def _first_files(folder: Path) -> Iterator[list[str]]:
    """Yield the parts of the first file's path below each folder, without train and test."""
    for start in sorted(path for path in folder.iterdir() if path.is_dir()):
        first = next((path for path in sorted(start.rglob("*")) if path.is_file()), None)
        if first is not None:
            yield [part for part in first.relative_to(folder).parts if part not in ("train", "test")]
