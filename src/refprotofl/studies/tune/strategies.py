"""Search strategies: a strategy yields configurations, receives their scores, and returns the one that it chooses.

- `each` tries the values of one key after another, with the best values so far of the other keys.
- `grid` tries all combinations.
- `random` draws from a scrambled Halton sequence (scipy's), which covers the space more evenly than independent draws.
- `halving` starts with the same draws at a fraction of the rounds; the best third continues with three times the
  rounds, until the last have all of them (successive halving, Jamieson and Talwalkar 2016). Numbers that do not divide
  are rounded: configurations down, rounds up. With fewer than 3 configurations or rounds it is `random`.

Ties go to the configuration that was proposed first.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import product

import numpy as np

from refprotofl.core import InputError, streams
from refprotofl.studies.tune.space import Dimension, Range

REDUCTION = 3  # one of 3 configurations of a rung continues, with 3 times the rounds


@dataclass(frozen=True)
class Configuration:
    """Values of the searched keys, and a number of rounds."""

    settings: tuple[tuple[str, str], ...]  # keys with their values
    rounds: int

    @property
    def typed(self) -> list[str]:
        """The settings as `--set` takes them."""
        return [f"{key}={value}" for key, value in self.settings]


Scores = Mapping[Configuration, float]  # -inf for one that failed
Search = Generator[list[Configuration], Scores, Configuration]


@dataclass(frozen=True)
class Budget:
    """The size of a search."""

    rounds: int  # of a whole run
    trials: int  # that are drawn
    seed: int = 0  # of the draws


def _best(scores: Scores) -> Configuration:
    """Return the first of the best."""
    return max(scores, key=lambda trial: scores[trial])


def grid(dimensions: Sequence[Dimension], budget: Budget) -> Search:
    pairs = [[(one.key, value) for value in _listed(one)] for one in dimensions]
    scores = yield [Configuration(settings, budget.rounds) for settings in product(*pairs)]
    return _best(scores)


def each(dimensions: Sequence[Dimension], budget: Budget) -> Search:
    chosen: dict[str, str] = {}
    best = Configuration((), budget.rounds)
    if not dimensions:
        yield [best]
    for one in dimensions:
        tried = [{**chosen, one.key: value} for value in _listed(one)]
        best = _best((yield [Configuration(tuple(settings.items()), budget.rounds) for settings in tried]))
        chosen = dict(best.settings)
    return best


def random(dimensions: Sequence[Dimension], budget: Budget) -> Search:
    scores = yield [Configuration(settings, budget.rounds) for settings in _drawn(dimensions, budget)]
    return _best(scores)


def halving(dimensions: Sequence[Dimension], budget: Budget) -> Search:
    left = [Configuration(settings, budget.rounds) for settings in _drawn(dimensions, budget)]
    for rounds, count in rungs(budget):
        scores = yield [Configuration(one.settings, rounds) for one in left[:count]]
        left = sorted(scores, key=lambda trial: -scores[trial])
    return left[0]


def rungs(budget: Budget) -> list[tuple[int, int]]:
    """Return the rounds of each rung and its number of configurations; there are as many rungs as both allow."""
    last = 0
    while REDUCTION ** (last + 1) <= min(budget.trials, budget.rounds):
        last += 1
    return [
        (math.ceil(budget.rounds / REDUCTION ** (last - rung)), budget.trials // REDUCTION**rung)
        for rung in range(last + 1)
    ]


def _drawn(dimensions: Sequence[Dimension], budget: Budget) -> list[tuple[tuple[str, str], ...]]:
    """Draw configurations; more draws begin with the same ones, so that a search can be extended."""
    if not dimensions:
        return [()]
    from scipy.stats import qmc

    # The argument's name depends on scipy's version, and so do draws by a plain number; those by a generator do not.
    name = "rng" if "rng" in signature(qmc.Halton).parameters else "seed"
    generator = np.random.default_rng(streams.key(budget.seed, "tuning"))
    sequence = qmc.Halton(len(dimensions), scramble=True, **{name: generator})
    points = sequence.random(budget.trials)  # (trials, dimensions), from 0 to below 1
    return [
        tuple((one.key, one.values.at(float(at))) for one, at in zip(dimensions, row, strict=True)) for row in points
    ]


def _listed(one: Dimension) -> tuple[str, ...]:
    if isinstance(one.values, Range):
        raise InputError(f"--search {one.key}: a range needs --strategy random or halving.")
    return one.values.listed


STRATEGIES: dict[str, Callable[[Sequence[Dimension], Budget], Search]] = {
    "each": each,
    "grid": grid,
    "random": random,
    "halving": halving,
}
