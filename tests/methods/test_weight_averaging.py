"""FedAvg, FedProx, FedNova and the equalities between methods that share weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import tiny_keys

from refprotofl.core.errors import GuardError
from refprotofl.evaluation.scoring import backbone_features
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Train
from refprotofl.federation import run
from refprotofl.methods import proximal_term
from refprotofl.methods.aggregators.mean import Mean
from refprotofl.methods.base.aggregation import Upload, aggregate_uploads, apply_update
from refprotofl.methods.base.optimisers import FreshSgd
from refprotofl.methods.builtin.fednova.fednova import progress
from refprotofl.models import ADAPTER, SplitModel
from refprotofl.models.inputs.image import pixels
from refprotofl.report.costs import cost_rows
from refprotofl.wire.tensors import same_bits

TINY = tiny_keys(
    train_limit=400,
    clients=3,
    rounds=3,
    model={"name": "mlp", "embedding": 16},
    train={"batch-size": 32},
    evaluate={"every": 3},
)


def finish(folder: Path, **changed: Any) -> tuple[Any, dict[str, torch.Tensor], list[dict[str, torch.Tensor]]]:
    """Summary, server state and client states of a tiny run."""
    finished = run(Experiment.parse(TINY | changed), out=folder)
    server = load_file(next((folder / "checkpoint").glob("server-*")))
    clients = [load_file(path) for path in sorted((folder / "checkpoint" / "clients").iterdir())]
    return finished.summary, server, clients


@pytest.mark.parametrize(
    ("steps", "expected"), [(1, 1.0), (8, 28.74), (16, 86.68), (79, 700.02), (94, 850.00), (157, 1480.00)]
)
def test_fednovas_progress_by_recursion_and_closed_form(steps: int, expected: float) -> None:
    closed = (steps - 0.9 * (1 - 0.9**steps) / (1 - 0.9)) / (1 - 0.9)
    assert progress(steps, 0.9) == pytest.approx(closed, rel=1e-12)
    assert round(progress(steps, 0.9), 2) == expected


@pytest.mark.parametrize("steps", [1, 8, 94])
def test_fednovas_progress_with_a_proximal_term_alone(steps: int) -> None:
    decay = 0.01 * 0.1
    assert progress(steps, 0.0, lr=0.01, mu=0.1) == pytest.approx((1 - (1 - decay) ** steps) / decay, rel=1e-9)
    assert progress(steps, 0.0) == steps


def test_fednovas_progress_is_the_weight_of_the_gradients() -> None:
    """Under a constant gradient of 1, momentum and a proximal term, the change is -lr times the progress."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimiser = FreshSgd([weight], Train(lr=0.05, momentum=0.9, weight_decay=0))

    def grad_hook(trained: list[torch.nn.Parameter]) -> None:
        assert weight.grad is not None
        weight.grad += 0.3 * weight.detach()

    for _ in range(13):
        optimiser.step(weight.sum(), grad_hook)
    assert weight.item() == pytest.approx(-0.05 * progress(13, 0.9, lr=0.05, mu=0.3), rel=1e-9)


def test_fednovas_coefficients_of_two_clients() -> None:
    weights, own = (0.25, 0.75), (progress(16, 0.9), progress(94, 0.9))
    effective = sum(weight * one for weight, one in zip(weights, own, strict=True))
    coefficients = [weight * effective / one for weight, one in zip(weights, own, strict=True)]
    assert effective == pytest.approx(659.17, abs=0.005)
    assert coefficients == pytest.approx([1.9012, 0.5816], abs=5e-5)
    assert sum(coefficients) == pytest.approx(2.4828, abs=5e-5)
    uploads = [
        Upload(change, 10 * weight, progress=one)
        for change, weight, one in zip(torch.eye(2, dtype=torch.float64), weights, own, strict=True)
    ]
    assert aggregate_uploads(Mean(), 2, uploads).tolist() == pytest.approx(
        coefficients, rel=1e-12
    )  # as the server takes them


