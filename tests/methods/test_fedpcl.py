"""FedPCL: a frozen backbone, and contrasts to everyone's prototypes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from refprotofl.core.errors import InputError
from refprotofl.export.trained_model import load_trained
from refprotofl.federation import simulation
from refprotofl.methods import Refused
from refprotofl.methods.base.schema import read_request
from refprotofl.methods.builtin.fedpcl.fedpcl import FedPCLServer, read_sets
from refprotofl.methods.common.prototypes import read_anchors, read_means

BACKBONES = """
from torch import nn

def frozen(shape):
    layers = nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()
    return nn.Sequential(*layers).requires_grad_(False)

def pixels(shape):
    return nn.Flatten()
"""


@pytest.fixture
def backbones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "pcl_backbones.py").write_text(BACKBONES)
    monkeypatch.syspath_prepend(tmp_path)
    return "pcl_backbones"


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_backbone_that_trains_is_refused(simulate: Any, name: str) -> None:
    with pytest.raises(InputError, match=r"needs a frozen backbone.*module:function"):
        simulate({"method": "fedpcl", "model": {"name": name}})


def test_backbone_and_its_statistics_stay_while_the_layers_behind_it_learn(simulate: Any, backbones: str) -> None:
    done = simulate({"method": "fedpcl", "model": {"name": f"{backbones}:frozen"}})
    initial = simulation.load_federation(done.experiment, None).model.state_dict()
    for client in range(4):
        final = load_trained(done.folder, client, trust_code=True).model.state_dict()
        moved = {name for name in final if not final[name].equal(initial[name])}
        assert moved == {"feature.weight", "feature.bias", "head.weight", "head.bias"}


def test_the_example_freezes_what_an_earlier_run_has_learnt(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretrained = simulate({"method": "centralised", "rounds": 1})
    monkeypatch.setenv("PRETRAINED_RUN", str(pretrained.folder))
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    done = simulate({"method": "fedpcl", "rounds": 1, "model": {"name": "pretrained_backbone:frozen"}})
    learnt = load_trained(pretrained.folder, 0).model.backbone.state_dict()
    found = load_trained(done.folder, 1, trust_code=True).model.backbone.state_dict()
    initial = simulation.load_federation(pretrained.experiment, None).model.backbone.state_dict()
    assert all(found[name].equal(learnt[name]) for name in learnt)
    assert not all(found[name].equal(initial[name]) for name in learnt)


def test_every_client_gets_the_global_prototypes_and_everyones(simulate: Any, backbones: str) -> None:
    done = simulate({"method": "fedpcl", "model": {"name": f"{backbones}:pixels"}})
    phases = [(one.round, one.phase) for one in done.tap.select("up") if one.client == 0]
    assert phases == [(1, "prototypes"), (1, "train"), (2, "train"), (3, "train"), (3, "evaluate")]
    sent = [read_means(one.message, 10, 8) for one in done.tap.select("up", "train") if one.round == 1]
    (down, *_) = (one.message for one in done.tap.select("down", "train") if one.round == 2)
    anchors, defined = read_anchors(down, 10, 8)
    sets = read_sets(down, anchors)
    assert sets.shape == (4, 10, 8)
    for one, client in zip(sets, sent, strict=True):
        assert one[client.counts > 0].equal(client.means[client.counts > 0])
        assert one[client.counts == 0].equal(anchors[client.counts == 0])
    known, held = int(defined.sum()), sum(int(one.counts.sum()) for one in sent)
    assert done.communication["downlink"]["prototype_values"] == 3 * 4 * (known + held) * 8
    assert done.communication["uplink"]["prototype_values"] == 4 * held * 8
    assert done.finished.summary["accuracy"]["personal_prototype"] is not None


def test_sets_that_do_not_fit_their_table_are_refused(scope: Any) -> None:
    anchors = torch.zeros(3, 2)
    held = torch.tensor([[True, False, True]])

    def client_reads(held: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        declared = FedPCLServer.message_schemas(scope({"method": "fedpcl"}))
        return read_sets(read_request(declared, "train", {"held": held, "prototypes": rows}), anchors)

    assert client_reads(held, torch.ones(2, 2)).tolist() == [[[1, 1], [0, 0], [1, 1]]]
    for table, rows, sentence in (
        (held, torch.ones(3, 2), "prototypes are not as many as held says"),
        (held, torch.ones(2, 3), "prototypes is not a float32 matrix of any x 2"),
        (held[:, :2], torch.ones(1, 2), "held is not a bool matrix of any x 3"),
        (held.long(), torch.ones(2, 2), "held is not a bool matrix of any x 3"),
    ):
        with pytest.raises(Refused, match=sentence):
            client_reads(table, rows)
