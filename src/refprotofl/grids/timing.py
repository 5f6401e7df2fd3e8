"""How long a grid will take: from its runs that are finished, else from one round of each kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from refprotofl.experiment import Experiment
from refprotofl.grids.cells import Cell
from refprotofl.records.summary import Summary
from refprotofl.simulation.run import Workers, run

WORTH_WORKERS = 20.0  # seconds of a run below which starting workers costs more than they save

Kind = tuple[str, str, int]


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


def kind_of(experiment: Experiment) -> Kind:
    """What a run's time depends on most."""
    return experiment.dataset, str(experiment.model.name), experiment.train_limit


class Clock:
    """How long the cells of a grid take that are not finished; what is not known yet is measured.

    `finished` are summaries by the hash of what was asked for.
    """

    def __init__(
        self, cells: Sequence[Cell], finished: Mapping[str, Summary], data: Path | None, tell: Callable[[str], None]
    ) -> None:
        self._left = [cell for cell in cells if cell.experiment.hash not in finished]
        known = [(cell.experiment, finished.get(cell.experiment.hash)) for cell in cells]
        self._paces: dict[Kind, Pace] = {}
        for kind in dict.fromkeys(kind_of(cell.experiment) for cell in self._left):
            paces = [pace_of(summary) for experiment, summary in known if summary and kind_of(experiment) == kind]
            if not paces:
                tell(f"Measuring how long a round on {kind[0]} takes")
                first = next(cell.experiment for cell in self._left if kind_of(cell.experiment) == kind)
                paces = [warm_up(first, data)]
            self._paces[kind] = Pace(fmean(one.train for one in paces), fmean(one.evaluate for one in paces))

    def seconds(self, cell: Cell) -> float:
        """In one process."""
        return self._paces[kind_of(cell.experiment)].total(cell.experiment)

    @property
    def total(self) -> float:
        return sum(map(self.seconds, self._left))

    def workers(self, cell: Cell, asked: Workers) -> Workers:
        return workers_for(self.seconds(cell), asked)


def workers_for(seconds: float, asked: Workers) -> Workers:
    """A run that is over before worker processes have started gets none, where the user leaves it to us."""
    return 1 if asked == "auto" and seconds < WORTH_WORKERS else asked


def warm_up(experiment: Experiment, data: Path | None) -> Pace:
    """By a run of two rounds: the first has more to do than the others."""
    short = experiment.model_copy(update={"rounds": 2})
    with TemporaryDirectory(prefix="refprotofl-") as folder:
        return pace_of(run(short, out=Path(folder) / "run", data=data).summary)
