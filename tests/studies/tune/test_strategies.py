"""Which trials a strategy proposes, worked out by hand."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.core.errors import InputError
from refprotofl.studies.tune.space import read_dimension
from refprotofl.studies.tune.strategies import STRATEGIES, Budget, Configuration, halving, rungs

FAILED = float("-inf")
Score = Callable[[dict[str, str], int], float]  # of settings and rounds


def play(name: str, typed: list[str], budget: Budget, score: Score) -> tuple[Configuration, list[list[Configuration]]]:
    """The choice, and what was proposed on the way."""
    search, proposed = STRATEGIES[name]([read_dimension(one) for one in typed], budget), []
    trials = next(search)
    while True:
        proposed.append(trials)
        try:
            trials = search.send({trial: score(dict(trial.settings), trial.rounds) for trial in trials})
        except StopIteration as ended:
            return ended.value, proposed


def settings(trials: list[Configuration]) -> list[str]:
    return [" ".join(trial.typed) for trial in trials]


def test_each_goes_from_key_to_key_with_the_best_so_far() -> None:
    scores = {("1", None): 0.5, ("2", None): 0.7, ("3", None): 0.6, ("2", "x"): 0.65, ("2", "y"): 0.8}
    chosen, proposed = play("each", ["a=1,2,3", "b=x,y"], Budget(5, 9), lambda one, _: scores[one["a"], one.get("b")])
    assert list(map(settings, proposed)) == [["a=1", "a=2", "a=3"], ["a=2 b=x", "a=2 b=y"]]
    assert chosen == Configuration((("a", "2"), ("b", "y")), 5)


def test_grid_tries_all_combinations() -> None:
    best = {"a": "1", "b": "z"}
    chosen, proposed = play("grid", ["a=1,2", "b=x,y,z"], Budget(5, 9), lambda one, _: float(one == best))
    assert list(map(settings, proposed)) == [["a=1 b=x", "a=1 b=y", "a=1 b=z", "a=2 b=x", "a=2 b=y", "a=2 b=z"]]
    assert dict(chosen.settings) == best


@pytest.mark.parametrize("name", STRATEGIES)
def test_of_equals_the_first_is_taken_and_never_one_that_failed(name: str) -> None:
    def score(one: dict[str, str], rounds: int) -> float:
        return FAILED if one["a"] == first else 0.5

    budget, typed = Budget(9, 9), ["a=1,2,3"]
    first = ""
    alike, proposed = play(name, typed, budget, score)
    assert alike.settings == proposed[0][0].settings
    first = dict(alike.settings)["a"]
    second = next(trial for trial in proposed[0] if dict(trial.settings)["a"] != first)
    assert play(name, typed, budget, score)[0].settings == second.settings


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_keys_there_is_one_trial(name: str) -> None:
    assert play(name, [], Budget(4, 9), lambda one, _: 0.5)[0] == Configuration((), 4)


@pytest.mark.parametrize("name", ["each", "grid"])
def test_a_range_is_for_draws_alone(name: str) -> None:
    with pytest.raises(InputError, match="a range needs --strategy random or halving"):
        play(name, ["a=1..2"], Budget(4, 9), lambda one, _: 0.5)


@pytest.mark.parametrize(
    ("rounds", "trials", "expected"),
    [
        (27, 9, [(3, 9), (9, 3), (27, 1)]),
        (27, 10, [(3, 10), (9, 3), (27, 1)]),
        (20, 9, [(3, 9), (7, 3), (20, 1)]),
        (20, 8, [(7, 8), (20, 2)]),
        (20, 2, [(20, 2)]),
        (20, 1, [(20, 1)]),
        (2, 9, [(2, 9)]),
        (5, 27, [(2, 27), (5, 9)]),
        (1, 1, [(1, 1)]),
    ],
)
def test_rungs(rounds: int, trials: int, expected: list[tuple[int, int]]) -> None:
    assert rungs(Budget(rounds, trials)) == expected


@given(rounds=st.integers(1, 200), trials=st.integers(1, 100))
def test_rungs_grow_to_the_whole_run(rounds: int, trials: int) -> None:
    found = rungs(Budget(rounds, trials))
    lengths, counts = zip(*found, strict=True)
    assert (lengths[-1], counts[0]) == (rounds, trials)
    assert list(lengths) == sorted(set(lengths))
    assert min(counts) >= 1
    assert all(later == earlier // 3 for earlier, later in pairwise(counts))


def test_halving_continues_the_best_third() -> None:
    drawn = next(halving([read_dimension("a=0.0..1.0")], Budget(27, 9)))
    number = {trial.settings: place for place, trial in enumerate(drawn)}
    assert len(number) == 9
    scores = {
        3: [0.1, 0.9, 0.3, 0.8, 0.5, 0.6, 0.2, 0.7, 0.4],  # 1, 3, 7 continue
        9: [0, 0.5, 0, 0.9, 0, 0, 0, 0.6, 0],  # 3 continues
        27: [0, 0, 0, 0.1, 0, 0, 0, 0, 0],  # whatever it has in the end
    }

    def score(one: dict[str, str], rounds: int) -> float:
        return scores[rounds][number[tuple(one.items())]]

    chosen, proposed = play("halving", ["a=0.0..1.0"], Budget(27, 9), score)
    went = [[(number[trial.settings], trial.rounds) for trial in trials] for trials in proposed]
    assert went == [[(place, 3) for place in range(9)], [(1, 9), (3, 9), (7, 9)], [(3, 27)]]
    assert (number[chosen.settings], chosen.rounds) == (3, 27)


def drawn(typed: list[str], budget: Budget) -> list[dict[str, str]]:
    ((trials),) = play("random", typed, budget, lambda one, _: 0.5)[1]
    return [dict(trial.settings) for trial in trials]


SPACE = ["a=0.001..0.1:log", "b=0.0..1.0", "c=x,y,z", "d=1..6"]


@given(seed=st.integers(0, 1000), trials=st.integers(1, 30))
def test_draws_follow_from_the_seed_and_lie_in_their_ranges(seed: int, trials: int) -> None:
    found = drawn(SPACE, Budget(5, trials, seed))
    assert len(found) == trials
    assert found == drawn(SPACE, Budget(5, trials, seed))
    assert found == drawn(SPACE, Budget(5, trials + 7, seed))[:trials]  # a longer search begins with the shorter
    assert found != drawn(SPACE, Budget(5, trials, seed + 1))
    for one in found:
        assert 0.001 <= float(one["a"]) <= 0.1
        assert 0 <= float(one["b"]) <= 1
        assert one["c"] in "xyz"
        assert int(one["d"]) in range(1, 7)


def test_draws_cover_a_range_more_evenly_than_chance() -> None:
    found = drawn(SPACE, Budget(5, 12))
    # Bases 2, 3 and 5 of the sequence: of this many draws each part of a range has its share.
    assert np.bincount([int(8 * np.log10(float(one["a"]) / 0.001) / 2) for one in found[:8]], minlength=8).max() == 1
    assert np.bincount([int(9 * float(one["b"])) for one in found[:9]], minlength=9).max() == 1


def test_draws_are_the_same_by_either_name_of_scipys_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.stats import qmc

    before = drawn(SPACE, Budget(5, 9))
    real, names = qmc.Halton, []

    def older(d: int, *, scramble: bool = True, optimization: None = None, seed: object = None) -> object:
        """The signature of scipy 1.12 to 1.14."""
        names.append("seed")
        return real(d, scramble=scramble, optimization=optimization, seed=seed)

    monkeypatch.setattr(qmc, "Halton", older)
    assert drawn(SPACE, Budget(5, 9)) == before
    assert names == ["seed"]


def test_dimensions_are_drawn_apart() -> None:
    """Each has a sequence of its own, also where two have the same range."""
    pairs = [(one["a"], one["b"]) for one in drawn(["a=0.0..1.0", "b=0.0..1.0"], Budget(5, 9))]
    assert all(a != b for a, b in pairs)
