"""`train.precision`: bfloat16 arithmetic with float32 weights, refused where it would be emulated or unprotected."""

from pathlib import Path

import pytest
import torch
from tests.tiny import tiny_experiment

from refprotofl.core import InputError, numerics
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.models import SplitModel, build_model, check_precision, precision

SEEN = {"class-names": ["a", "b"], "shape": [3, 12, 12], "mean": [0.5] * 3, "std": [0.2] * 3}


def model(kind: str) -> SplitModel:
    return build_model(Experiment.parse({"model": {"name": "cnn"}, "train": {"precision": kind}, "input": SEEN}))


def test_weights_features_and_gradients_are_float32_and_products_bfloat16() -> None:
    exact, rough = model("float32"), model("bf16")
    images = torch.rand(8, 3, 12, 12)
    seen = []
    first = next(rough.backbone.children())
    first.register_forward_hook(lambda layer, inputs, output: seen.append(output.dtype))
    features = rough.features(images)
    assert (seen, features.dtype) == ([torch.bfloat16], torch.float32)
    wanted = exact.features(images)
    assert not torch.equal(features, wanted)
    assert torch.allclose(features, wanted, atol=0.1)
    rough(images).sum().backward()
    assert {(one.dtype, one.grad.dtype) for one in rough.parameters() if one.grad is not None} == {
        (torch.float32, torch.float32)
    }
    assert all(one.grad is not None for one in rough.parameters())


def test_it_is_in_the_hash_once_it_is_changed() -> None:
    assert Experiment(train={"precision": "float32"}).hash == Experiment().hash
    assert Experiment(train={"precision": "bf16"}).hash != Experiment().hash


@pytest.mark.parametrize("unit", ["sample", "client"])
def test_it_is_refused_with_privacy(unit: str) -> None:
    with pytest.raises(InputError, match=r"train\.precision = 'bf16' and \[privacy\]"):
        Experiment.parse({"method": "fedavg", "privacy": {"unit": unit}, "train": {"precision": "bf16"}})


def test_it_is_refused_with_portable_numerics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(numerics, "resolve", lambda mode: mode)
    with pytest.raises(InputError, match='needs numerics = "native"'):
        check_precision("bf16", "portable")
    check_precision("bf16", "native")
    check_precision("float32", "portable")
    with pytest.raises(InputError, match='needs numerics = "native"'):
        run(tiny_experiment(train={"precision": "bf16"}), out=tmp_path / "run")


def test_a_cpu_without_its_instructions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr(precision, "computes_bf16", lambda: False)
    assert "no bfloat16 instructions" in str(precision.precision_caveat("bf16", cpu))
    assert precision.precision_caveat("float32", cpu) is None
    monkeypatch.setattr(precision, "computes_bf16", lambda: True)
    assert precision.precision_caveat("bf16", cpu) is None


def test_a_run_learns_in_bfloat16(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(numerics, "resolve", lambda mode: "native")  # these tests run with limited kernels
    found = {
        kind: run(
            tiny_experiment(method="fedavg", train={"batch-size": 16, "precision": kind, "lr": 0.1}, numerics="native"),
            out=tmp_path / kind,
        ).summary
        for kind in ("float32", "bf16")
    }
    assert found["float32"]["state_digest"] != found["bf16"]["state_digest"]
    exact, rough = (found[kind]["accuracy"]["global"] for kind in ("float32", "bf16"))
    assert exact is not None
    assert rough is not None
    assert abs(exact - rough) <= 0.25  # of 20 samples
