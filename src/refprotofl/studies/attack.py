"""The study of attacks against defences: every attack, and none, under every defence, for each method and seed.

It measures the accuracy of the honest clients, and how often a backdoor's trigger succeeds with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from refprotofl.core import InputError, counted
from refprotofl.evaluation import adapter_predictions, backbone_features
from refprotofl.experiment import Attack, Experiment
from refprotofl.experiment.attack_kinds import KINDS, draw_hostile
from refprotofl.export.trained_model import load_trained
from refprotofl.federation import load_federation
from refprotofl.federation.attackers import stamped
from refprotofl.report import Entry, Estimate, Table, estimate, with_interval
from refprotofl.studies.planner import Study
from refprotofl.studies.results import Result
from refprotofl.studies.rows import Row, read_switches
from refprotofl.studies.trials import Base, Trial

NO_ATTACK = "none"


@dataclass(frozen=True)
class Case:
    """A method under one attack and one defence, each as the user gave it."""

    method: str
    attack: str
    defence: str

    @property
    def kind(self) -> str:
        return read_switches(self.attack)[0]

    def row(self, fraction: float) -> Row:
        kind, switches = read_switches(self.attack)
        aggregator, defended = read_switches(self.defence)
        hostile = [f'attack.kind="{kind}"', f"attack.fraction={fraction}", *switches] if kind != NO_ATTACK else []
        name = f"{self.method}, {self.attack}, {self.defence}"
        return Row(name, self.method, (f'aggregate="{aggregator}"', *defended, *hostile))


@dataclass(frozen=True)
class Request:
    """The methods, attacks and defences of a study, and the experiment that it starts from."""

    base: Base
    methods: tuple[str, ...]
    attacks: tuple[str, ...]
    fraction: float  # of hostile clients
    defences: tuple[str, ...]
    seeds: tuple[int, ...]

    def cases(self) -> list[Case]:
        """The cases without an attack come first."""
        return [
            Case(method, attack, defence)
            for method in self.methods
            for attack in dict.fromkeys((NO_ATTACK, *self.attacks))
            for defence in self.defences
        ]

    def trials(self, runs: Path) -> list[tuple[Case, Trial]]:
        """Seed by seed, so that an interrupted study is complete for its first seeds."""
        check(self)
        rows = [(case, case.row(self.fraction)) for case in self.cases()]
        return [(case, self.base.trial(row, seed, runs)) for seed in self.seeds for case, row in rows]


def check(request: Request) -> None:
    for option, given in (
        ("--kind", request.attacks),
        ("--defence", request.defences),
        ("--methods", request.methods),
    ):
        if not given or len(set(given)) < len(given):
            raise InputError(f"{option} is empty or has something twice: {', '.join(given) or 'nothing'}.")
    unknown = [one for one in request.attacks if read_switches(one)[0] not in (NO_ATTACK, *KINDS)]
    if unknown:
        raise InputError(f"--kind {unknown[0]}: allowed are {', '.join(KINDS)}.")


@dataclass(frozen=True)
class RunUnderAttack:
    """One finished run of a case."""

    seed: int
    accuracy: float  # of honest clients, personal
    backdoor: float | None  # share of triggered images of other classes that are classified as the target, if measured
    folder: Path


@dataclass(frozen=True)
class CaseResult:
    """One case over all seeds."""

    case: Case
    runs: tuple[RunUnderAttack, ...]
    failed: tuple[int, ...] = ()  # seeds whose run failed

    @property
    def accuracy(self) -> Estimate | None:
        return estimate([one.accuracy for one in self.runs]) if self.runs else None

    @property
    def backdoor(self) -> Estimate | None:
        measured = [one.backdoor for one in self.runs if one.backdoor is not None]
        return estimate(measured) if measured else None


def attack(request: Request, runs: Path, data: Path | None) -> Study[list[CaseResult]]:
    """Run every case, and evaluate its honest clients. `data` is needed to stamp triggers on test images."""
    planned = request.trials(runs)
    outcomes = yield [trial for _, trial in planned]
    targets = _targets(planned)
    results = []
    for case in request.cases():
        own = [trial for other, trial in planned if other == case]
        finished = [
            _run_under_attack(trial, result, request.fraction, targets.get(case), data)
            for trial, result in outcomes.of(own)
        ]
        failed = tuple(sorted(trial.experiment.seed for trial in own if trial.hash in outcomes.failures))
        results.append(CaseResult(case, tuple(finished), failed))
    return results


def _targets(planned: Sequence[tuple[Case, Trial]]) -> dict[Case, int]:
    """Return the class that triggers aim at: under a backdoor, and for comparison without an attack."""
    targets = {case: trial.experiment.attack.target for case, trial in planned if case.kind == "backdoor"}
    if not targets:
        return {}
    first = next(iter(targets.values()))
    return {case: first for case, _ in planned if case.kind == NO_ATTACK} | targets


def _run_under_attack(
    trial: Trial, result: Result, fraction: float, target: int | None, data: Path | None
) -> RunUnderAttack:
    backdoor = None if target is None else backdoor_success(trial.folder, result, fraction, target, data)
    return RunUnderAttack(trial.experiment.seed, honest_accuracy(result, fraction), backdoor, trial.folder)


def honest_clients(experiment: Experiment, fraction: float) -> list[int]:
    """Return the clients that are honest in the runs with an attack; without one, the same clients are scored."""
    hostile = draw_hostile(experiment.seed, experiment.clients, Attack(fraction=fraction).number(experiment.clients))
    return [client for client in range(experiment.clients) if client not in hostile]


def honest_accuracy(result: Result, fraction: float) -> float:
    summary = result["summary"]
    honest = honest_clients(Experiment.parse(summary["experiment"]), fraction)
    found = [summary["accuracy_per_client"]["personal"][client] for client in honest]
    return fmean(value for value in found if value is not None)


def backdoor_success(folder: Path, result: Result, fraction: float, target: int, data: Path | None) -> float:
    """Return the share of triggered test images of other classes that honest clients classify as the target."""
    experiment = Experiment.parse(result["summary"]["experiment"])
    federation = load_federation(experiment, data)
    others = federation.test_labels != target
    images, shares = stamped(federation.test_inputs[others]), []
    for client in honest_clients(experiment, fraction):
        model = load_trained(folder, client, trust_code=True).model
        predicted = adapter_predictions(model, backbone_features(model, images), experiment.known_input.num_classes)
        shares.append(float((predicted[""] == target).to(torch.float64).mean()))
    return fmean(shares)


def tabulated(results: Sequence[CaseResult], fraction: float, title: str) -> Table:
    """Return a table with a row for each method and attack, and a column for each defence."""
    methods, attacks, defences = (
        list(dict.fromkeys(getattr(one.case, name) for one in results)) for name in ("method", "attack", "defence")
    )
    several = len(methods) > 1
    rows = []
    for method in methods:
        for attack in attacks:
            line = [one for one in results if (one.case.method, one.case.attack) == (method, attack)]
            names = [method] * several
            rows.append(_row([*names, attack], [_accuracy(one) for one in line]))
            if any(one.backdoor for one in line):
                rows.append(_row([*names, f"{attack}: success"], [with_interval(one.backdoor) for one in line]))
    return Table(
        name="attack",
        title=title,
        headings=(*["method"] * several, "attack", *defences),
        rows=tuple(rows),
        records=tuple(_record(one) for one in results),
        notes=_notes(results),
        left=1 + several,
        about={"fraction": fraction, "by_seed": [_by_seed(one) for one in results]},
    )


def _notes(results: Sequence[CaseResult]) -> tuple[str, ...]:
    lines = ["accuracy: personal, mean over the honest clients, after the last round"]
    if any(one.backdoor for one in results):
        lines.append("success: share of triggered images of other classes that honest clients classify as the target")
    kinds = dict.fromkeys(one.case.kind for one in results)
    return (*lines, *(f"{kind}: {KINDS[kind].line}" for kind in kinds if kind in KINDS))


def _row(names: Sequence[str], cells: Sequence[str]) -> tuple[Entry, ...]:
    return tuple(Entry(text) for text in (*names, *cells))


def _accuracy(one: CaseResult) -> str:
    if one.accuracy is None:
        return "failed"
    return with_interval(one.accuracy) + (f" ({counted(len(one.failed), 'run')} failed)" if one.failed else "")


def _record(one: CaseResult) -> dict[str, Any]:
    return {
        "method": one.case.method,
        "attack": one.case.attack,
        "defence": one.case.defence,
        "seeds": len(one.runs),
        "failed": len(one.failed),
        **_numbers("accuracy", one.accuracy),
        **_numbers("backdoor", one.backdoor),
    }


def _numbers(name: str, found: Estimate | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_half_width": None}
    return {name: found.mean, f"{name}_half_width": found.half_width}


def _by_seed(one: CaseResult) -> dict[str, Any]:
    seeds = {
        str(run.seed): {"accuracy": run.accuracy, "backdoor": run.backdoor, "run": str(run.folder)} for run in one.runs
    }
    case = {"method": one.case.method, "attack": one.case.attack, "defence": one.case.defence}
    return {**case, "seeds": seeds, "failed": list(one.failed)}
