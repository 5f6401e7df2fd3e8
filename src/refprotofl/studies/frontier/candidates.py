"""The candidates of a frontier: methods with their switches, each with schedules of rounds and local epochs.

The value `fit` of a switch becomes the bytes of one message with which the whole run keeps within the limit.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from refprotofl.core import InputError, read_whole
from refprotofl.experiment import Experiment, load_experiment
from refprotofl.experiment.configuration import VALIDATION
from refprotofl.federation import prepare
from refprotofl.methods import find_method
from refprotofl.studies.frontier.limits import Limit, message_within
from refprotofl.studies.rows import Row, read_row, read_switches
from refprotofl.studies.trials import Base, Trial, rung
from refprotofl.studies.tune.space import spelt_key

_FULL = "fedavg:share=full"
_STC = f"{_FULL}:compress.name=stc:compress.keep=0.05"
_BOTH_WAYS = ":compress.downlink=same"
_DISTILLING = "thin.cooling=0.7:thin.server-epochs=5:thin.distil=1:thin.balance=on"
_FITTED = "thin.uplink-budget=fit:thin.downlink-budget=fit"
_LONG = ":rounds=6:train.local-epochs=6"
_FINETUNED = ":finetune.epochs=3:finetune.rate=0.1"
_WHOLE = (
    f"FedAvg = {_FULL}",
    f"FedAvg + STC 5 % = {_STC}",
    f"FedAvg + EDEN 1 bit both ways = {_FULL}:compress.name=eden:compress.bits=1{_BOTH_WAYS}",
    f"FedAvg + EDEN 4 bits both ways = {_FULL}:compress.name=eden:compress.bits=4{_BOTH_WAYS}",
    f"FedAvg + QSGD 4 bits both ways = {_FULL}:compress.name=qsgd:compress.bits=4:compress.bucket=48{_BOTH_WAYS}",
    f"FedAvg + QSGD 8 bits both ways = {_FULL}:compress.name=qsgd:compress.bits=8{_BOTH_WAYS}",
    f"FedAvg + top-k-ef 5 % both ways = {_FULL}:compress.name=top-k-ef:compress.keep=0.05{_BOTH_WAYS}",
    f"FedAvg + EF21 5 % = {_FULL}:compress.name=ef21:compress.keep=0.05",
)
_PERSONAL = ("fedper", "fedrep", "fedpac", "ditto")  # methods with a private part for a client's own class mix


def default_methods(protocol: str, with_schedules: bool) -> tuple[str, ...]:
    """Return the methods to try if the user names none.

    Common models are fine-tuned on the clients only for `own`, the one accuracy that this improves. Long rounds,
    which are recommended for thin, are tried with FedAvg, too, unless the user gives the schedules.
    """
    own = protocol.startswith("own")
    finetuned = _FINETUNED if own else ""
    thin = f"thin{finetuned}"
    long = "" if with_schedules else _LONG
    whole_in_long = (f"FedAvg in long rounds = {_FULL}{_LONG}", f"STC 5 % in long rounds = {_STC}{_LONG}")
    return (
        "refprotofl",
        f"thin = {thin}" if finetuned else thin,
        f"thin 2 bits = {thin}:thin.up-bits=2:thin.down-bits=2",
        f"thin that fits = {thin}:{_FITTED}",
        f"thin distilling = {thin}:{_DISTILLING}:thin.last-up-bits=1.7{long}",
        f"thin distilling that fits = {thin}:{_DISTILLING}:{_FITTED}{long}",
        *_WHOLE,
        *(() if with_schedules else whole_in_long),
        *((f"FedAvg + fine-tuning = {_FULL}{finetuned}", *_PERSONAL) if own else ()),
        *("scaffold:share=full", "fedadam:share=full", "fedmd", "FedDF by logits = feddf:feddf.upload=logits"),
        *("fedproto", "fedgh", "local"),
    )


_ANY_LENGTH = 1_000_000  # bytes in place of `fit`, before they are computed
_SCHEDULED = ("rounds", "train.local-epochs")
_FIT = re.compile(r"=\s*fit(?=:|$)")


@dataclass(frozen=True)
class Schedule:
    """A number of rounds, and the local epochs of each."""

    rounds: int
    epochs: int

    def __str__(self) -> str:
        return f"{self.rounds}x{self.epochs}"


def read_schedules(text: str) -> tuple[Schedule, ...]:
    """Read schedules such as `20x1,6x3`."""
    found = []
    for one in text.split(","):
        rounds, epochs = (read_whole(word.strip()) for word in one.partition("x")[::2])
        if not rounds or not epochs:
            raise InputError(f"--schedules {text}: allowed are rounds x epochs with commas between, such as 20x1,6x3.")
        found.append(Schedule(rounds, epochs))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Candidate:
    """A method with one schedule."""

    name: str
    method: str  # with its switches
    schedule: Schedule

    @property
    def title(self) -> str:
        return f"{self.name} {self.schedule}"


@dataclass(frozen=True)
class Request:
    """The candidates of a search, the experiment that it starts from, and its limit."""

    base: Base
    methods: tuple[str, ...] | None  # None: the default methods that can run the experiment
    schedules: tuple[Schedule, ...]  # none: two that follow from the experiment
    limit: Limit
    seeds: tuple[int, ...]
    protocol: str
    ends: int  # least number of candidates that run all their rounds
    out: Path

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Methods with their switches. If no default method can run the experiment, the first one's error says why."""
        if self.methods is not None:
            return tuple(map(read_row, self.methods))
        ours = tuple(map(read_row, default_methods(self.protocol, with_schedules=bool(self.schedules))))
        return tuple(row for row in ours if self._can_run(row.asked)) or ours

    def _can_run(self, method: str) -> bool:
        try:
            _check_fit(method, prepare(self._load(method)))
        except InputError:
            return False
        return True

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment of the first method, as the user gave it."""
        return self._load(self.rows[0].asked)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """A method that never sends runs one schedule; so does one whose switches set it."""
        rounds, epochs = self.experiment.rounds, self.experiment.train.local_epochs
        usual = (Schedule(rounds, epochs), Schedule(max(1, math.ceil(0.3 * rounds)), 3 * epochs))
        schedules = self.schedules or usual
        first, found = schedules[0], []
        for row in self.rows:
            method, named = _own_schedule(row.asked)
            own = (Schedule(named.get("rounds", first.rounds), named.get("train.local-epochs", first.epochs)),)
            own_or_all = own if named or not _sends(method) else schedules
            fitted = [self._fitted(method, one) for one in own_or_all]
            names = fitted if row.name == row.asked else [row.name] * len(fitted)
            found += list(map(Candidate, names, fitted, own_or_all))
        return tuple(dict.fromkeys(found) if self.methods is not None else _each_run_once(found))

    def _fitted(self, method: str, schedule: Schedule) -> str:
        if not _FIT.search(method):
            return method
        experiment = self._load(method)
        _check_fit(method, experiment)
        found = find_method(experiment.method)
        closing = experiment.clients if experiment.finetune.passes else 0
        free, late = found.seed_start(experiment), experiment.cohort_size < experiment.clients
        length = message_within(self.limit, schedule.rounds, experiment.cohort_size, closing, free, late)
        return _FIT.sub(f"={length}", method)

    def trial(self, candidate: Candidate, rounds: int, seed: int) -> Trial:
        """Return a trial of the candidate's first rounds; more rounds resume it, if the method allows that."""
        schedule = candidate.schedule
        own = (f"rounds={rounds}", f"train.local-epochs={schedule.epochs}")
        row = Row(candidate.title, candidate.method, own)
        return rung(self._validated.trial(row, seed, self.out / "runs"), schedule.rounds)

    def epochs(self, candidate: Candidate) -> int:
        """Return the local epochs of a client that takes part in every round, with those after the last round."""
        whole = self.trial(candidate, candidate.schedule.rounds, self.seeds[0]).experiment
        method = find_method(whole.method)
        return whole.rounds * method.local_epochs(whole) + whole.finetune.passes

    def command(self, candidate: Candidate, data: Path | None) -> list[str]:
        """Return the command that runs the candidate by itself and scores it on the test set."""
        base = self.base
        words = ["refprotofl", "run", *([str(base.file)] if base.file else [])]
        words += ["--preset", base.preset] if base.preset else []
        words += ["--data", str(data)] if data else []
        return [*words, *(word for one in self._keys_alone(candidate) for word in ("--set", one))]

    def alone(self, candidate: Candidate) -> Experiment:
        """Return the experiment that the command runs."""
        return load_experiment(self.base.file, self.base.preset, self._keys_alone(candidate))

    def _keys_alone(self, candidate: Candidate) -> list[str]:
        method, switches = read_switches(candidate.method)
        schedule = candidate.schedule
        own = [f"method={method}", *switches]
        own += [f"rounds={schedule.rounds}", f"train.local-epochs={schedule.epochs}"]
        named = {_key(one) for one in own} | {"validation", "seed"}
        base = self.base
        keys = [*(one for one in base.settings if _key(one) not in named), *own]
        if replace(base, settings=tuple(keys)).experiment(Row(method, method), self.seeds[0]).validation:
            keys.append("validation=0")
        return keys

    @property
    def searched(self) -> Experiment:
        """The experiment of the first candidate, with validation data held out."""
        return self.trial(self.candidates[0], self.candidates[0].schedule.rounds, self.seeds[0]).experiment

    @cached_property
    def _validated(self) -> Base:
        return self.base if self.experiment.validation else self.base.under(f"validation={VALIDATION}")

    def _load(self, method: str) -> Experiment:
        """Load the experiment of a method, without its own schedule and with any bytes for `fit`."""
        any_length = _FIT.sub(f"={_ANY_LENGTH}", _own_schedule(method)[0])
        experiment = self.base.experiment(Row(method, any_length), self.seeds[0])
        if experiment.stop.enabled:
            raise InputError(f"{method}: candidates run to the end of their schedules, so leave out [stop].")
        if experiment.train.local_steps:
            raise InputError(
                f"{method}: schedules are of rounds and train.local-epochs, so leave out train.local-steps = "
                f"{experiment.train.local_steps}."
            )
        return experiment


