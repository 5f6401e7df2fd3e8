"""`model.layout`: the same numbers up to the order of sums, part of the experiment once it is changed."""

from pathlib import Path

import pytest
import torch

from refprotofl.experiment import Experiment
from refprotofl.models import build_model

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
    assert Experiment(model={"layout": "as-is"}).hash == Experiment().hash
    assert Experiment(model={"layout": "channels-last"}).hash != Experiment().hash
