"""What runs took until a target accuracy, by hand-made curves."""

from typing import Any, cast

import pytest

from refprotofl import Experiment
from refprotofl.core import InputError
from refprotofl.report.comparison import to_target
from refprotofl.studies.compare import read_target
from refprotofl.studies.results import Result
from refprotofl.studies.trials import Trial


def ran(seed: int, *accuracies: float) -> tuple[Trial, Result]:
    curve = [
        {"round": 5 * place, "accuracy": {"personal": one, "own": None}, "bytes": 100 * place, "seconds": 2.0 * place}
        for place, one in enumerate(accuracies, 1)
    ]
    return Trial("row", Experiment(seed=seed), cast(Any, None)), cast(Result, {"curve": curve})


def test_the_first_evaluation_at_the_target_counts_for_each_seed() -> None:
    found = to_target([ran(0, 0.5, 0.8, 0.7), ran(1, 0.5, 0.6, 0.9)], "personal", 0.8)
    assert found.reached == {
        0: {"rounds": 10, "bytes": 200, "seconds": 4.0},
        1: {"rounds": 15, "bytes": 300, "seconds": 6.0},
    }
    means = {name: found.estimate(name) for name in ("rounds", "bytes", "seconds")}
    assert {name: mean.mean for name, mean in means.items() if mean} == {"rounds": 12.5, "bytes": 250, "seconds": 5.0}


def test_there_is_no_mean_if_a_seed_did_not_reach_the_target() -> None:
    """A mean over the lucky seeds would be too low."""
    found = to_target([ran(0, 0.5, 0.8), ran(1, 0.5, 0.6)], "personal", 0.8)
    assert (len(found.reached), found.seeds, found.estimate("rounds")) == (1, 2, None)
    assert to_target([ran(0, 0.5)], "own", 0.1).reached == {}


def test_a_target_is_an_accuracy_with_or_without_its_protocol() -> None:
    assert read_target("0.8") == ("personal", 0.8)
    assert read_target("own=0.75") == ("own", 0.75)
    for wrong in ("80", "0", "x", "own=", "owned=0.5"):
        with pytest.raises(InputError, match="--target"):
            read_target(wrong)
