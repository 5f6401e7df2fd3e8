"""The kinds of attacks, their default strengths, and the draw of hostile clients. No torch."""

from dataclasses import dataclass
from typing import Literal

from refprotofl.core import stream
from refprotofl.experiment import Experiment

Reach = Literal["update", "mask", "prototypes", "data"]


@dataclass(frozen=True)
class Kind:
    """One kind of attack."""

    line: str  # its effect in one line
    alters: Reach
    strength: float = 0.0  # the default


KINDS: dict[str, Kind] = {
    "signflip": Kind("sends its change backwards, times strength", "update", 1.0),
    "scaling": Kind("sends its change times strength", "update", 10.0),
    "alie": Kind("all send their group's mean change minus strength standard deviations (Baruch 2019)", "update", 1.5),
    "ipm": Kind("all send minus strength times their group's mean change (Xie 2020)", "update", 5.0),
    "squat": Kind("always sends the same coordinates, strength times its largest change", "mask", 10.0),
    "freerider": Kind(
        "sends back what it received, with noise of strength times its root mean square", "update", 0.001
    ),
    "prototype-shift": Kind("moves each class's prototype, by strength times their length", "prototypes", 10.0),
    "labelflip": Kind("trains on labels in reverse order", "data"),
    "backdoor": Kind("trains on half of its images with a bright corner and another label", "data"),
}


def strength_of(experiment: Experiment) -> float:
    return experiment.attack.strength or KINDS[experiment.attack.kind].strength


def hostile_clients(experiment: Experiment) -> list[int]:
    return draw_hostile(experiment.seed, experiment.clients, experiment.attack.number(experiment.clients))


def draw_hostile(seed: int, clients: int, number: int) -> list[int]:
    """Draw hostile clients from the seed alone, so that every kind of attack has the same ones."""
    return sorted(stream(seed, "hostile").choice(clients, number, replace=False).tolist())