def test_the_mean_is_weighted_and_starts_from_the_reference() -> None:
    reference = torch.tensor([1.0, -2.0])
    uploads = [
        Upload(torch.tensor([3.0, 0.0], dtype=torch.float64), 30.0),
        Upload(torch.tensor([1.0, 4.0], dtype=torch.float64), 10.0),
    ]
    assert apply_update(reference, aggregate_uploads(Mean(), 2, uploads)).tolist() == [3.5, -1.0]
    for start in (reference, torch.tensor([-0.0, 1e-45])):
        assert same_bits(apply_update(start, aggregate_uploads(Mean(), 2, [])), start)  # without anybody nothing moves


def test_the_proximal_term_is_the_gradient_of_its_loss() -> None:
    model = SplitModel(torch.nn.Flatten(), 4, 3, 2, pixels([0.0], [1.0]))
    client: Any = type("Holder", (), {"model": model, "parts": ADAPTER})()
    received = model.read(ADAPTER)
    grad_hook = proximal_term(client, received, 0.7)
    assert grad_hook is not None
    shifted = received + torch.linspace(-1, 1, len(received))
    model.write(ADAPTER, shifted)
    for parameter in model.parameters_of(ADAPTER):
        parameter.grad = torch.zeros_like(parameter)
    grad_hook(model.parameters_of(ADAPTER))
    gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters_of(ADAPTER)])  # type: ignore[union-attr]
    assert torch.allclose(gradient, 0.7 * (shifted - received), atol=1e-6)
    assert proximal_term(client, received, 0.0) is None


@pytest.mark.parametrize("share", ["adapter", "full"])
def test_fedprox_without_its_term_is_fedavg(tmp_path: Path, share: str) -> None:
    plain, prox = (
        finish(tmp_path / method, method=method, share=share, fedprox={"mu": 0}) for method in ("fedavg", "fedprox")
    )
    assert plain[0]["state_digest"] == prox[0]["state_digest"]
    _, pulled, _ = finish(tmp_path / "pulled", method="fedprox", share=share, fedprox={"mu": 1.0})
    assert not pulled["shared"].equal(plain[1]["shared"])


def test_fednova_is_fedavg_where_all_take_equal_steps(tmp_path: Path) -> None:
    equal = {"partition": "iid", "train-limit": 320}
    (_, average_state, _), (_, nova_state, _) = (
        finish(tmp_path / method, method=method, **equal) for method in ("fedavg", "fednova")
    )
    assert torch.allclose(average_state["shared"], nova_state["shared"], atol=1e-6)
    (_, average_state, _), (_, nova_state, _) = (
        finish(tmp_path / f"{method}-unequal", method=method) for method in ("fedavg", "fednova")
    )
    assert not torch.allclose(average_state["shared"], nova_state["shared"], atol=1e-6)


@pytest.mark.parametrize(
    ("mu", "alike"), [(0.0, ("fedavg", "fedprox")), (1e-12, ("fedavg", "fedprox")), (1.0, ("fedprox",))]
)
def test_one_client_alone_makes_fednova_fedprox_whatever_the_proximal_term(
    tmp_path: Path, mu: float, alike: tuple[str, ...]
) -> None:
    """Its effective steps are its own: the step is not shortened by a term that hardly pulls."""
    alone = {"clients": 1, "train-limit": 200, "share": "full", "fednova": {"mu": mu}, "fedprox": {"mu": mu}}
    states = {
        method: finish(tmp_path / method, method=method, **alone)[1]["shared"]
        for method in ("fednova", "fedavg", "fedprox")
    }
    for method in alike:
        assert torch.allclose(states["fednova"], states[method], rtol=1e-5, atol=1e-6)
    if "fedavg" not in alike:
        assert not torch.allclose(states["fednova"], states["fedavg"], atol=1e-4)


