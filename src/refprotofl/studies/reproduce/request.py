"""Turn a user's request into grids: one per table or figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from refprotofl.core import InputError, is_reference
from refprotofl.data import load_dataset
from refprotofl.data.loading import NAMES, locate
from refprotofl.experiment import PRESETS, load_experiment, set_keys
from refprotofl.methods import find_method
from refprotofl.studies.reproduce import studies
from refprotofl.studies.reproduce.our_studies import OURS, our_studies
from refprotofl.studies.reproduce.studies import Grid, Scope, Study, Tuned, Variant, scored_by, studies_of
from refprotofl.studies.rows import read_switches
from refprotofl.studies.tune.settings import read_searched, read_tuned

VARIANTS: tuple[Variant, ...] = ("standard", "reconstruction")
TABLES = (
    *("accuracy", "ablation", "communication", "sweeps", "compressors", "curves"),
    *("partition-figure", "tsne-figure"),
)
_SCORED = ("accuracy", "ablation", "sweeps", "compressors", "curves", *OURS)  # tables that compare by one accuracy
# Keys that the tables vary, and the option to use instead.
_FIXED = {
    **{"dataset": "--dataset chooses it", "alpha": "--alpha chooses it", "seed": "--seeds chooses it"},
    **{"method": "--methods chooses it", "share": "--variant chooses it", "partition": "--alpha chooses it"},
    "validation": "they are scored on the test set, and refprotofl tune on data that clients hold out",
    "public.train-on": "they have rows with it and without",
}


@dataclass(frozen=True)
class Request:
    table: str  # one of TABLES or OURS; "all" is all of TABLES
    preset: str
    scope: Scope
    variants: tuple[Variant, ...]
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    tuned: Mapping[str, Sequence[Path]]  # files of searches, by data set
    out: Path
    against: str = ""  # a row's label
    protocol: str = ""  # rows are scored by it; the table's own if empty
    margin: float | None = None  # of non-inferiority, as a share of 1

    def grids(self) -> dict[str, Grid]:
        """Build the grids by table or figure; raise InputError before anything is run."""
        self._check()
        tuned = {dataset: _read_all(paths) for dataset, paths in self.tuned.items()}
        searched = (name for methods in tuned.values() for name in methods)
        for asked in (*(row.asked for row in self.scope.rows), *searched):
            find_method(read_switches(asked)[0])
        self._check_rows()
        grids = {name: self._grid(name, tuned) for name in (TABLES if self.table == "all" else (self.table,))}
        for grid in grids.values():
            grid.check()
        self._check_baseline(grids)
        return grids

    def _check_rows(self) -> None:
        if not self.scope.labels:
            return
        tables = TABLES if self.table == "all" else (self.table,)
        all_rows = replace(self.scope, labels=())
        studies = [study for table in tables for study in self._studies(table, all_rows)]
        known = dict.fromkeys(row.label for study in studies for block in study.blocks for row in block.rows)
        for label in self.scope.labels:
            if label not in known:
                raise InputError(f"--row {label}: allowed are the rows' names: {', '.join(known)}.")

    def _studies(self, table: str, scope: Scope) -> list[Study]:
        if table in OURS:
            return our_studies(table, scope)
        return studies_of(table, scope, load_experiment(None, self.preset, self.settings).rounds)

    def _check_baseline(self, grids: Mapping[str, Grid]) -> None:
        labels = dict.fromkeys(row.label for grid in grids.values() for _, _, row in grid.rows())
        if self.against and self.against not in labels:
            raise InputError(f"--against {self.against}: allowed are the rows' names: {', '.join(labels)}.")

    def _check(self) -> None:
        for key in sorted(set_keys(self.settings) & _FIXED.keys()):
            raise InputError(f"--set {key}: the tables are made of its values; {_FIXED[key]}.")
        if self.protocol and self.table not in _SCORED:
            raise InputError(f"--protocol {self.protocol}: it is for {', '.join(_SCORED)}, not for {self.table}.")
        for dataset in {*self.scope.datasets, *self.tuned}:
            _check_dataset(dataset)
        for alpha in self.scope.alphas:
            load_experiment(None, self.preset, [*self.settings, f"alpha={alpha:g}"])

    def _grid(self, table: str, tuned: Tuned) -> Grid:
        built = self._studies(table, self.scope)
        if self.protocol:
            built = scored_by(self.protocol, built)
        studies = tuple(study for study in built if study.blocks and study.variant in self.variants)
        if not studies and table != "partition-figure" and self.table != "all":
            asked = (*self.scope.methods, *self.scope.labels)
            methods = f" of {', '.join(asked)}" if asked else ""
            raise InputError(f"reproduce {table} has no run{methods} in the variant {' or '.join(self.variants)}.")
        seeds = self.seeds[:1] if table == "tsne-figure" else self.seeds
        return Grid(
            studies=studies,
            preset=self.preset,
            settings=self.settings,
            seeds=seeds,
            out=self.out,
            tuned=tuned,
            chosen_on=self._chosen_on(),
            ends=self._ends(),
            against=self.against,
            margin=self.margin,
        )

    def _chosen_on(self) -> dict[str, str]:
        searches = [(dataset, read_searched(path)) for dataset, path in _files(self.tuned)]
        return {dataset: one.dataset for dataset, one in searches if one and one.dataset != dataset}

    def _ends(self) -> dict[str, dict[str, tuple[str, ...]]]:
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for dataset, path in _files(self.tuned):
            searched = read_searched(path)
            found.setdefault(dataset, {}).update(searched.ends if searched else {})
        return found


def _check_dataset(name: str) -> None:
    known = name in NAMES or name.startswith("hf:") or is_reference(name) or locate(name) is not None
    if not known:
        load_dataset(name)  # says what would be right


def default_datasets(preset: str) -> tuple[str, ...]:
    """Return the paper's four data sets; `digits`, which needs no download, for the smallest preset."""
    return ("digits",) if PRESETS[preset]["dataset"] == "digits" else studies.DATASETS


