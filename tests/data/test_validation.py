"""Held-out training data take the place of the test set, which a search must never see."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.data import federate, load_dataset
from refprotofl.experiment import Experiment
from refprotofl.federation import run


def experiment(**keys: object) -> Experiment:
    base = {"clients": 5, "min-size": 10, "rounds": 2, "model": {"name": "mlp", "embedding": 8}}
    return Experiment.parse({**base, "public": {"per-class": 2}, "train": {"batch-size": 16}, **keys})


@settings(max_examples=30)
@given(share=st.floats(0.001, 0.9), seed=st.integers(0, 5), kind=st.sampled_from(["dirichlet", "iid", "shards"]))
def test_each_client_keeps_and_holds_out_what_it_had(share: float, seed: int, kind: str) -> None:
    digits = load_dataset("digits")
    whole = federate(experiment(seed=seed, partition=kind), digits)
    split = federate(experiment(seed=seed, partition=kind, validation=share), digits)
    for had, kept, held in zip(whole.client_indices, split.client_indices, split.own_test_indices, strict=True):
        assert np.array_equal(np.union1d(kept, held), had)
        assert len(held) == max(1, round(share * len(had)))
        assert len(kept) + len(held) == len(had)
    assert np.array_equal(split.test_indices, np.sort(np.concatenate(split.own_test_indices)))
    assert np.array_equal(split.test_labels, digits.train_labels[split.test_indices])
    assert np.array_equal(split.public_indices, whole.public_indices)


def test_a_client_with_one_sample_trains_on_it() -> None:
    data = federate(experiment(clients=200, validation=0.5, **{"min-size": 1}), load_dataset("digits"))
    assert min(map(len, data.client_indices)) == 1


def test_no_test_image_has_a_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = experiment(validation=0.2, method="fedavg", share="full")
    one = run(asked, out=tmp_path / "one").summary

    def without_tests(*given: object, **more: object) -> object:
        digits = load_dataset(*given, **more)  # type: ignore[arg-type]
        return replace(digits, test_inputs=digits.test_inputs[:0], test_labels=digits.test_labels[:0])

    monkeypatch.setattr("refprotofl.data.federated.load_dataset", without_tests)
    other = run(asked, out=tmp_path / "other").summary
    assert (one["state_digest"], one["accuracy"]) == (other["state_digest"], other["accuracy"])
    # All accuracies are shares of what was held out.
    scored = sum(map(len, federate(asked, load_dataset("digits")).own_test_indices))
    assert one["accuracy"]["global"] is not None
    assert one["accuracy"]["global"] * scored == pytest.approx(round(one["accuracy"]["global"] * scored))


def test_it_is_part_of_the_experiment(tmp_path: Path) -> None:
    assert experiment(validation=0.0).hash == experiment().hash != experiment(validation=0.1).hash
    run(experiment(validation=0.1), out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "experiment.json").read_text())["validation"] == 0.1
