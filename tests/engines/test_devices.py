"""Every method on a device that has memory of its own.

There need be no GPU: a simulated device computes on the CPU, but refuses what a GPU refuses and counts what crosses.
Its tensors say that they are on torch's `meta` device, so that nothing in the package can mistake them for the CPU's.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from refprotofl.core import devices
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Train
from refprotofl.federation import RunResult, run
from refprotofl.federation.simulation import load_federation, server_side
from refprotofl.methods import METHODS
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.training import train
from refprotofl.models import ALL, SplitModel
from refprotofl.models.inputs.image import pixels
from refprotofl.records.folder import read_events

SIMULATED = torch.device("meta")
REAL = os.environ.get("REFPROTOFL_TEST_DEVICE")

SETTING: dict[str, Any] = {
    "dataset": "digits",
    "train-limit": 100,
    "clients": 2,
    "rounds": 2,
    "partition": "iid",
    "min-size": 10,
    "model": {"name": "mlp", "norm": "none", "embedding": 8},
    "public": {"per-class": 2, "coverage": 0.5},
    "train": {"batch-size": 16},
    "evaluate": {"every": 2, "test-limit": 20},
    "fedtgp": {"server-epochs": 2},
    "fedprotokd": {"server-epochs": 2, "model-epochs": 2},
}

FROZEN = """
from torch import nn

def backbone(shape):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 24), nn.ReLU())
    return layers.requires_grad_(False)
"""


class Remote(Tensor):
    """A tensor on the simulated device; `on_host` has the values."""

    on_host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, on_host: Tensor) -> "Remote":
        if on_host.dtype == torch.float64:
            raise TypeError("the device has no float64, as mps has none")
        return Tensor._make_wrapper_subclass(
            cls, on_host.shape, strides=on_host.stride(), dtype=on_host.dtype, device=SIMULATED
        )

    def __init__(self, on_host: Tensor) -> None:
        self.on_host = on_host

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        raise RuntimeError(f"{func}: the device is gone")


def unwrapped(value: Any) -> Any:
    return value.on_host if isinstance(value, Remote) else value


def wrapped(value: Any) -> Any:
    return Remote(value) if isinstance(value, Tensor) else value


class Device(TorchDispatchMode):
    """The simulated device. Operations do not mix its tensors with the host's, numbers without dimension apart."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0  # between host and device, in either direction
        self.operations: set[str] = set()  # that ran on the device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        remote = any(isinstance(one, Remote) for one in tensors)
        target = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        if target == SIMULATED:
            kwargs["device"] = devices.CPU
        name = func.overloadpacket.__name__
        in_place = name.endswith("_") and isinstance(args[0], Tensor)
        there = remote if target is None else target == SIMULATED  # where the result is
        if name == "_to_copy":
            self.copies += remote != there
        elif name == "_local_scalar_dense":  # what item() and bool() do
            self.copies += remote
        elif name == "copy_":
            self.copies += isinstance(args[0], Remote) != isinstance(args[1], Remote)
        elif remote and any(one.dim() > 0 and not isinstance(one, Remote) for one in tensors):
            raise RuntimeError(f"{func}: expected all tensors to be on the same device")
        elif remote and in_place and not isinstance(args[0], Remote):
            raise RuntimeError(f"{func}: expected the result to be on the same device")
        result = func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs))
        if there:
            self.operations.add(name)
        if in_place:
            return args[0]
        return tree_map(wrapped, result) if there else result


Play = Callable[..., RunResult]