def alphas_of(preset: str, text: str | None) -> tuple[float, ...]:
    """Read the alphas of a request; without any they are the paper's two, or the uneven one for the smallest preset."""
    if text is None:
        return (0.5,) if default_datasets(preset) == ("digits",) else (0.5, 100.0)
    return read_alphas(text)


def read_alphas(text: str) -> tuple[float, ...]:
    try:
        alphas = tuple(dict.fromkeys(float(one) for one in text.split(",") if one.strip()))
    except ValueError:
        alphas = ()
    if not alphas:
        raise InputError(f"--alpha {text}: allowed are numbers above 0 with commas between, such as 0.5,100.")
    return alphas


def read_tuned_files(options: Sequence[str], datasets: Sequence[str]) -> dict[str, list[Path]]:
    """Read `DATASET=FILE` options; return the files by data set."""
    found: dict[str, list[Path]] = {}
    for option in options:
        dataset, equals, path = (part.strip() for part in option.partition("="))
        if not equals or not dataset or not path:
            raise InputError(f"--tuned {option}: write DATASET=FILE.toml, such as cifar10=tuned/cifar10.toml.")
        if dataset not in datasets:
            raise InputError(
                f"--tuned {option}: {dataset} is not among the data sets asked for, {', '.join(datasets)}."
            )
        found.setdefault(dataset, []).append(Path(path).expanduser())
    return found


def _files(tuned: Mapping[str, Sequence[Path]]) -> list[tuple[str, Path]]:
    return [(dataset, path) for dataset, paths in tuned.items() for path in paths]


def _read_all(paths: Sequence[Path]) -> dict[str, list[str]]:
    """Read the settings of all files; a method may occur in only one of them."""
    found: dict[str, list[str]] = {}
    for path in paths:
        chosen = read_tuned(path)
        twice = [name for name in chosen if name in found]
        if twice:
            raise InputError(f"--tuned: {path} and a file before it both have settings for {twice[0]}.")
        found |= chosen
    return found


def find_leaks(tuned: Mapping[str, Sequence[Path]], seeds: Sequence[int]) -> list[str]:
    """Report settings that were chosen with the seeds they are used for, or on another data set."""
    found = []
    for dataset, path in _files(tuned):
        searched = read_searched(path)
        if searched is None:
            continue
        if searched.dataset != dataset:
            found.append(f"{path}: its settings were chosen on {searched.dataset}, not on {dataset}.")
        shared = [str(seed) for seed in seeds if searched.dataset == dataset and seed in searched.seeds]
        if shared:
            found.append(
                f"{path}: its settings were chosen with seeds that results are asked for, too: {', '.join(shared)}. "
                "Such results are too good; report others."
            )
    return found