def test_fednovas_step_goes_over_into_the_one_without_a_proximal_term(tmp_path: Path) -> None:
    """Three clients of unequal steps: effective steps are the weighted mean of their progress for every mu."""
    without, hardly, much = (
        finish(tmp_path / str(mu), method="fednova", fednova={"mu": mu})[1]["shared"] for mu in (0.0, 1e-12, 1.0)
    )
    assert torch.allclose(without, hardly, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(without, much, atol=1e-4)


def test_refprotofl_without_its_parts_is_lg_fedavg(tmp_path: Path) -> None:
    bare, server, clients = finish(tmp_path / "bare", refprotofl={"erpa": False, "apud": False})
    summary, plain_server, plain_clients = finish(tmp_path / "lg", method="lg-fedavg")
    assert server["adapter"].equal(plain_server["shared"])
    for own, plain in zip(clients, plain_clients, strict=True):
        assert all(own[name].equal(plain[name]) for name in plain if name.startswith("backbone."))
    assert bare["accuracy"] == summary["accuracy"]


@pytest.mark.parametrize(
    ("share", "norm", "exists"), [("full", "group", True), ("full", "batch-local", False), ("adapter", "group", False)]
)
def test_there_is_a_global_model_where_nothing_is_private(tmp_path: Path, share: str, norm: str, exists: bool) -> None:
    model = TINY["model"] | {"norm": norm}
    summary, _, _ = finish(tmp_path / "run", method="fedavg", share=share, model=model)
    assert (summary["accuracy"]["global"] is not None) == exists
    if exists:
        assert set(summary["accuracy_per_client"]["personal"]) == {summary["accuracy"]["global"]}


def test_a_shared_backbone_sees_the_test_images_once_for_all_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def counted(model: SplitModel, images: torch.Tensor) -> torch.Tensor:
        seen.append(model.read(("backbone",)))
        return backbone_features(model, images)

    for place in ("refprotofl.methods.base.client", "refprotofl.evaluation.scoring"):
        monkeypatch.setattr(f"{place}.backbone_features", counted)
    finish(tmp_path / "full", method="fedavg", share="full")
    assert len(seen) == 1 + 3  # the aggregated one, then each client's own after training
    assert not seen[0].equal(seen[1])
    seen.clear()
    finish(tmp_path / "adapter", method="fedavg", share="adapter")
    assert len(seen) == 3  # private backbones, each once for both adapters


def test_training_that_leaves_the_shared_weights_alone_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refprotofl.methods.base.client.train", lambda *rest, **options: None)
    with pytest.raises(GuardError, match="training did not change the shared weights"):
        finish(tmp_path / "run", method="fedavg", share="full")


def test_public_images_to_train_on_change_the_training_and_count_as_samples(tmp_path: Path) -> None:
    _, plain, _ = finish(tmp_path / "plain", method="fedavg")
    summary, more, _ = finish(tmp_path / "more", method="fedavg", public={"per-class": 2, "train-on": True})
    assert (more["samples"] - plain["samples"]).tolist() == [20, 20, 20]
    assert not more["shared"].equal(plain["shared"])
    assert summary["communication"]["one_off"]["payload_bytes"] > 3 * 20 * 64  # the images went out once


@pytest.mark.slow
def test_the_worked_example_of_costs(tmp_path: Path) -> None:
    """CIFAR-10's shape, ResNet-18 with the CIFAR stem, 128 wide: floats up and down per client and round."""
    labels = np.repeat(np.arange(10), 8)
    images = np.zeros((80, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "cifar.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])
    setting = {
        "dataset": str(tmp_path / "cifar.npz"),
        "clients": 2,
        "min-size": 10,
        "model": {"stem": "cifar"},
        "public": {"per-class": 2},
    }
    rows = {row.name: (row.up, row.down) for row in cost_rows(Experiment.parse(setting), None)}
    adapter = {
        row.name: (row.up, row.down) for row in cost_rows(Experiment.parse(setting | {"share": "adapter"}), None)
    }
    assert rows["refprotofl"] == (6_695 + 1_280, 66_954 + 1_280)
    assert adapter["fedavg"] == rows["lg-fedavg"] == (66_954, 66_954)
    assert rows["fedproto"] == (1_280, 1_280)
    assert rows["fedgh"] == (1_290, 1_290)
    assert rows["fedavg"] == rows["fedprox"] == (11_235_786, 11_235_786)
    assert rows["fednova"] == (11_235_787, 11_235_786)
    assert rows["vhl"] == (11_237_076, 11_237_076)