def experiment_of(method: str, **changed: Any) -> Experiment:
    model = SETTING["model"] | ({"name": "frozen_here:backbone"} if method == "fedpcl" else {})
    return Experiment.parse(SETTING | {"method": method, "model": model} | changed)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a method on the simulated device if one is given, else on the CPU; no client may fail."""
    (tmp_path / "frozen_here.py").write_text(FROZEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def finished(method: str, device: Device | None = None, **changed: Any) -> RunResult:
        experiment, out = experiment_of(method, **changed), tmp_path / str(len(list(tmp_path.iterdir())))
        if device is None:
            done = run(experiment, out=out)
        else:
            monkeypatch.setattr(devices, "choose", lambda asked: SIMULATED)
            with device:
                done = run(experiment, out=out)
            monkeypatch.undo()
            monkeypatch.chdir(tmp_path)
        assert [event for event in read_events(out) if event["event"] == "client-failed"] == []
        return done

    return finished


def assert_the_same(one: RunResult, other: RunResult) -> None:
    assert one.summary["accuracy"] == other.summary["accuracy"]
    assert one.summary["communication"] == other.summary["communication"]
    assert one.summary["state_digest"] == other.summary["state_digest"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_on_the_device_and_copies_nothing_for_a_batch(play: Play, method: str) -> None:
    wide, narrow = Device(), Device()
    assert_the_same(play(method, wide), play(method))
    play(method, narrow, train={"batch-size": 5})
    assert wide.operations >= {"index", "addmm", "_fused_sgd_"}  # batches, forward passes, steps
    assert narrow.copies == wide.copies


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        ("fedavg", {"share": "full", "model": SETTING["model"] | {"norm": "batch-local"}}),
        ("fedavg", {"compress": {"name": "stc"}}),
        ("centralised", {"model": SETTING["model"] | {"norm": "batch-local"}}),
        ("refprotofl", {"public": {"per-class": 2, "train-on": True}}),
        (
            "refprotofl",
            {
                "refprotofl": {
                    "timing": "post-train",
                    "downlink": "sparse",
                    "error-feedback": "ef",
                    "normalise": "participants",
                }
            },
        ),
        ("fedproto", {"fedproto": {"collect": "running"}}),
        ("fedproto", {"model": {"name": "cnn", "norm": "none", "embedding": 8}}),
        ("fedproto", {"model": {"name": ["mlp", "cnn"], "embedding": 8}}),
        ("fast", {"fast": {"knn": "per-client"}}),
    ],
)
def test_switches_that_take_other_ways_compute_the_same_on_the_device(
    play: Play, method: str, changed: dict[str, Any]
) -> None:
    assert_the_same(play(method, Device(), **changed), play(method, **changed))


def test_the_simulated_device_refuses_what_a_gpu_refuses() -> None:
    with Device() as device:
        there, here = torch.arange(3.0, device=SIMULATED), torch.arange(3.0)
        for mixed in (
            lambda: there + here,
            lambda: there[here.long()],
            lambda: here[there.long()],
            lambda: torch.cat([here, there]),
            lambda: functional.mse_loss(there, here),
            lambda: torch.zeros(()).add_(there.sum()),
        ):
            with pytest.raises(RuntimeError, match="same device"):
                mixed()
        with pytest.raises(RuntimeError, match="numpy"):
            there.numpy()
        with pytest.raises(TypeError, match="float64"):
            there.double()
        assert device.copies == 0
        assert (there + torch.tensor(1.0)).cpu().tolist() == [1, 2, 3]
        assert here.copy_(there[1:].sum()).tolist() == [3, 3, 3]
        assert there.sum().item() == 3
        assert device.copies == 3


def small_model() -> SplitModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SplitModel(nn.Flatten(), 4, 3, 2, pixels((0.5,), (0.25,)))


def test_a_loss_that_closes_over_host_tensors_fails() -> None:
    images, labels, rows = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), torch.arange(4)
    anchors = torch.ones(2, 3)
    with Device():
        model = small_model().to(SIMULATED)
        samples = Samples(images.to(SIMULATED), labels, rows)

        def pulled(inputs: Tensor, labels: Tensor) -> tuple[Tensor, None]:
            return (model.embed(inputs) - anchors[labels]).square().mean(), None

        with pytest.raises(RuntimeError, match="same device"):
            train(model, samples, Train(), np.random.default_rng(0), loss=pulled)


def test_vectors_and_states_of_a_model_on_the_device_are_on_the_host() -> None:
    model = small_model()
    before, state = model.read(ALL), model.read_private(())
    with Device():
        model.to(SIMULATED)
        assert model.device == SIMULATED
        read = model.read(ALL)
        assert read.equal(before)
        assert read.device == devices.CPU
        assert all(value.equal(state[name]) for name, value in model.read_private(()).items())
        model.write(ALL, 2 * before)
        model.write_private({"head.bias": torch.tensor([7.0, 8.0])})
        after = model.read(ALL)
        assert after[:-2].equal(2 * before[:-2])
        assert after[-2:].tolist() == [7, 8]


def test_converted_weights_leave_the_normalisation_as_exact_as_it_was() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(64, 1, 2, 2)
    assert small_model().to(torch.bfloat16).prepare(images).equal(small_model().prepare(images))


def test_on_the_cpu_nothing_is_copied() -> None:
    federation = load_federation(experiment_of("centralised"), None)
    server, pixels = server_side(federation).server, federation.data.dataset.train_inputs
    assert federation.train_inputs.data_ptr() == torch.from_numpy(pixels).data_ptr()
    assert server.context.pooled is not None
    assert server.context.pooled.inputs is federation.train_inputs
    assert server.model is federation.model
    assert federation.test_inputs is federation.test_inputs


@pytest.mark.parametrize("method", METHODS if REAL else [])
def test_a_real_device_repeats_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    (tmp_path / "frozen_here.py").write_text(FROZEN)
    monkeypatch.chdir(tmp_path)
    experiment = experiment_of(method, device=REAL)
    one, other = (run(experiment, out=tmp_path / name) for name in ("one", "other"))
    spread = run(experiment, out=tmp_path / "spread", workers=2)
    assert [event["device"].split(":")[0] for event in read_events(tmp_path / "one") if "device" in event] == [REAL]
    assert_the_same(one, other)
    assert_the_same(one, spread)
