"""The time that trials take in one process of this machine: learned from finished runs, else from two rounds.

Training time is in proportion to the passes over the clients' data, evaluation time to the number of evaluations. All
else that the time depends on is the kind of a run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from refprotofl.core import MachineError, RefProtoFLError, RunError
from refprotofl.experiment import Experiment
from refprotofl.federation import Workers, run
from refprotofl.methods import find_method
from refprotofl.privacy import create_mechanism
from refprotofl.records import Summary, describe_machine, read_events
from refprotofl.studies.trials import Trial

WORTH_WORKERS = 20.0  # seconds of a run below which starting workers costs more than they save
WORTH_MEASURING = 40  # rounds of a kind for which two more are a small price
_SPEED = ("platform", "processor", "cores", "torch")  # machines that agree in these are taken to be equally fast
SAMPLES = 10_000  # of a client, where only the proportion of its steps matters


@dataclass(frozen=True)
class Pace:
    """Seconds of a pass over the clients' data, and of an evaluation."""

    train: float
    evaluate: float

    def total(self, experiment: Experiment) -> float:
        return self.train * passes(experiment) + self.evaluate * evaluations(experiment)


def passes(experiment: Experiment) -> float:
    """Return the passes over all clients' data in all rounds, and after the last one."""
    method = find_method(experiment.method)
    closing = create_mechanism(experiment).finetune_steps(SAMPLES)
    steps = experiment.rounds * method.steps_of_round(experiment, SAMPLES) + closing
    return experiment.fraction * max(experiment.rounds, steps / experiment.train.steps_per_epoch(SAMPLES))


def evaluations(experiment: Experiment) -> int:
    """Return the number of evaluations of a run."""
    return len(experiment.evaluated_rounds)


def pace_of(summary: Summary) -> Pace:
    asked = Experiment.parse(summary["experiment"])
    ran = asked.model_copy(update={"rounds": summary.get("rounds_done", asked.rounds)})  # it may have stopped early
    seconds = summary["seconds"]
    return Pace(seconds["train"] / passes(ran), seconds["evaluate"] / evaluations(ran))


@dataclass(frozen=True)
class Kind:
    """The settings that the time of a pass and of an evaluation depends on most."""

    ground: tuple[object, ...]  # data, model and device
    method: str
    more: tuple[object, ...]  # what makes a method's steps longer, or more of them


def kind_of(experiment: Experiment) -> Kind:
    data = (experiment.dataset, experiment.train_limit, experiment.resize, experiment.crop)
    scored = (experiment.evaluate.clients, experiment.evaluate.test_limit)
    ground = (*data, experiment.clients, *scored, str(experiment.model), experiment.train.batch_size, experiment.device)
    return Kind(ground, experiment.method, (experiment.public.train_on, create_mechanism(experiment).unit))


class Clock:
    """The paces of runs by their kinds."""

    def __init__(self) -> None:
        self._paces: dict[Kind, list[Pace]] = {}

    def learn(self, experiment: Experiment, summary: Summary) -> None:
        """Add a finished run of what `experiment` asked for."""
        self._paces.setdefault(kind_of(experiment), []).append(pace_of(summary))

    def seconds(self, experiment: Experiment) -> float:
        """Return the time of a run; that of the slowest known kind if its own is unknown, infinite if none is known."""
        known = self._paces.get(kind_of(experiment))
        if known is not None:
            pace = Pace(fmean(one.train for one in known), fmean(one.evaluate for one in known))
            return pace.total(experiment)
        paces = [pace for some in self._paces.values() for pace in some]
        return max((pace.total(experiment) for pace in paces), default=math.inf)

    def estimate(
        self,
        trials: Sequence[Trial],
        finished: Mapping[str, Summary],
        data: Path | None,
        report: Callable[[str], None],
    ) -> float:
        """Return the seconds that unfinished trials take together; kinds of which no run is known are measured.

        `finished` are summaries by the hash of the trial.
        """
        left: dict[Kind, list[Experiment]] = {}
        for trial in trials:
            if trial.hash not in finished:
                left.setdefault(kind_of(trial.experiment), []).append(trial.experiment)
        grounds = {kind.ground for kind in left}
        for trial in trials:
            summary = finished.get(trial.hash)
            if summary and kind_of(trial.experiment).ground in grounds and ran_alone_here(trial.folder):
                self.learn(trial.experiment, summary)
        for kind in sorted(left, key=lambda kind: -_rounds(left[kind])):
            if kind not in self._paces:
                self._paces[kind] = [self._measured(kind, left[kind], data, report)]
        return sum(self.seconds(experiment) for some in left.values() for experiment in some)

    def _measured(
        self, kind: Kind, experiments: Sequence[Experiment], data: Path | None, report: Callable[[str], None]
    ) -> Pace:
        """Measure a kind; one of few rounds, or whose rounds fail, is taken to be like another on the same ground."""
        near = next((paces[0] for other, paces in self._paces.items() if other.ground == kind.ground), None)
        if near is not None and _rounds(experiments) < WORTH_MEASURING:
            return near
        first = experiments[0]
        report(f"Measuring the time of a round of {first.method} on {first.dataset}")
        try:
            return warm_up(first, data)
        except MachineError:
            raise
        except RunError:  # reported when its turn comes
            return near or Pace(0.0, 0.0)


def _rounds(experiments: Sequence[Experiment]) -> int:
    return sum(experiment.rounds for experiment in experiments)


def ran_alone_here(folder: Path) -> bool:
    """Return whether the run in a folder is known to have run in one process of a machine like this one."""
    try:
        starts = [event for event in read_events(folder) if event["event"] in ("start", "resume")]
    except RefProtoFLError:
        return False
    here = describe_machine()
    return bool(starts) and all(event.get("workers") == 1 and _is_like(here, event.get("machine")) for event in starts)


def _is_like(here: Mapping[str, object], recorded: object) -> bool:
    return isinstance(recorded, dict) and all(recorded.get(name) == here[name] for name in _SPEED)


def workers_for(seconds: float, asked: Workers) -> Workers:
    """Return one worker for a run that ends before worker processes have started, unless the user asks for more."""
    return 1 if asked == "auto" and seconds < WORTH_WORKERS else asked


def warm_up(experiment: Experiment, data: Path | None) -> Pace:
    """Measure two rounds: the first has more to do than the others."""
    short = experiment.model_copy(update={"rounds": 2})
    with TemporaryDirectory(prefix="refprotofl-") as folder:
        return pace_of(run(short, out=Path(folder) / "run", data=data).summary)
