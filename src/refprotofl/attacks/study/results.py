"""How honest clients fare: their accuracy, and how often a trigger leads them where the backdoor wants."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

from refprotofl.attacks.data import stamped
from refprotofl.attacks.kinds import draw_hostile
from refprotofl.attacks.study.grid import Place, Planned
from refprotofl.evaluation.scoring import adapter_predictions, backbone_features
from refprotofl.experiment import Experiment
from refprotofl.experiment.tables import Attack
from refprotofl.grids.cells import Cell
from refprotofl.grids.results import Result
from refprotofl.handover.trained import load_trained
from refprotofl.report.statistics import Estimate, estimate
from refprotofl.simulation.assembly import load_federation


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
