"""Which runs attacks against defences need: every attack, and none, under every defence, for each method and seed.

How honest clients fare: their accuracy, and how often a trigger leads them where the backdoor wants.

The table of attacks against defences, for people and for programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from refprotofl.core.errors import InputError
from refprotofl.core.units import counted
from refprotofl.evaluation.scoring import adapter_predictions, backbone_features
from refprotofl.experiment import Experiment
from refprotofl.experiment.attack_kinds import KINDS, draw_hostile
from refprotofl.experiment.sections import Attack
from refprotofl.export.trained_model import load_trained
from refprotofl.federation.attackers import stamped
from refprotofl.federation.simulation import load_federation
from refprotofl.report.formats import with_interval
from refprotofl.report.statistics import Estimate, estimate
from refprotofl.report.tables import Entry, Table
from refprotofl.studies.cells import Cell, cell_of, read_switches
from refprotofl.studies.results import Result

NO_ATTACK = "none"


@dataclass(frozen=True)
class Place:
    """Where a run stands in the table."""

    method: str
    attack: str  # each as it was asked for, switches included
    defence: str

    @property
    def kind(self) -> str:
        return read_switches(self.attack)[0]


@dataclass(frozen=True)
class Planned:
    place: Place
    cell: Cell
    target: int | None  # of a trigger that is tried: after a backdoor and, for what it does by itself, after no attack


@dataclass(frozen=True)
class Asked:
    """An experiment, and what is varied of it."""

    file: Path | None
    preset: str | None
    settings: tuple[str, ...]
    methods: tuple[str, ...]
    attacks: tuple[str, ...]
    fraction: float
    defences: tuple[str, ...]
    seeds: tuple[int, ...]

    def cells(self, out: Path) -> list[Planned]:
        """Seed by seed, so that an interrupted grid is complete for its first ones; that of no attack goes first."""
        self._check()
        places = [
            Place(method, attack, defence)
            for method in self.methods
            for attack in dict.fromkeys((NO_ATTACK, *self.attacks))
            for defence in self.defences
        ]
        cells = [(place, self._cell(place, seed, out)) for seed in self.seeds for place in places]
        targets = {place: cell.experiment.attack.target for place, cell in cells if place.kind == "backdoor"}
        beside = next(iter(targets.values()), None)
        return [
            Planned(place, cell, targets.get(place, beside if place.kind == NO_ATTACK else None))
            for place, cell in cells
        ]

    def _cell(self, place: Place, seed: int, out: Path) -> Cell:
        kind, switches = read_switches(place.attack)
        rule, defended = read_switches(place.defence)
        hostile = [f'attack.kind="{kind}"', f"attack.fraction={self.fraction}", *switches] if kind != NO_ATTACK else []
        settings = [*self.settings, f'aggregate="{rule}"', *defended, *hostile]
        cell = cell_of(self.file, self.preset, settings, place.method, seed, out)
        return replace(cell, name=f"{place.method}, {place.attack}, {place.defence}")

    def _check(self) -> None:
        for option, chosen in (("--kind", self.attacks), ("--defence", self.defences), ("--methods", self.methods)):
            if not chosen or len(set(chosen)) < len(chosen):
                raise InputError(f"{option} names nothing, or something twice: {', '.join(chosen) or 'nothing'}.")
        unknown = [one for one in self.attacks if read_switches(one)[0] not in (NO_ATTACK, *KINDS)]
        if unknown:
            raise InputError(f"--kind {unknown[0]}: allowed are {', '.join(KINDS)}.")


@dataclass(frozen=True)
class Outcome:
    """One finished run."""

    place: Place
    seed: int
    accuracy: float  # of honest clients, personal
    backdoor: float | None  # share of triggered images of other classes taken for the target, where it was tried
    folder: Path


@dataclass(frozen=True)
class Fared:
    """One place of the table over all seeds that came to a result."""

    place: Place
    outcomes: tuple[Outcome, ...]
    failed: tuple[int, ...] = ()  # seeds whose run came to none

    @property
    def accuracy(self) -> Estimate | None:
        return estimate([one.accuracy for one in self.outcomes]) if self.outcomes else None

    @property
    def backdoor(self) -> Estimate | None:
        tried = [one.backdoor for one in self.outcomes if one.backdoor is not None]
        return estimate(tried) if tried else None


def outcome_of(planned: Planned, cell: Cell, result: Result, fraction: float, data: Path | None) -> Outcome:
    """`cell` is as it was run: where its run lies may be elsewhere than planned."""
    backdoor = None
    if planned.target is not None:
        backdoor = backdoor_success(cell.folder, result, fraction, planned.target, data)
    accuracy = honest_accuracy(result, fraction)
    return Outcome(planned.place, cell.experiment.seed, accuracy, backdoor, cell.folder)


def by_place(planned: Sequence[Planned], outcomes: Sequence[Outcome], failed: Sequence[Cell]) -> list[Fared]:
    """In the order of the plan."""
    lost = {(cell.name, cell.experiment.seed) for cell in failed}
    names = {one.place: one.cell.name for one in planned}
    return [
        Fared(
            place,
            tuple(one for one in outcomes if one.place == place),
            tuple(sorted(seed for cell, seed in lost if cell == name)),
        )
        for place, name in names.items()
    ]


def honest_clients(experiment: Experiment, fraction: float) -> list[int]:
    """Those that are honest in the runs with an attack; of the run without one the same."""
    hostile = draw_hostile(experiment.seed, experiment.clients, Attack(fraction=fraction).number(experiment.clients))
    return [client for client in range(experiment.clients) if client not in hostile]


def honest_accuracy(result: Result, fraction: float) -> float:
    summary = result["summary"]
    honest = honest_clients(Experiment.parse(summary["experiment"]), fraction)
    found = [summary["accuracy_per_client"]["personal"][client] for client in honest]
    return fmean(value for value in found if value is not None)


def backdoor_success(folder: Path, result: Result, fraction: float, target: int, data: Path | None) -> float:
    """Mean over honest clients: test images of other classes, each with the trigger, that are taken for the target."""
    experiment = Experiment.parse(result["summary"]["experiment"])
    federation = load_federation(experiment, data)
    others = federation.test_labels != target
    images, shares = stamped(federation.test_images[others]), []
    for client in honest_clients(experiment, fraction):
        model = load_trained(folder, client, trust_code=True).model
        predicted = adapter_predictions(model, backbone_features(model, images), experiment.known_input.num_classes)
        shares.append(float((predicted[""] == target).to(torch.float64).mean()))
    return fmean(shares)


def tabulated(fared: Sequence[Fared], fraction: float, title: str) -> Table:
    """A row for each method and attack, a column for each defence; under a backdoor how often it opens."""
    methods, attacks, defences = (
        list(dict.fromkeys(getattr(one.place, name) for one in fared)) for name in ("method", "attack", "defence")
    )
    several = len(methods) > 1
    rows = []
    for method in methods:
        for attack in attacks:
            line = [one for one in fared if (one.place.method, one.place.attack) == (method, attack)]
            names = [method] * several
            rows.append(_row([*names, attack], [_accuracy(one) for one in line]))
            if any(one.backdoor for one in line):
                rows.append(_row([*names, f"{attack}: success"], [with_interval(one.backdoor) for one in line]))
    return Table(
        name="attack",
        title=title,
        headings=(*["method"] * several, "attack", *defences),
        rows=tuple(rows),
        records=tuple(_record(one) for one in fared),
        notes=_notes(fared),
        left=1 + several,
        about={"fraction": fraction, "by_seed": [_by_seed(one) for one in fared]},
    )


def _notes(fared: Sequence[Fared]) -> tuple[str, ...]:
    lines = ["accuracy: personal, mean over the honest clients, after the last round"]
    if any(one.backdoor for one in fared):
        lines.append("success: share of triggered images of other classes that honest clients take for the target")
    kinds = dict.fromkeys(one.place.kind for one in fared)
    return (*lines, *(f"{kind}: {KINDS[kind].line}" for kind in kinds if kind in KINDS))


def _row(names: Sequence[str], cells: Sequence[str]) -> tuple[Entry, ...]:
    return tuple(Entry(text) for text in (*names, *cells))


def _accuracy(one: Fared) -> str:
    if one.accuracy is None:
        return "failed"
    return with_interval(one.accuracy) + (f" ({counted(len(one.failed), 'run')} failed)" if one.failed else "")


def _record(one: Fared) -> dict[str, Any]:
    return {
        "method": one.place.method,
        "attack": one.place.attack,
        "defence": one.place.defence,
        "seeds": len(one.outcomes),
        "failed": len(one.failed),
        **_numbers("accuracy", one.accuracy),
        **_numbers("backdoor", one.backdoor),
    }


def _numbers(name: str, found: Estimate | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_half_width": None}
    return {name: found.mean, f"{name}_half_width": found.half_width}


def _by_seed(one: Fared) -> dict[str, Any]:
    seeds = {
        str(run.seed): {"accuracy": run.accuracy, "backdoor": run.backdoor, "run": str(run.folder)}
        for run in one.outcomes
    }
    place = {"method": one.place.method, "attack": one.place.attack, "defence": one.place.defence}
    return {**place, "seeds": seeds, "failed": list(one.failed)}
