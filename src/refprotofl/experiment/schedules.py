"""Learning-rate schedules: the factor of the rate in a round, for `train.schedule` and `train.warmup`."""

import math
from collections.abc import Callable
from dataclasses import dataclass

DIGITS = 12  # a last digit that differs between two C libraries must not reach the weights


@dataclass(frozen=True)
class Steps:
    """The steps of the schedule `step`: the rate is multiplied by `gamma` every `size` rounds, 0 for a third of all."""

    size: int
    gamma: float


Schedule = Callable[[int, int, Steps], float]  # finished rounds, all rounds -> factor above 0


def _constant(done: int, rounds: int, steps: Steps) -> float:
    return 1.0


def _cosine(done: int, rounds: int, steps: Steps) -> float:
    return (1 + math.cos(math.pi * done / rounds)) / 2


def _step(done: int, rounds: int, steps: Steps) -> float:
    return steps.gamma ** (done // (steps.size or math.ceil(rounds / 3)))


def _linear(done: int, rounds: int, steps: Steps) -> float:
    return 1 - done / rounds


SCHEDULES: dict[str, Schedule] = {"constant": _constant, "cosine": _cosine, "step": _step, "linear": _linear}


def rate_factor(schedule: str, round: int, rounds: int, warmup: int, steps: Steps) -> float:
    """Return the factor of the learning rate in a round, counted from 1, of `rounds`.

    In the `warmup` rounds it rises evenly: w of them have the factors 1/(w+1), …, w/(w+1). The schedule begins with the
    round after them, at a factor of 1.
    """
    if round <= warmup:
        return round / (warmup + 1)
    factor = SCHEDULES[schedule](round - 1 - warmup, rounds - warmup, steps)
    return float(f"{factor:.{DIGITS}g}")
