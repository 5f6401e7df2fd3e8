"""How a source is read, as the experiment's keys say it."""

from dataclasses import dataclass
from pathlib import Path

from refprotofl.data.resizing import AS_IT_IS, Sizing
from refprotofl.experiment import Experiment


@dataclass(frozen=True)
class Reading:
    sizing: Sizing = AS_IT_IS
    natural: bool = False  # whether the source tells whose sample each is
    seen_from: Path | None = None  # where a relative path may start too: the folder in which a stored run was begun


def reading_of(experiment: Experiment, seen_from: Path | None = None) -> Reading:
    sizing = Sizing(experiment.resize, experiment.crop)
    return Reading(sizing, experiment.partition == "natural", seen_from)