def _each_run_once(found: Iterable[Candidate]) -> Iterable[Candidate]:
    """Drop repeated runs: the schedule of long rounds may be the experiment's own."""
    once: dict[tuple[str, Schedule], Candidate] = {}
    for one in found:
        once.setdefault((one.method, one.schedule), one)
    return once.values()


def _key(setting: str) -> str:
    return spelt_key(setting.partition("=")[0].strip())


def _own_schedule(asked: str) -> tuple[str, dict[str, int]]:
    """Return the method without the switches of its schedule, and these by key."""
    method, switches = read_switches(asked)
    named: dict[str, int] = {}
    for one in switches:
        key, value = _key(one), one.partition("=")[2].strip()
        if key in _SCHEDULED:
            named[key] = read_whole(value) or 0
            if not named[key]:
                raise InputError(f"{asked}: {key} = {value} is not a whole number of at least 1.")
    others = [one for one in switches if _key(one) not in _SCHEDULED]
    return ":".join([method, *others]), named


def _check_fit(method: str, experiment: Experiment) -> None:
    """Refuse `fit` where the bytes of other messages would exceed the limit."""
    if len(_FIT.findall(method)) == 1:
        raise InputError(f"{method}: fit is the bytes of a message in either direction, so both budgets must have it.")
    if _FIT.search(method) and find_method(experiment.method).join_payload(experiment):
        raise InputError(
            f"{method}: fit does not include the bytes that a client is sent when it joins, such as the public set "
            "with public.train-on; give bytes instead."
        )


def _sends(method: str) -> bool:
    return read_switches(method)[0] != "local"
