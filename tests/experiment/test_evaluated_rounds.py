"""The rounds after which models are evaluated, and the seeds that a command line names."""

from typing import Any

import pytest

from refprotofl import Experiment
from refprotofl.cli.app import read_seeds
from refprotofl.core import InputError
from refprotofl.experiment.presets import PRESETS, load_experiment


def rounds(count: int, **evaluate: Any) -> list[int]:
    return Experiment.parse({"rounds": count, "evaluate": evaluate}).evaluated_rounds


def test_by_default_there_are_about_ten_evaluations_with_the_first_and_the_last_round() -> None:
    assert rounds(50) == [1, *range(5, 51, 5)]
    assert rounds(20) == [1, *range(2, 21, 2)]
    assert rounds(7) == [1, 2, 3, 4, 5, 6, 7]
    assert rounds(1) == [1]
    for count in range(10, 200):
        found = rounds(count)
        assert 7 <= len(found) <= 11
        assert (found[0], found[-1]) == (1, count)


def test_a_number_is_the_rounds_between_evaluations_and_the_last_is_always_evaluated() -> None:
    assert rounds(20, every=6) == [6, 12, 18, 20]
    assert rounds(20, every=1000) == [20]


def test_auto_is_hashed_as_the_number_that_it_replaced_and_kept_as_it_is() -> None:
    for preset in (None, *PRESETS):
        auto = load_experiment(None, preset, ["evaluate.every=auto"])
        assert auto.hash == load_experiment(None, preset, ["evaluate.every=5"]).hash
        assert auto.hash != load_experiment(None, preset, ["evaluate.every=4"]).hash
        assert Experiment.parse(auto.plain()).evaluate.every == "auto"
    assert Experiment().evaluate.every == "auto"


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("3", [3]),
        ("0,1,2", [0, 1, 2]),
        ("0-4", [0, 1, 2, 3, 4]),
        (" 7 , 0 - 2 ,", [7, 0, 1, 2]),
        ("5-5", [5]),
    ],
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: list[int]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "1,x", "-1", "1-", "1-2-3", "4-0", "0-99999999999", "1.5"])
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--seeds"):
        read_seeds(text)
