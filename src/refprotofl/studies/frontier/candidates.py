"""What a frontier is searched among: methods with their switches, each with several schedules of rounds and epochs.

A switch that is `fit` becomes the bytes that one message may have, so that the whole keeps within the limit.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from refprotofl.core.errors import InputError
from refprotofl.core.units import read_whole
from refprotofl.experiment import Experiment
from refprotofl.federation.resolution import prepare
from refprotofl.methods.catalogue import find_method
from refprotofl.studies.cells import Cell, cell_name, cell_of, read_name, read_switches
from refprotofl.studies.frontier.limits import Limit, message_within
from refprotofl.studies.tune.search import SHARE
from refprotofl.studies.tune.space import spelt_key

_FULL = "fedavg:share=full"
_STC = f"{_FULL}:compress.name=stc:compress.keep=0.05"
_DISTILLING = "thin.cooling=0.7:thin.server-epochs=5:thin.distil=1:thin.balance=on"
_FITTED = "thin.uplink-budget=fit:thin.downlink-budget=fit"
_LONG = ":rounds=6:train.local-epochs=6"
_WHOLE = (
    f"FedAvg = {_FULL}",
    f"FedAvg + STC 5 % = {_STC}",
    f"FedAvg + QSGD 4 bits = {_FULL}:compress.name=qsgd:compress.bits=4",
    f"FedAvg + top-k-ef 5 % = {_FULL}:compress.name=top-k-ef:compress.keep=0.05",
    f"FedAvg + EF21 5 % = {_FULL}:compress.name=ef21:compress.keep=0.05",
)
_PERSONAL = ("fedper", "fedrep", "fedpac")  # whose private part is for a client's own mix of classes


def our_choice(protocol: str, with_schedules: bool) -> tuple[str, ...]:
    """The methods that are tried where the user names none.

    Tuned for oneself thin is another model, good for `own` alone. Long rounds, which are recommended for it, are tried
    with FedAvg, too; not so where the user says which schedules.
    """
    own = protocol.startswith("own")
    thin = f"thin:{'thin.tune-rate=0.1' if own else 'thin.tune-epochs=0'}"
    long = "" if with_schedules else _LONG
    whole_in_long = (f"FedAvg in long rounds = {_FULL}{_LONG}", f"STC 5 % in long rounds = {_STC}{_LONG}")
    return (
        "refprotofl",
        f"thin = {thin}",
        f"thin 2 bits = {thin}:thin.up-bits=2:thin.down-bits=2",
        f"thin that fits = {thin}:{_FITTED}",
        f"thin distilling = {thin}:{_DISTILLING}:thin.last-up-bits=1.7{long}",
        f"thin distilling that fits = {thin}:{_DISTILLING}:{_FITTED}{long}",
        *_WHOLE,
        *(() if with_schedules else whole_in_long),
        *(_PERSONAL if own else ()),
        *("fedproto", "fedgh", "local"),
    )


_ANY_LENGTH = 1_000_000  # stands for bytes that are not computed yet
_SCHEDULED = ("rounds", "train.local-epochs")
_FIT = re.compile(r"=\s*fit(?=:|$)")


@dataclass(frozen=True)
class Schedule:
    rounds: int
    epochs: int  # local ones, in each round

    def __str__(self) -> str:
        return f"{self.rounds}x{self.epochs}"


def read_schedules(text: str) -> tuple[Schedule, ...]:
    """`20x1,6x3`: rounds and the local epochs of each."""
    found = []
    for one in text.split(","):
        rounds, epochs = (read_whole(word.strip()) for word in one.partition("x")[::2])
        if not rounds or not epochs:
            raise InputError(f"--schedules {text}: allowed are rounds x epochs with commas between, such as 20x1,6x3.")
        found.append(Schedule(rounds, epochs))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Candidate:
    name: str  # what it is called
    method: str  # with its switches
    schedule: Schedule

    @property
    def title(self) -> str:
        return f"{self.name} {self.schedule}"


@dataclass(frozen=True)
class Request:
    """What is searched, on which experiment, within which limit."""

    file: Path | None
    preset: str | None
    settings: tuple[str, ...]
    methods: tuple[str, ...] | None  # None: all of ours that the experiment lets
    schedules: tuple[Schedule, ...]  # none: those that follow from the experiment
    limit: Limit
    seeds: tuple[int, ...]
    protocol: str
    ends: int  # how many candidates are run to their end, at least
    out: Path

    @cached_property
    def tried(self) -> tuple[str, ...]:
        """Methods with their switches. Where none is left, the first one tells what is wrong."""
        if self.methods is not None:
            return self.methods
        ours = our_choice(self.protocol, with_schedules=bool(self.schedules))
        return tuple(filter(self._lets, ours)) or ours

    def _lets(self, asked: str) -> bool:
        method = read_name(asked)[1]
        try:
            _check_fit(method, prepare(self._load(method)))
        except InputError:
            return False
        return True

    @cached_property
    def base(self) -> Experiment:
        return self._load(read_name(self.tried[0])[1])

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """One that never sends has no use for another schedule; one whose switches name a schedule has that alone."""
        rounds, epochs = self.base.rounds, self.base.train.local_epochs
        usual = (Schedule(rounds, epochs), Schedule(max(1, math.ceil(0.3 * rounds)), 3 * epochs))
        schedules = self.schedules or usual
        first, found = schedules[0], []
        for name, asked in map(read_name, self.tried):
            method, named = _own_schedule(asked)
            own = (Schedule(named.get("rounds", first.rounds), named.get("train.local-epochs", first.epochs)),)
            own_or_all = own if named or not _sends(method) else schedules
            fitted = [self._fitted(method, one) for one in own_or_all]
            names = fitted if name == asked else [name] * len(fitted)
            found += list(map(Candidate, names, fitted, own_or_all))
        return tuple(dict.fromkeys(found) if self.methods is not None else _each_run_once(found))

    def _fitted(self, method: str, schedule: Schedule) -> str:
        if not _FIT.search(method):
            return method
        experiment = self._load(method)
        _check_fit(method, experiment)
        found = find_method(experiment.method)
        closing = experiment.clients if found.finetune_epochs(experiment) else 0
        free, late = found.seed_start(experiment), experiment.cohort_size < experiment.clients
        length = message_within(self.limit, schedule.rounds, experiment.cohort_size, closing, free, late)
        return _FIT.sub(f"={length}", method)

    def cell(self, candidate: Candidate, rounds: int, seed: int) -> Cell:
        """A run of its first rounds. More of them go on in the same folder, if the method lets them."""
        schedule = candidate.schedule
        own = [*self._settings, f"rounds={rounds}", f"train.local-epochs={schedule.epochs}"]
        cell = cell_of(self.file, self.preset, own, candidate.method, seed, self.out / "runs")
        named = replace(cell, name=candidate.title)
        if find_method(cell.experiment.method).depends_on_rounds:
            return named
        whole = cell.experiment.model_copy(update={"rounds": schedule.rounds})
        return replace(named, folder=self.out / "runs" / cell_name(whole))

    def epochs(self, candidate: Candidate) -> int:
        """Passes over its samples of a client that takes part in every round, with those after the last one."""
        whole = self.cell(candidate, candidate.schedule.rounds, self.seeds[0]).experiment
        method = find_method(whole.method)
        return whole.rounds * method.local_epochs(whole) + method.finetune_epochs(whole)

    def command(self, candidate: Candidate, data: Path | None) -> list[str]:
        """How the candidate is run by itself, on the test set of what lies in `data`."""
        method, switches = read_switches(candidate.method)
        schedule = candidate.schedule
        own = [f"method={method}", *switches]
        own += [f"rounds={schedule.rounds}", f"train.local-epochs={schedule.epochs}"]
        named = {_key(one) for one in own} | {"validation", "seed"}
        keys = [*(one for one in self.settings if _key(one) not in named), *own]
        if cell_of(self.file, self.preset, keys, method, self.seeds[0], self.out).experiment.validation:
            keys.append("validation=0")
        words = ["refprotofl", "run", *([str(self.file)] if self.file else [])]
        words += ["--preset", self.preset] if self.preset else []
        words += ["--data", str(data)] if data else []
        return [*words, *(word for one in keys for word in ("--set", one))]

    @property
    def searched(self) -> Experiment:
        """That of the first candidate, with data held out."""
        return self.cell(self.candidates[0], self.candidates[0].schedule.rounds, self.seeds[0]).experiment

    @cached_property
    def _settings(self) -> Sequence[str]:
        """Those that were asked for, always with data held out: the test set is never scored."""
        return [*self.settings, *([] if self.base.validation else [f"validation={SHARE}"])]

    def _load(self, method: str) -> Experiment:
        """What was asked for with this method, whatever its schedule and what fits."""
        any_length = _FIT.sub(f"={_ANY_LENGTH}", _own_schedule(method)[0])
        return cell_of(self.file, self.preset, self.settings, any_length, self.seeds[0], self.out).experiment


def _each_run_once(found: Iterable[Candidate]) -> Iterable[Candidate]:
    """Under the first of its names: long rounds may be those of the experiment."""
    once: dict[tuple[str, Schedule], Candidate] = {}
    for one in found:
        once.setdefault((one.method, one.schedule), one)
    return once.values()


def _key(setting: str) -> str:
    return spelt_key(setting.partition("=")[0].strip())


def _own_schedule(asked: str) -> tuple[str, dict[str, int]]:
    """The method without the rounds and epochs among its switches, and these by key."""
    method, switches = read_switches(asked)
    named: dict[str, int] = {}
    for one in switches:
        key, value = _key(one), one.partition("=")[2].strip()
        if key in _SCHEDULED:
            named[key] = read_whole(value) or 0
            if not named[key]:
                raise InputError(f"{asked}: {key} = {value} is no whole number of 1 or more.")
    others = [one for one in switches if _key(one) not in _SCHEDULED]
    return ":".join([method, *others]), named


def _check_fit(method: str, experiment: Experiment) -> None:
    """What is not a message of that length would go beyond what is allowed."""
    if len(_FIT.findall(method)) == 1:
        raise InputError(f"{method}: fit stands for the bytes of a message either way, so both budgets must have it.")
    if _FIT.search(method) and find_method(experiment.method).join_payload(experiment):
        raise InputError(
            f"{method}: fit does not know the bytes of what a client is sent when it joins, such as the public set "
            "with public.train-on; say bytes."
        )


def _sends(method: str) -> bool:
    return read_switches(method)[0] != "local"
