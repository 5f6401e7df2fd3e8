"""The runs of a page: one run folder, several, or the folder of a grid, and the labels that distinguish them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from refprotofl.core import DataError, InputError, Links, RefProtoFLError, counted, references, refuse_code
from refprotofl.experiment import Experiment
from refprotofl.records import allow_code, check_file, check_folder
from refprotofl.report.comparable import METHOD_KEYS
from refprotofl.report.page.comparison_page import Member, comparison_page
from refprotofl.report.page.curves import stops_of, stops_of_result
from refprotofl.report.page.elements import Page, without_place
from refprotofl.report.page.run_page import flat, run_page
from refprotofl.report.page.run_reader import MEGABYTE, RunReader, RunRecord, open_run
from refprotofl.studies import CELLS, Result, find_result, read_lines, result_of

MOST_RUNS = 3000
MOST_BYTES = 64 * MEGABYTE  # of a file of kept results
_KEPT = ".jsonl"  # the ending of such a file
_WHERE = ("", "runs")  # below a grid's folder

_SWITCH: dict[object, str] = {"yes": "on", "no": "off"}  # as switches are typed
_IGNORED = {"seed"}  # differs within a row
_LABELS_LEFT_OUT = ("input.", "public.classes")


def is_run(folder: Path) -> bool:
    return check_file(folder / "experiment.json")


def is_kept(path: Path) -> bool:
    """Return whether this is the address of a kept result, FILE.jsonl/HASH, instead of a run folder."""
    return path.parent.suffix == _KEPT and path.parent.is_file()


def find_runs(places: Sequence[Path]) -> list[Path]:
    """Return run folders and addresses of stored results, by name; links within a grid's folder are not followed."""
    found: list[Path] = []
    for place in places:
        if not place.exists() and not is_kept(place):
            raise InputError(f"Path not found: {place}")
        inside = [place] if is_run(place) or is_kept(place) else _within(place)
        if not inside:
            raise InputError(f"{place} is not a run folder and contains none.")
        found += inside
    if len(found) > MOST_RUNS:
        raise InputError(f"A page can show {MOST_RUNS:,} runs; these are {len(found):,}. Name fewer of them.")
    return list(dict.fromkeys(found))


def _within(place: Path) -> list[Path]:
    if place.suffix == _KEPT:
        return _kept_in(place)
    folders = []
    for below in (place / name for name in _WHERE):
        if below != place and not check_folder(below):
            continue
        with os.scandir(below) as entries:
            for entry in sorted(entries, key=lambda one: one.name)[: 2 * MOST_RUNS]:
                path = below / entry.name
                if entry.is_dir(follow_symlinks=False) and is_run(path):
                    folders.append(path)
    return [*folders, *_kept_in(place / CELLS)]


def _kept_in(file: Path) -> list[Path]:
    """Return the addresses of all results in a file; none where there is no file."""
    if check_file(file) and file.lstat().st_size > MOST_BYTES:
        raise DataError(f"{file} is larger than {MOST_BYTES // MEGABYTE} MB, the most that is read.")
    return [file / asked for asked in read_lines(file)]


def gather(
    places: Sequence[Path],
    links: Mapping[str, Links] | None = None,
    data: Path | None = None,
    baseline: str | None = None,
    live: bool = False,
    names: Mapping[Path, str] | None = None,
    title: str = "",
    trust_code: bool = False,
    known: "KnownRuns | None" = None,
    blocks: "Blocks | None" = None,
    protocol: str | None = None,
) -> Page:
    """Return the page of one run, or of several compared. `names`: labels of runs, by folder.

    `blocks`: headings, each with its runs and their labels; by default runs that differ in method and seed only share a
    block. `protocol`: the protocol that runs are compared by, instead of the headline protocol.

    A run whose method is code named by its folder is in tables only with `trust_code`, because its notes would have to
    be imported. `known`: runs that were read before and are read incrementally.
    """
    listed = [path for _, called in blocks or () for path in called]
    runs, known = find_runs(listed or places), known or KnownRuns(links, trust_code)
    if len(runs) == 1 and not is_kept(runs[0]):
        return run_page(known.run_of(runs[0]), links, data, live)
    members, unread = members_of(runs, known, names, blocks)
    if not members:
        raise DataError(f"None of these runs can be read. The first error: {unread[0]}")
    name = places[0].resolve().name if len(places) == 1 else counted(len(runs), "run")
    page = comparison_page(members, title or f"{name}: {_common(members)}", links, baseline, protocol)
    return replace(page, notes=unread[:20], progress=page.progress if live else None)


Read = tuple[Experiment, RunRecord | None, Result | None]
Blocks = Sequence[tuple[str, Mapping[Path, str]]]  # a heading, and the labels of its runs


