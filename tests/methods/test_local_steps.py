"""Steps in place of passes: which batches they take, what is on record, and where both contradict each other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.test_local_training import SAMPLES, model, samples
from tests.tiny import tiny_experiment

from refprotofl import Experiment
from refprotofl.core import InputError
from refprotofl.experiment.presets import load_experiment
from refprotofl.experiment.sections import Train
from refprotofl.federation import run
from refprotofl.methods import METHODS
from refprotofl.methods.base.training import train
from refprotofl.models import ALL
from refprotofl.studies.timing import passes


def test_as_many_steps_as_passes_have_are_the_same_training() -> None:
    by_passes, by_steps, fewer = model(), model(), model()
    tables = (
        Train(local_epochs=2, batch_size=4),
        Train(local_steps=12, batch_size=4),
        Train(local_steps=8, batch_size=4),
    )
    assert tables[0].steps(SAMPLES) == 12
    taken = [
        train(one, samples(), table, np.random.default_rng(2)).steps
        for one, table in zip((by_passes, by_steps, fewer), tables, strict=True)
    ]
    assert taken == [12, 12, 8]
    assert by_passes.read(ALL).equal(by_steps.read(ALL))
    assert not by_passes.read(ALL).equal(fewer.read(ALL))


@pytest.mark.parametrize("steps", [1, 5, 6, 7, 20])
def test_any_number_of_steps_is_taken_over_passes_that_are_shuffled_anew(steps: int) -> None:
    table = Train(local_steps=steps, batch_size=4)  # 21 samples: 6 batches, the last of 1
    seen: list[int] = []
    one = model()

    def loss(inputs: Any, labels: Any) -> Any:
        seen.append(len(labels))
        return 0 * one(inputs).sum(), None

    assert train(one, samples(), table, np.random.default_rng(2), loss=loss).steps == steps
    assert seen == ([4, 4, 4, 4, 4, 1] * 4)[:steps]


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ({"method": "fedavg"}, 4 * 2 * 3),  # 4 clients, 2 rounds
        ({"method": "centralised"}, 4 * 2 * 3),  # as many as all clients together
        ({"method": "fednova"}, 4 * 2 * 3),
    ],
)
def test_steps_on_record_are_those_taken(keys: dict[str, Any], steps: int, tmp_path: Path) -> None:
    experiment = tiny_experiment(train={"batch-size": 16, "local-steps": 3}, **keys)
    assert run(experiment, out=tmp_path / "run").summary["steps"] == steps


def test_a_methods_own_passes_stay_passes() -> None:
    keys: dict[str, Any] = {"train": {"batch-size": 10, "local-steps": 3}}

    def steps(**own: Any) -> int:
        experiment = Experiment.parse({**keys, **own})
        return METHODS[experiment.method].steps_of_round(experiment, 45)  # 5 batches a pass

    assert steps(method="fedavg") == 3
    assert steps(method="fedrep", fedrep={"head-epochs": 2}) == 2 * 5 + 3
    assert steps(method="fedrep", fedrep={"head-epochs": 2, "body-epochs": 1}) == 3 * 5
    assert steps(method="fedpac", fedpac={"head-epochs": 1}) == 5 + 3
    assert steps(method="centralised") == 3 * 10


def test_the_later_layer_chooses_between_steps_and_passes() -> None:
    """The preset `quick` has two passes."""
    chosen = load_experiment(None, "quick", ["train.local-steps=5"]).train
    assert (chosen.local_steps, chosen.local_epochs) == (5, 1)
    with pytest.raises(InputError, match="local-steps = 5 and local-epochs = 2: leave one of them out"):
        load_experiment(None, "quick", ["train.local-steps=5", "train.local-epochs=2"])
    again = Experiment.parse(load_experiment(None, "quick", ["train.local-steps=5"]).plain())
    assert again.train.local_steps == 5


def test_the_time_of_a_run_counts_steps_too() -> None:
    usual, more = (Experiment.parse({"rounds": 10, "train": {"local-steps": steps}}) for steps in (200, 400))
    assert passes(more) == pytest.approx(2 * passes(usual))
