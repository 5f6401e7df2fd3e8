"""How long a grid will take: from its runs that are finished, else from one round of each kind."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from refprotofl.experiment import Experiment
from refprotofl.grids.cells import Cell
from refprotofl.records.summary import Summary
from refprotofl.simulation.run import Workers, run


@dataclass(frozen=True)
class Pace:
    """Seconds of a round's training, and of an evaluation."""

    train: float
    evaluate: float

    def total(self, experiment: Experiment) -> float:
        return self.train * experiment.rounds + self.evaluate * evaluations(experiment)


def evaluations(experiment: Experiment) -> int:
    """How often a run evaluates: every so many rounds, and at the end."""
    whole, rest = divmod(experiment.rounds, experiment.evaluate.every)
    return whole + (rest > 0)


def pace_of(summary: Summary) -> Pace:
    ran = Experiment.parse(summary["experiment"])
    seconds = summary["seconds"]
    return Pace(seconds["train"] / ran.rounds, seconds["evaluate"] / evaluations(ran))


def kind_of(experiment: Experiment) -> tuple[str, str, int]:
    """What a run's time depends on most."""
    return experiment.dataset, str(experiment.model.name), experiment.train_limit


def measure(
    cells: Sequence[Cell],
    finished: Mapping[str, Summary],
    data: Path | None,
    workers: Workers,
    tell: Callable[[str], None],
) -> float:
    """Seconds that the unfinished cells will take; `finished` are summaries by the hash of what was asked for."""
    left = [cell for cell in cells if cell.experiment.hash not in finished]
    known = [(cell.experiment, finished[cell.experiment.hash]) for cell in cells if cell.experiment.hash in finished]
    paces = {
        kind: _mean(pace_of(one) for experiment, one in known if kind_of(experiment) == kind) for kind in _kinds(left)
    }
    for kind, pace in paces.items():
        if pace is None:
            tell(f"Measuring one round on {kind[0]}")
            first = next(cell.experiment for cell in left if kind_of(cell.experiment) == kind)
            paces[kind] = warm_up(first, data, workers)
    return sum(pace.total(cell.experiment) for cell in left if (pace := paces[kind_of(cell.experiment)]) is not None)


def warm_up(experiment: Experiment, data: Path | None, workers: Workers) -> Pace:
    """By a run of two rounds: the first has more to do than the others."""
    short = experiment.model_copy(update={"rounds": 2})
    with TemporaryDirectory(prefix="refprotofl-") as folder:
        return pace_of(run(short, out=Path(folder) / "run", data=data, workers=workers).summary)


def _kinds(cells: Sequence[Cell]) -> list[tuple[str, str, int]]:
    return list(dict.fromkeys(kind_of(cell.experiment) for cell in cells))


def _mean(paces: Iterable[Pace]) -> Pace | None:
    found = list(paces)
    if not found:
        return None
    return Pace(sum(one.train for one in found) / len(found), sum(one.evaluate for one in found) / len(found))
