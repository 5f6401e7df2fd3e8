"""From what a user asks for to the grids behind it: a grid for each table or figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from refprotofl.errors import InputError
from refprotofl.experiment.presets import PRESETS, load_experiment
from refprotofl.reproduction import paper
from refprotofl.reproduction.planning import Grid, Tuned
from refprotofl.reproduction.studies import Scope, Variant, studies_of
from refprotofl.tuning.records import read_tuned

VARIANTS: tuple[Variant, ...] = ("standard", "reconstruction")
WHATS = (
    *("accuracy", "ablation", "communication", "sweeps", "compressors", "curves"),
    *("partition-figure", "tsne-figure"),
)


@dataclass(frozen=True)
class Asked:
    what: str  # one of WHATS, or all
    preset: str
    scope: Scope
    variants: tuple[Variant, ...]
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    tuned: Mapping[str, Path]  # by data set: what a search chose
    out: Path

    def grids(self) -> dict[str, Grid]:
        """By the table or figure that they are for."""
        tuned = {dataset: read_tuned(path) for dataset, path in self.tuned.items()}
        return {what: self._grid(what, tuned) for what in (WHATS if self.what == "all" else (self.what,))}

    def _grid(self, what: str, tuned: Tuned) -> Grid:
        rounds = load_experiment(None, self.preset, self.settings).rounds
        studies = tuple(study for study in studies_of(what, self.scope, self.variants, rounds) if study.blocks)
        if not studies and what != "partition-figure" and self.what != "all":
            raise InputError(f"reproduce {what} has no run of the methods {', '.join(self.scope.methods)}.")
        seeds = self.seeds[:1] if what == "tsne-figure" else self.seeds
        return Grid(studies, self.preset, self.settings, seeds, self.out, tuned)


def default_datasets(preset: str) -> tuple[str, ...]:
    """The paper's four; the smallest preset has a data set of its own, which is always at hand."""
    return ("digits",) if PRESETS[preset]["dataset"] == "digits" else paper.DATASETS


def read_alphas(text: str) -> tuple[float, ...]:
    try:
        alphas = tuple(dict.fromkeys(float(one) for one in text.split(",") if one.strip()))
    except ValueError:
        alphas = ()
    if not alphas:
        raise InputError(f"--alpha {text}: allowed are numbers above 0 with commas between, such as 0.5,100.")
    return alphas


def read_tuned_files(options: Sequence[str]) -> dict[str, Path]:
    found = {}
    for option in options:
        dataset, equals, path = option.partition("=")
        if not equals or not dataset.strip() or not path.strip():
            raise InputError(f"--tuned {option}: write DATASET=FILE.toml, such as cifar10=tuned/cifar10.toml.")
        found[dataset.strip()] = Path(path.strip()).expanduser()
    return found
