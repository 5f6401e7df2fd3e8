"""`model.layout`: the same numbers up to the order of sums, part of the experiment once it is changed."""

from pathlib import Path

import pytest
import torch

from refprotofl.experiment import Experiment
from refprotofl.models import build_model, layout_of

SEEN = {"class-names": ["a", "b"], "shape": [3, 12, 12], "mean": [0.5] * 3, "std": [0.2] * 3}

OWN = """
from torch import nn

def small(shape):
    return nn.Sequential(nn.Conv2d(shape[0], 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
"""


def experiment(layout: str, name: str) -> Experiment:
    return Experiment.parse({"model": {"name": name, "layout": layout}, "input": SEEN})


@pytest.mark.parametrize("name", ["layout_of_mine:small", "cnn"])
def test_weights_are_laid_out_with_channels_last_and_give_the_same_outputs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layout_of_mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    usual, other = (build_model(experiment(layout, name)) for layout in ("as-is", "channels-last"))
    convolution = next(one for one in other.backbone.modules() if isinstance(one, torch.nn.Conv2d))
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(usual.read(("backbone",)), other.read(("backbone",)))
    images = torch.rand(4, 3, 12, 12)
    assert torch.allclose(usual(images), other(images), atol=1e-5)


def test_only_a_changed_layout_is_in_the_hash() -> None:
    assert "layout" not in Experiment().plain()["model"]
    assert Experiment(model={"layout": "auto"}).hash == Experiment().hash
    assert Experiment(model={"layout": "channels-last"}).hash != Experiment().hash


AUTO = """
import torch
from torch import nn


def plain(shape):
    return nn.Sequential(nn.Conv2d(shape[0], 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())


def grouped(shape):
    return nn.Sequential(nn.Conv2d(shape[0], 8, 3), nn.GroupNorm(2, 8), nn.MaxPool2d(2), nn.Flatten())


def flat(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 8))


class Viewing(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, 8, 3)

    def forward(self, images):
        return self.first(images).view(len(images), -1)


def viewing(shape):
    return Viewing(shape[0])
"""


@pytest.mark.parametrize(
    ("name", "layout"),
    [("plain", "channels-last"), ("grouped", "as-is"), ("flat", "as-is"), ("viewing", "as-is")],
)
def test_auto_lays_out_a_backbone_of_the_users_by_its_layers(
    name: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layout_by_layers.py").write_text(AUTO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    auto, usual = (build_model(experiment(one, f"layout_by_layers:{name}")) for one in ("auto", "as-is"))
    assert (layout_of(auto.backbone), layout_of(usual.backbone)) == (layout, "as-is")
    images = torch.rand(4, 3, 12, 12)
    assert torch.allclose(auto(images), usual(images), atol=1e-5)


@pytest.mark.parametrize("norm", ["group", "batch-local", "none"])
def test_auto_leaves_built_in_models_to_their_kernel(norm: str) -> None:
    tables = [{"name": "cnn", "norm": norm, "layout": layout} for layout in ("auto", "as-is")]
    auto, usual = (build_model(Experiment.parse({"model": table, "input": SEEN})) for table in tables)
    assert layout_of(auto.backbone) == layout_of(usual.backbone)
