"""Ditto: the common model is FedAvg's, the personal one local training's, and what the pull between them does."""

from typing import Any

import pytest
import torch

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.export import load_trained
from refprotofl.federation.models import model_of
from refprotofl.wire.tensors import same_bits

ONE_STEP = {"lr": 0.1, "momentum": 0.0, "weight-decay": 0.0, "batch-size": 1000}


def personal(simulation: Any, client: int) -> dict[str, torch.Tensor]:
    state = simulation.client_state(client)
    own = {name.removeprefix("personal."): value for name, value in state.items() if name.startswith("personal.")}
    return {name: value for name, value in own.items() if not name.startswith("trained")}


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_common_model_is_fedavgs(simulated: Any, weight: float) -> None:
    plain = simulated({"method": "fedavg", "rounds": 2})
    done = simulated({"method": "ditto", "rounds": 2, "ditto": {"weight": weight}})
    assert same_bits(plain.server_state()["shared"], done.server_state()["shared"])
    assert done.communication["uplink"] == plain.communication["uplink"]
    accuracy = done.finished.summary["accuracy"]
    assert accuracy["global"] == plain.finished.summary["accuracy"]["global"]


@pytest.mark.parametrize("share", ["adapter", "full"])
def test_without_pull_the_personal_model_is_that_of_local_training(simulated: Any, share: str) -> None:
    alone = simulated({"method": "local", "rounds": 2})
    done = simulated({"method": "ditto", "rounds": 2, "share": share, "ditto": {"weight": 0}})
    for client in range(4):
        own, local = personal(done, client), alone.client_state(client)
        assert all(same_bits(value, local[name]) for name, value in own.items())
    for protocol in ("personal", "own", "personal_before"):
        assert done.finished.summary["accuracy"][protocol] == alone.finished.summary["accuracy"][protocol]


def test_the_pull_by_hand(simulated: Any) -> None:
    """With steps of 0.1, v_2 differs from that without pull by -0.1 * 0.5 * (v_1 - w_1)."""
    runs = {
        (weight, rounds): simulated(
            {"method": "ditto", "rounds": rounds, "train": ONE_STEP, "ditto": {"weight": weight}}
        )
        for weight, rounds in ((0.0, 1), (0.0, 2), (0.5, 2))
    }
    common = runs[0.0, 1].server_state()["shared"]
    names = [name for name, _ in model_of(runs[0.0, 1].resolved, 0).named_parameters()]
    for client in range(4):
        first, free, pulled = (
            torch.cat([personal(runs[key], client)[name].flatten() for name in names])
            for key in ((0.0, 1), (0.0, 2), (0.5, 2))
        )
        assert torch.allclose(pulled - free, -0.05 * (first - common), atol=1e-6)


def test_the_personal_model_is_scored_and_exported_and_never_sent(simulated: Any) -> None:
    done = simulated({"method": "ditto", "rounds": 2, "train": {"batch-size": 16, "lr": 0.1}})
    trained = load_trained(done.folder, 1)
    assert all(same_bits(value, trained.model.state_dict()[name]) for name, value in personal(done, 1).items())
    assert all(set(one.message) == {"shared"} for one in done.tap.select("up", "train"))
    summary = done.finished.summary
    assert set(summary["accuracy_per_client"]["personal"]) != {summary["accuracy"]["global"]}


def test_fine_tuning_is_refused() -> None:
    with pytest.raises(InputError, match="ditto trains a model for each client anyway"):
        Experiment(method="ditto", finetune={"epochs": 1})
