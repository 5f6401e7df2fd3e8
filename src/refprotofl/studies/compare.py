"""The study of several methods on the same partitions, initial weights and cohorts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refprotofl.core import InputError
from refprotofl.report.comparable import check_comparable, check_settings
from refprotofl.report.comparison import OverSeeds, against, tabulate
from refprotofl.studies.planner import Study
from refprotofl.studies.rows import Row, check_rows
from refprotofl.studies.trials import Base, Trial, seed_by_seed


@dataclass(frozen=True)
class Request:
    """The rows of a comparison, and the experiment that they start from."""

    base: Base
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    baseline: str | None  # the row that the others are compared with, if any
    last: int  # evaluations at the end that are averaged
    runs: Path
    margin: float | None = None  # of non-inferiority, as a share of 1; each difference gets a verdict

    def trials(self) -> list[Trial]:
        return seed_by_seed(self.base, self.rows, self.seeds, self.runs)

    @property
    def switched(self) -> set[str]:
        """The keys that may differ, because the rows' switches say so."""
        return set().union(*(row.switched for row in self.rows))


@dataclass(frozen=True)
class Comparison:
    """The rows with their numbers, and the run folders with their row's name."""

    rows: list[OverSeeds]
    runs: dict[Path, str]


def read_baseline(typed: str | None, rows: Sequence[Row]) -> str | None:
    """Return the row that the others are compared with: the first one, the one given, or none."""
    names = [row.name for row in rows]
    if typed is None:
        return names[0] if names else None
    name = typed.strip()
    if name not in ("none", *names):
        raise InputError(f"--against {typed}: allowed are none and the rows: {', '.join(names)}.")
    return None if name == "none" else name


def check(request: Request) -> None:
    """InputError if the rows are not comparable, as far as their experiments show."""
    if request.margin is not None and request.baseline is None:
        raise InputError(f"--margin {request.margin:g}: there is no difference to judge with --against none.")
    check_rows(request.rows, request.seeds)
    check_settings([trial.experiment.plain() for trial in request.trials()], request.switched)


def compare(request: Request) -> Study[Comparison]:
    trials = request.trials()
    outcomes = yield trials
    done = outcomes.of(trials)
    check_comparable([result for _, result in done], request.switched)
    rows = tabulate(done, request.last)
    compared = rows if request.baseline is None else against(rows, request.baseline, request.margin)
    return Comparison(compared, {trial.folder: trial.name for trial, _ in done})
