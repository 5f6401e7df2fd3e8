"""How long a grid will take in one process of this machine: from its runs that were done so, else from two rounds.

A run's training is in proportion to its passes over the clients' data, and its evaluations to their number; for what
else it depends on there are kinds of runs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from refprotofl.core.errors import MachineError, RefProtoFLError, RunError
from refprotofl.experiment import Experiment
from refprotofl.federation.session import Workers, run
from refprotofl.methods.catalogue import find_method
from refprotofl.privacy.mechanisms import create_mechanism
from refprotofl.records.events import read_events
from refprotofl.records.machine import describe_machine
from refprotofl.records.summary import Summary
from refprotofl.studies.cells import Cell

WORTH_WORKERS = 20.0  # seconds of a run below which starting workers costs more than they save
WORTH_MEASURING = 40  # rounds of a kind for which two more are a small price
_SPEED = ("platform", "processor", "cores", "torch")  # what tells machines apart that are not as fast
SAMPLES = 10_000  # of a client, where only the proportion of its steps is asked for


@dataclass(frozen=True)
class Pace:
    """Seconds of a pass over the clients' data, and of an evaluation."""

    train: float
    evaluate: float

    def total(self, experiment: Experiment) -> float:
        return self.train * passes(experiment) + self.evaluate * evaluations(experiment)


def passes(experiment: Experiment) -> float:
    """Over all clients' data, in all rounds and after the last."""
    method, batch = find_method(experiment.method), experiment.train.batch_size
    closing = create_mechanism(experiment).finetune_steps(SAMPLES) / math.ceil(SAMPLES / batch)
    return experiment.fraction * (experiment.rounds * max(1, method.local_epochs(experiment)) + closing)


def evaluations(experiment: Experiment) -> int:
    """How often a run evaluates: every so many rounds, and at the end."""
    whole, rest = divmod(experiment.rounds, experiment.evaluate.every)
    return whole + (rest > 0)


def pace_of(summary: Summary) -> Pace:
    ran = Experiment.parse(summary["experiment"])
    seconds = summary["seconds"]
    return Pace(seconds["train"] / passes(ran), seconds["evaluate"] / evaluations(ran))


@dataclass(frozen=True)
class Kind:
    """What the time of a pass and of an evaluation depends on most."""

    ground: tuple[object, ...]  # data, model and device
    method: str
    more: tuple[object, ...]  # what makes a method's steps longer, or more of them


def kind_of(experiment: Experiment) -> Kind:
    data = (experiment.dataset, experiment.train_limit, experiment.resize, experiment.crop)
    scored = (experiment.evaluate.clients, experiment.evaluate.test_limit)
    ground = (*data, experiment.clients, *scored, str(experiment.model), experiment.train.batch_size, experiment.device)
    return Kind(ground, experiment.method, (experiment.public.train_on, create_mechanism(experiment).unit))


class Clock:
    """How long the cells of a grid take that are not finished; what is not known yet is measured.

    `finished` are summaries by the hash of what was asked for.
    """

    def __init__(
        self, cells: Sequence[Cell], finished: Mapping[str, Summary], data: Path | None, tell: Callable[[str], None]
    ) -> None:
        self._left = [cell for cell in cells if cell.experiment.hash not in finished]
        self._data, self._tell = data, tell
        left: dict[Kind, list[Experiment]] = {}
        for cell in self._left:
            left.setdefault(kind_of(cell.experiment), []).append(cell.experiment)
        grounds = {kind.ground for kind in left}
        done = [cell for cell in cells if cell.experiment.hash in finished]
        asked = [cell for cell in done if kind_of(cell.experiment).ground in grounds and alone_here(cell.folder)]
        self._paces = _means([(cell.experiment, finished[cell.experiment.hash]) for cell in asked])
        for kind in sorted(left, key=lambda kind: -_rounds(left[kind])):
            if kind not in self._paces:
                self._paces[kind] = self._found(kind, left[kind])

    def _found(self, kind: Kind, experiments: Sequence[Experiment]) -> Pace:
        """A kind of few rounds is taken to be like another on the same ground; and so is one whose rounds fail."""
        near = next((pace for other, pace in self._paces.items() if other.ground == kind.ground), None)
        if near is not None and _rounds(experiments) < WORTH_MEASURING:
            return near
        first = experiments[0]
        self._tell(f"Measuring how long a round of {first.method} on {first.dataset} takes")
        try:
            return warm_up(first, self._data)
        except MachineError:
            raise
        except RunError:  # it is told when its turn comes
            return near or Pace(0.0, 0.0)

    def seconds(self, cell: Cell) -> float:
        """In one process."""
        return self._paces[kind_of(cell.experiment)].total(cell.experiment)

    @property
    def total(self) -> float:
        return sum(map(self.seconds, self._left))

    def workers(self, cell: Cell, asked: Workers) -> Workers:
        return workers_for(self.seconds(cell), asked)


def _rounds(experiments: Sequence[Experiment]) -> int:
    return sum(experiment.rounds for experiment in experiments)


def _means(done: Sequence[tuple[Experiment, Summary]]) -> dict[Kind, Pace]:
    """Of finished runs, by what was asked for."""
    found: dict[Kind, list[Pace]] = {}
    for experiment, summary in done:
        found.setdefault(kind_of(experiment), []).append(pace_of(summary))
    return {
        kind: Pace(fmean(one.train for one in paces), fmean(one.evaluate for one in paces))
        for kind, paces in found.items()
    }


def alone_here(folder: Path) -> bool:
    """Whether the run in a folder was done in one process of a machine like this one; nobody knows without it."""
    try:
        starts = [event for event in read_events(folder) if event["event"] in ("start", "resume")]
    except RefProtoFLError:
        return False
    here = describe_machine()
    return bool(starts) and all(event.get("workers") == 1 and _is_like(here, event.get("machine")) for event in starts)


def _is_like(here: Mapping[str, object], told: object) -> bool:
    return isinstance(told, dict) and all(told.get(name) == here[name] for name in _SPEED)


def workers_for(seconds: float, asked: Workers) -> Workers:
    """A run that is over before worker processes have started gets none, where the user leaves it to us."""
    return 1 if asked == "auto" and seconds < WORTH_WORKERS else asked


def warm_up(experiment: Experiment, data: Path | None) -> Pace:
    """By a run of two rounds: the first has more to do than the others."""
    short = experiment.model_copy(update={"rounds": 2})
    with TemporaryDirectory(prefix="refprotofl-") as folder:
        return pace_of(run(short, out=Path(folder) / "run", data=data).summary)
