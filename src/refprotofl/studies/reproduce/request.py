"""From what a user asks for to the grids behind it: a grid for each table or figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from refprotofl.core.errors import InputError
from refprotofl.core.user_code import is_reference
from refprotofl.data.loading import NAMES, load_dataset, locate
from refprotofl.experiment.presets import PRESETS, load_experiment, set_keys
from refprotofl.methods.catalogue import find_method
from refprotofl.studies.reproduce import studies
from refprotofl.studies.reproduce.our_studies import OURS, our_studies
from refprotofl.studies.reproduce.studies import Grid, Scope, Tuned, Variant, scored_by, studies_of
from refprotofl.studies.rows import read_switches
from refprotofl.studies.tune.settings import read_searched, read_tuned

VARIANTS: tuple[Variant, ...] = ("standard", "reconstruction")
WHATS = (
    *("accuracy", "ablation", "communication", "sweeps", "compressors", "curves"),
    *("partition-figure", "tsne-figure"),
)
_SCORED = ("accuracy", "ablation", "sweeps", "compressors", "curves", *OURS)  # tables that compare by one accuracy
# What tables are named by, and what says it instead.
_FIXED = {
    **{"dataset": "--dataset chooses it", "alpha": "--alpha chooses it", "seed": "--seeds chooses it"},
    **{"method": "--methods chooses it", "share": "--variant chooses it", "partition": "--alpha chooses it"},
    "validation": "they are scored on the test set, and refprotofl tune on data that clients hold out",
    "public.train-on": "they have rows with it and without",
}


@dataclass(frozen=True)
class Asked:
    what: str  # one of WHATS or OURS, or all of WHATS
    preset: str
    scope: Scope
    variants: tuple[Variant, ...]
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    tuned: Mapping[str, Sequence[Path]]  # by data set: what searches chose
    out: Path
    against: str = ""  # a row's label
    protocol: str = ""  # what rows are scored by; else what each table has its own for
    margin: float | None = None  # of non-inferiority, as a share of 1

    def grids(self) -> dict[str, Grid]:
        """By the table or figure that they are for; what is wrong is told here, before anything is run."""
        self._check()
        tuned = {dataset: _read_all(paths) for dataset, paths in self.tuned.items()}
        for name in (*self.scope.methods, *(name for methods in tuned.values() for name in methods)):
            find_method(read_switches(name)[0])
        grids = {what: self._grid(what, tuned) for what in (WHATS if self.what == "all" else (self.what,))}
        for grid in grids.values():
            grid.check()
        self._check_baseline(grids)
        return grids

    def _check_baseline(self, grids: Mapping[str, Grid]) -> None:
        labels = dict.fromkeys(row.label for grid in grids.values() for _, _, row in grid.rows())
        if self.against and self.against not in labels:
            raise InputError(f"--against {self.against}: allowed are the rows' names: {', '.join(labels)}.")

    def _check(self) -> None:
        for key in sorted(set_keys(self.settings) & _FIXED.keys()):
            raise InputError(f"--set {key}: it is what the tables are made of; {_FIXED[key]}.")
        if self.protocol and self.what not in _SCORED:
            raise InputError(f"--protocol {self.protocol}: it is for {', '.join(_SCORED)}, not for {self.what}.")
        for dataset in {*self.scope.datasets, *self.tuned}:
            _check_dataset(dataset)
        for alpha in self.scope.alphas:
            load_experiment(None, self.preset, [*self.settings, f"alpha={alpha:g}"])

    def _grid(self, what: str, tuned: Tuned) -> Grid:
        rounds = load_experiment(None, self.preset, self.settings).rounds
        built = our_studies(what, self.scope) if what in OURS else studies_of(what, self.scope, rounds)
        if self.protocol:
            built = scored_by(self.protocol, built)
        studies = tuple(study for study in built if study.blocks and study.variant in self.variants)
        if not studies and what != "partition-figure" and self.what != "all":
            methods = f" of {', '.join(self.scope.methods)}" if self.scope.methods else ""
            raise InputError(f"reproduce {what} has no run{methods} in the variant {' or '.join(self.variants)}.")
        seeds = self.seeds[:1] if what == "tsne-figure" else self.seeds
        return Grid(
            studies=studies,
            preset=self.preset,
            settings=self.settings,
            seeds=seeds,
            out=self.out,
            tuned=tuned,
            chosen_on=self._chosen_on(),
            against=self.against,
            margin=self.margin,
        )

    def _chosen_on(self) -> dict[str, str]:
        searches = [(dataset, read_searched(path)) for dataset, path in _files(self.tuned)]
        return {dataset: one.dataset for dataset, one in searches if one and one.dataset != dataset}


def _check_dataset(name: str) -> None:
    known = name in NAMES or name.startswith("hf:") or is_reference(name) or locate(name) is not None
    if not known:
        load_dataset(name)  # says what would be right


def default_datasets(preset: str) -> tuple[str, ...]:
    """The paper's four; the smallest preset has a data set of its own, which is always at hand."""
    return ("digits",) if PRESETS[preset]["dataset"] == "digits" else studies.DATASETS


def read_alphas(text: str) -> tuple[float, ...]:
    try:
        alphas = tuple(dict.fromkeys(float(one) for one in text.split(",") if one.strip()))
    except ValueError:
        alphas = ()
    if not alphas:
        raise InputError(f"--alpha {text}: allowed are numbers above 0 with commas between, such as 0.5,100.")
    return alphas


def read_tuned_files(options: Sequence[str], datasets: Sequence[str]) -> dict[str, list[Path]]:
    """By data set, which is one of those that are asked for."""
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
    """Of a method no more than one of them may tell."""
    found: dict[str, list[str]] = {}
    for path in paths:
        chosen = read_tuned(path)
        twice = [name for name in chosen if name in found]
        if twice:
            raise InputError(f"--tuned: {path} and a file before it both have settings for {twice[0]}.")
        found |= chosen
    return found


def doubts(tuned: Mapping[str, Sequence[Path]], seeds: Sequence[int]) -> list[str]:
    """Where settings were chosen on what they are used for, or for something else; old files do not tell."""
    told = []
    for dataset, path in _files(tuned):
        searched = read_searched(path)
        if searched is None:
            continue
        if searched.dataset != dataset:
            told.append(f"{path}: its settings were chosen on {searched.dataset}, not on {dataset}.")
        shared = [str(seed) for seed in seeds if searched.dataset == dataset and seed in searched.seeds]
        if shared:
            told.append(
                f"{path}: its settings were chosen with seeds that results are asked for, too: {', '.join(shared)}. "
                "Such results are too good; report others."
            )
    return told
