"""The study of several methods on the same partitions, initial weights and cohorts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from refprotofl.core import InputError
from refprotofl.evaluation import PROTOCOLS, plan_of
from refprotofl.experiment import set_keys
from refprotofl.experiment.configuration import VALIDATION
from refprotofl.report import OverSeeds, tabulate, to_target
from refprotofl.report.comparable import check_comparable, check_settings
from refprotofl.report.comparison import against
from refprotofl.studies.planner import Study
from refprotofl.studies.results import Result
from refprotofl.studies.rows import Row, best_fit, check_rows, key_of, tuned_settings
from refprotofl.studies.trials import Base, Trial, seed_by_seed
from refprotofl.studies.tune.settings import read_searched, read_tuned


@dataclass(frozen=True)
class Tuned:
    """The settings that searches chose, by method, and the seeds that they were chosen with."""

    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ends: Mapping[str, Sequence[str]] = field(default_factory=dict)  # keys whose value is at an end of its grid
    seeds: Collection[int] = ()


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

    target: tuple[str, float] | None = None  # protocol and accuracy; clients hold out samples for it

    protocol: str = ""  # the table leads with it; if empty, the usual one
    tuned: Tuned = Tuned()

    def trials(self) -> list[Trial]:
        rows = [replace(row, settings=self._tuned(row)) for row in self.rows]
        return seed_by_seed(self._validated, rows, self.seeds, self.runs)

    def _tuned(self, row: Row) -> tuple[str, ...]:
        return tuned_settings(row.asked, self.tuned.settings, row.switched | set_keys(self.base.settings))

    def tuned_note(self, name: str) -> list[str]:
        """Return a note on the settings of a row that a search chose, if there are any."""
        row = next(row for row in self.rows if row.name == name)
        settings = self._tuned(row)
        ends = self.tuned.ends.get(best_fit(row.asked, self.tuned.settings) or "", ())
        shown = [f"{one}{' (at an end of its grid)' * (key_of(one) in ends)}" for one in settings]
        return [f"chosen by a search: {', '.join(shown)}"] if shown else []

    @property
    def _validated(self) -> Base:
        """The base, with samples held out if there is a target: it is not read off the test set."""
        held_out = self.target is None or any(self.base.experiment(row, 0).validation for row in self.rows)
        return self.base if held_out else self.base.under(f"validation={VALIDATION}")

    @property
    def switched(self) -> set[str]:
        """The keys that may differ, because the rows' switches say so or a search chose them."""
        chosen = {key_of(one) for row in self.rows for one in self._tuned(row)}
        return set().union(*(row.switched for row in self.rows), (key for key in chosen if key.startswith("train.")))


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


def read_target(typed: str | None) -> tuple[str, float] | None:
    """Return protocol and accuracy of --target."""
    if typed is None:
        return None
    named, _, share = typed.rpartition("=")
    try:
        accuracy = float(share)
    except ValueError:
        accuracy = 0.0
    protocol = named.strip() or "personal"
    if not 0 < accuracy <= 1:
        raise InputError(f"--target {typed}: expected an accuracy above 0 and up to 1, such as 0.8 or own=0.8.")
    if protocol not in PROTOCOLS:
        raise InputError(f"--target {typed}: there is no protocol {protocol!r}; known: {', '.join(PROTOCOLS)}.")
    return protocol, accuracy


def read_tuned_files(options: Sequence[str], stems: Sequence[str]) -> dict[str, Tuned]:
    """Read `[EXPERIMENT=]FILE` options; return what searches chose by the experiment's file name."""
    found = {stem: Tuned() for stem in stems}
    for option in options:
        before, equals, path = (part.strip() for part in option.rpartition("="))
        if equals and before not in found:
            raise InputError(f"--tuned {option}: {before} is not among the experiments, {', '.join(stems)}.")
        file = Path(path).expanduser()
        chosen, searched = read_tuned(file), read_searched(file)
        for stem in [before] if equals else stems:
            known = found[stem]
            twice = [name for name in chosen if name in known.settings]
            if twice:
                raise InputError(f"--tuned {option}: a file before it has settings for {twice[0]}, too.")
            found[stem] = Tuned(
                {**known.settings, **chosen},
                {**known.ends, **(searched.ends if searched else {})},
                {*known.seeds, *(searched.seeds if searched else ())},
            )
    return found


def check(request: Request) -> None:
    """InputError if the rows are not comparable, as far as their experiments show."""
    if request.margin is not None and request.baseline is None:
        raise InputError(f"--margin {request.margin:g}: there is no difference to judge with --against none.")
    check_rows(request.rows, request.seeds)
    trials = request.trials()
    check_settings([trial.experiment.plain() for trial in trials], request.switched)
    protocol = request.target[0] if request.target is not None else ""
    if protocol and not all(plan_of(trial.experiment, 1).scores(protocol) for trial in trials):
        raise InputError(
            f"--target {protocol}=…: {protocol} is not scored in every evaluation: name it in evaluate.protocols."
        )


def compare(request: Request) -> Study[Comparison]:
    trials = request.trials()
    outcomes = yield trials
    return comparison(request, outcomes.of(trials))


def comparison(request: Request, done: Sequence[tuple[Trial, Result]]) -> Comparison:
    """Return the comparison of finished runs; without one of the baseline, there are no differences."""
    check_comparable([result for _, result in done], request.switched)
    rows = [
        replace(row, protocol=request.protocol, notes=(*row.notes, *request.tuned_note(row.name)))
        for row in tabulate(done, request.last)
    ]
    if request.target is not None:
        protocol, accuracy = request.target
        runs = {row.name: [one for one in done if one[0].name == row.name] for row in rows}
        rows = [replace(row, to_target=to_target(runs[row.name], protocol, accuracy)) for row in rows]
    if request.baseline in {row.name for row in rows}:
        rows = against(rows, request.baseline, request.margin)
    return Comparison(rows, {trial.folder: trial.name for trial, _ in done})