class KnownRuns:
    """A cache of runs, each read on from where it stopped."""

    def __init__(self, links: Mapping[str, Links] | None = None, trust_code: bool = False) -> None:
        self._links = dict(links or {})
        self._trust_code = trust_code
        self._readers: dict[Path, RunReader] = {}
        self._results: dict[Path, Result] = {}

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes whenever something new was read."""
        return len(self._readers) + len(self._results), sum(reader.line for reader in self._readers.values())

    def run_of(self, folder: Path) -> RunRecord:
        if folder not in self._readers:
            self._readers[folder] = open_run(folder, self._links)
        self._readers[folder].read()
        return self._readers[folder].run

    def read(self, path: Path) -> Read:
        """Read a run folder or a stored result."""
        if is_kept(path):
            result = self._results.get(path) or _read_kept(path, self._trust_code)
            self._results[path] = result
            return Experiment.parse(result["summary"]["experiment"]), None, result
        run = self.run_of(path)
        named = references(run.experiment.plain())
        if run.summary is None or (named and not self._trust_code):
            self._results.pop(path, None)
            return run.experiment, run, None
        allow_code(named, path, trusted=self._trust_code)
        if path not in self._results:
            self._results[path] = result_of(path, run.experiment, run.summary)
        return run.experiment, run, self._results[path]


def _read_kept(path: Path, trust_code: bool) -> Result:
    result = find_result(path)
    named = references(Experiment.parse(result["summary"]["experiment"]).plain())
    refuse_code(named, path, trusted=trust_code)
    return result


def members_of(
    runs: Sequence[Path],
    known: KnownRuns,
    names: Mapping[Path, str] | None = None,
    blocks: Blocks | None = None,
) -> tuple[list[Member], list[str]]:
    """Return the readable runs, labelled by their differences or by `names`, and the errors of the others."""
    read: dict[Path, Read] = {}
    unread, hashes = [], set()
    for path in runs:
        try:
            one = known.read(path)
        except RefProtoFLError as problem:
            unread.append(str(problem))
            continue
        if one[0].hash not in hashes:  # a stored result of a run whose folder is there as well
            hashes.add(one[0].hash)
            read[path] = one
    if blocks is not None:
        placed = [(path, block, name) for block, called in blocks for path, name in called.items() if path in read]
        return [_member(path, block, name, read[path]) for path, block, name in placed], unread
    labels = labels_of([one[0] for one in read.values()])
    members = [
        _member(path, label.block, (names or {}).get(path, label.name), one, label.trained)
        for (path, one), label in zip(read.items(), labels, strict=True)
    ]
    return members, unread


def _member(path: Path, block: str, name: str, read: Read, trained: str = "") -> Member:
    experiment, run, result = read
    stops = stops_of(run) if run else stops_of_result(result) if result else []
    done = run.rounds_done if run else experiment.rounds
    return Member(name, block, experiment, path, stops, done, result, trained)


class Label(NamedTuple):
    block: str  # the settings of data and training that distinguish its block
    name: str  # of its row in that block
    trained: str = ""  # training settings that differ between rows and are not in their names


def labels_of(experiments: Sequence[Experiment]) -> list[Label]:
    """Return the label of each experiment, by its differences from the others."""
    plains = _asked(experiments)
    keys = dict.fromkeys(key for plain in plains for key in plain)
    differing = [key for key in keys if len({str(plain.get(key)) for plain in plains}) > 1]
    own = [key for key in differing if key.partition(".")[0] in METHOD_KEYS and key != "method"]
    shared = [key for key in differing if key.partition(".")[0] not in METHOD_KEYS and key not in _IGNORED]
    tuned = _tuned(plains, shared)
    shared = [key for key in shared if key not in tuned]
    labels = []
    for plain in plains:
        alike = [other for other in plains if other["method"] == plain["method"]]
        block = _block(plain, shared)
        peers = [other for other in alike if _block(other, shared) == block]
        searched = [key for key in tuned if _values(key, peers) > 1]
        switches = [key for key in own if key in plain and _values(key, alike) > 1]
        method = str(plain["method"])
        own_words = (f"{key.removeprefix(f'{method}.')}={_as_typed(plain[key])}" for key in (*switches, *searched))
        chosen = _block(plain, [key for key in tuned if key not in searched])
        labels.append(Label(block, ":".join([method, *own_words]), chosen))
    return labels


def _tuned(plains: Sequence[dict[str, Any]], shared: Sequence[str]) -> list[str]:
    """Return the training keys that differ within a block, as in a tuned grid."""
    trained = [key for key in shared if key.startswith("train.")]
    blocks: dict[str, list[dict[str, Any]]] = {}
    for plain in plains:
        blocks.setdefault(_block(plain, [key for key in shared if key not in trained]), []).append(plain)
    return [key for key in trained if any(_values(key, block) > 1 for block in blocks.values())]


def _values(key: str, plains: Sequence[dict[str, Any]]) -> int:
    return len({str(plain.get(key)) for plain in plains})


def _block(plain: dict[str, Any], shared: Sequence[str]) -> str:
    return ", ".join(f"{key} = {_as_typed(plain.get(key))}" for key in shared)


def _as_typed(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else _SWITCH.get(value, str(value))


def _asked(experiments: Sequence[Experiment]) -> list[dict[str, Any]]:
    """Return the dotted keys of each experiment: also those that only another one changed, with their defaults."""
    changed = [flat(experiment.plain()) for experiment in experiments]
    keys = dict.fromkeys(key for plain in changed for key in plain if not key.startswith(_LABELS_LEFT_OUT))
    asked = []
    for experiment, plain in zip(experiments, changed, strict=True):
        whole = flat(experiment.model_dump(mode="json", by_alias=True)) | plain
        named = [key for key in keys if key in plain or (key.partition(".")[0] not in METHOD_KEYS and key in whole)]
        asked.append({key: whole[key] for key in named})
    return asked


def _common(members: Sequence[Member]) -> str:
    datasets = list(dict.fromkeys(without_place(one.experiment.dataset) for one in members))
    return f"{', '.join(datasets[:4])}{', …' if len(datasets) > 4 else ''}"
