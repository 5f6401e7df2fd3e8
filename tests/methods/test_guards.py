"""Silent no-ops stop the run: each guard against the part broken on purpose, in a real run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from refprotofl.core.errors import GuardError, RunError
from refprotofl.methods import apud, erpa
from refprotofl.methods.base import guards, training
from refprotofl.models import ADAPTER, SplitModel

OWN_BACKBONES = """
import torch
from torch import nn

def frozen(shape):
    layer = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
    return layer.requires_grad_(False)

class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 16)
    def forward(self, x):
        return torch.relu(self.layer(x.view(x.size(0), -1)))

def flat(shape):
    return Flat()
"""


@pytest.fixture
def own_backbones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's, in the folder that they stand in."""
    (tmp_path / "guarded_backbones.py").write_text(OWN_BACKBONES)
    monkeypatch.syspath_prepend(tmp_path)
    return "guarded_backbones"


def test_an_unbroken_run_passes_every_guard(simulate: Any) -> None:
    whole = simulate({"public": {"coverage": 0.5}})
    assert whole.finished.summary["rounds_done"] == 3
    assert whole.events("client-failed") == []


def test_an_alignment_loss_that_is_always_zero_stops_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(embeddings: Tensor, *_: object) -> Tensor:
        return 0.0 * embeddings.sum()

    monkeypatch.setattr(erpa, "alignment_loss", nothing)
    with pytest.raises(
        RunError, match=r"Round 1: .*client 0: train: the alignment loss was 0.0 although anchors exist and align = 1.0"
    ):
        simulate()


def test_a_zero_alignment_loss_is_fine_where_none_is_promised(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erpa, "alignment_loss", lambda embeddings, *_: 0.0 * embeddings.sum())
    for switches in ({"align": 0.0}, {"erpa": False}, {"warmup_rounds": 2}):
        assert simulate({"rounds": 2}, **switches).finished.summary["rounds_done"] == 2


def test_one_coordinate_fewer_than_announced_stops_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = apud.select

    def one_fewer(local: Tensor, reference: Tensor, keep: int) -> Tensor:
        mask = honest(local, reference, keep)
        mask[mask.nonzero()[0]] = False
        return mask

    monkeypatch.setattr(apud, "select", one_fewer)
    with pytest.raises(RunError, match="111 coordinates are about to be sent, but 112 were announced"):
        simulate()


def test_an_optimiser_that_leaves_the_backbone_alone_stops_the_run(
    simulate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = training.train

    def adapter_only(model: SplitModel, *rest: Any, **options: Any) -> training.TrainResult:
        before = model.read_private(ADAPTER)
        trained = honest(model, *rest, **options)
        model.write_private(before)
        return trained

    monkeypatch.setattr("refprotofl.methods.base.client.train", adapter_only)
    with pytest.raises(RunError, match=r"Round 1: .*client 0: train: training left the backbone exactly as it was"):
        simulate()


def test_a_backbone_that_its_owner_froze_is_no_reason_to_stop(simulate: Any, own_backbones: str) -> None:
    frozen = simulate({"rounds": 2, "model": {"name": f"{own_backbones}:frozen"}})
    assert frozen.finished.summary["rounds_done"] == 2
    assert frozen.communication["uplink"]["parameters"] > 0


def test_a_backbone_that_cannot_take_an_empty_batch_works_with_full_coverage(simulate: Any, own_backbones: str) -> None:
    """`view(len(x), -1)` is how most backbones are written; with every class public there are no local prototypes."""
    flat = simulate({"rounds": 1, "model": {"name": f"{own_backbones}:flat"}})
    assert flat.events("client-failed") == []
    uncovered = simulate({"rounds": 1, "model": {"name": f"{own_backbones}:flat"}, "public": {"coverage": 0.0}})
    assert uncovered.events("client-failed") == []


def test_external_anchors_that_are_nan_stop_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erpa, "external_prototypes", lambda stacked: torch.full_like(stacked[0], float("nan")))
    with pytest.raises(GuardError, match=r"no valid anchor for classes \[0, 1, 2, 3, 4, 5, 6, 7, 8, 9\]"):
        simulate()


def test_dropped_global_anchors_stop_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = erpa.global_prototypes

    def forgetful(prototypes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        means, defined = honest(prototypes, counts)
        return means, torch.zeros_like(defined)

    monkeypatch.setattr(erpa, "global_prototypes", forgetful)
    with pytest.raises(GuardError, match=r"no valid anchor for classes \[1, 7\], which public or private data cover"):
        simulate({"public": {"classes": [0, 2, 3, 4, 5, 6, 8, 9]}})


def test_anchors_may_lack_classes_that_no_client_holds() -> None:
    anchors = torch.full((3, 2), float("nan"))
    anchors[0] = 1
    guards.anchors_cover(anchors, torch.tensor([True, False, False]), [0], torch.tensor([[0, 0, 0]]))
    with pytest.raises(GuardError, match=r"\[2\]"):
        guards.anchors_cover(anchors, torch.tensor([True, False, False]), [0], torch.tensor([[0, 0, 0], [0, 0, 5]]))


def test_one_moved_tensor_is_enough_and_no_trainable_tensor_is_fine() -> None:
    frozen, moved = (torch.zeros(3), torch.zeros(3)), (torch.zeros(3), torch.ones(3))
    guards.backbone_moved([frozen, moved])
    guards.backbone_moved([])
    with pytest.raises(GuardError):
        guards.backbone_moved([frozen, frozen])


@pytest.mark.parametrize("penalty", [0.0, float("nan"), -1.0])
def test_only_a_positive_alignment_loss_counts(penalty: float) -> None:
    anchored = torch.tensor([False, True])
    with pytest.raises(GuardError):
        guards.alignment_happened(penalty, 1.0, anchored)
    guards.alignment_happened(penalty, 0.0, anchored)
    guards.alignment_happened(penalty, 1.0, torch.tensor([False, False]))
    guards.alignment_happened(1e-9, 1.0, anchored)
