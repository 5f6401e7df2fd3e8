"""FedBN: norm layers stay with their clients, and without any it is FedAvg."""

from typing import Any

import pytest
import torch
from torch import nn

from refprotofl.core import ALL, WITHOUT_NORMS
from refprotofl.experiment import Experiment
from refprotofl.federation.models import model_of
from refprotofl.methods import METHODS
from refprotofl.models import SplitModel


def model_with(norm: str, name: str = "mlp") -> dict[str, Any]:
    return {"model": {"name": name, "norm": norm, "embedding": 8}}


def test_without_norm_layers_fedbn_is_fedavg(simulated: Any) -> None:
    plain, done = (simulated({"method": name, "rounds": 2, **model_with("none")}) for name in ("fedavg", "fedbn"))
    assert plain.finished.summary["state_digest"] == done.finished.summary["state_digest"]
    assert plain.finished.summary["accuracy"] == done.finished.summary["accuracy"]


@pytest.mark.parametrize("norm", ["batch-local", "group"])
def test_norm_layers_stay_with_their_clients(simulated: Any, norm: str) -> None:
    done = simulated({"method": "fedbn", "rounds": 2, **model_with(norm)})
    model: SplitModel = model_of(done.resolved, 0)
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d | nn.GroupNorm)]
    private = {f"{name}.{kind}" for name in norms for kind in ("weight", "bias")}
    assert len(private) == 4
    inside = sum(parameter.numel() for name, parameter in model.named_parameters() if name in private)
    assert len(done.server_state()["shared"]) == sum(model.sizes(ALL)) - inside
    first, second = done.client_state(0), done.client_state(1)
    assert all(not first[name].equal(second[name]) for name in private)
    assert {name for name in first if name.startswith("backbone.") and "running" not in name} - private <= {
        name for name in first if name.endswith("num_batches_tracked")
    }
    assert done.finished.summary["accuracy"]["global"] is None


def test_shared_and_private_entries_are_all_of_the_model() -> None:
    known = {"class-names": ["0", "1"], "shape": [1, 8, 8], "mean": [0.5], "std": [0.5]}
    experiment = Experiment.parse({"method": "fedbn", "input": known, **model_with("batch-local", "resnet18")})
    model = model_of(experiment, 0)
    private = model.read_private(WITHOUT_NORMS)
    shared = sum(model.sizes(WITHOUT_NORMS))
    assert shared + sum(value.numel() for value in private.values()) == sum(
        value.numel() for value in model.state_dict().values()
    )
    before, moved = model.read(ALL), torch.arange(shared, dtype=torch.float32)
    model.write(WITHOUT_NORMS, moved)
    assert model.read(WITHOUT_NORMS).equal(moved)
    assert all(value.equal(model.read_private(WITHOUT_NORMS)[name]) for name, value in private.items())
    assert not model.read(ALL).equal(before)


def test_a_model_without_norm_layers_is_worth_a_sentence() -> None:
    warn = METHODS["fedbn"].warnings
    assert warn(Experiment.parse({"method": "fedbn", **model_with("batch-local")})) == ()
    assert "finds no norm layers" in warn(Experiment.parse({"method": "fedbn", **model_with("none")}))[0]
