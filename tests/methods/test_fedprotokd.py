"""FedProtoKD: logits and embeddings of public images up, a server model's logits down."""

import math
from typing import Any

import pytest
import torch

from refprotofl.core.errors import InputError, RunError
from refprotofl.methods.builtin.fedprotokd import fedprotokd


def test_a_more_confident_client_weighs_more_for_an_image() -> None:
    sure, unsure = torch.tensor([[4.0, -4.0], [0.0, 0.0]]), torch.tensor([[-2.0, 2.0], [0.0, 0.0]])
    merged = fedprotokd.merge_logits([sure, unsure])  # variances 16 and 4; both 0
    assert merged[0].tolist() == pytest.approx([(16 * 4 - 4 * 2) / 20, -(16 * 4 - 4 * 2) / 20])
    assert merged[1].tolist() == [0.0, 0.0]


def test_an_image_near_its_prototype_counts_more_and_the_mean_is_one() -> None:
    anchors, labels = torch.tensor([[0.0], [10.0]]), torch.tensor([0, 0, 1])
    weights = fedprotokd.importance(torch.tensor([[1.0], [3.0], [8.0]]), labels, anchors)  # distances 1, 3, 2
    raw = [math.exp(-1 / 2), math.exp(-3 / 2), math.exp(-2 / 2)]
    assert weights.tolist() == pytest.approx([3 * one / sum(raw) for one in raw])
    assert fedprotokd.importance(anchors, torch.tensor([0, 1]), anchors).tolist() == [1.0, 1.0]


def test_the_distillation_loss_is_a_weighted_divergence_and_zero_for_a_perfect_student() -> None:
    teacher, student = torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.zeros(2, 2)
    p = 1 / (1 + math.exp(-1))  # at temperature 2
    divergence = p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p))
    found = fedprotokd.distillation_loss(student, teacher, torch.tensor([3.0, 1.0]), 2.0)
    assert found.item() == pytest.approx(4 * 3 * divergence / 2, rel=1e-5)
    assert fedprotokd.distillation_loss(teacher, teacher, torch.ones(2), 2.0).item() == pytest.approx(0, abs=1e-7)


def test_up_go_logits_and_embeddings_of_every_public_image(simulated: Any) -> None:
    done = simulated({"method": "fedprotokd"})
    up, down, images = done.communication["uplink"], done.communication["downlink"], 20
    assert (up["parameters"], up["prototype_values"], up["other_values"]) == (0, 12 * images * 8, 12 * images * 10)
    assert down["prototype_values"] == 8 * 10 * 8  # no prototypes in the first of three rounds
    assert down["other_values"] == 8 * images * (10 + 1)  # the server model's logits and the images' weights
    assert all("images" in one.message for one in done.tap.select("down", "join"))
    accuracy = done.finished.summary["accuracy"]
    assert None not in (accuracy["global"], accuracy["personal"], accuracy["personal_prototype"])


def test_the_server_model_learns_and_teaches(simulated: Any) -> None:
    done, deaf = simulated({"method": "fedprotokd"}), simulated({"method": "fedprotokd", "fedprotokd": {"distil": 0.0}})
    targets = {one.round: one.message["targets"] for one in done.tap.select("down", "train") if one.round > 1}
    assert not targets[2].equal(targets[3])
    rounds = [[event["clients"] for event in one.events("round")] for one in (done, deaf)]
    assert rounds[0][0] == rounds[1][0]
    assert rounds[0][1] != rounds[1][1]


def test_without_public_images_it_is_refused(simulate: Any) -> None:
    with pytest.raises(InputError, match=r"public\.per-class must be above 0"):
        simulate({"method": "fedprotokd", "public": {"per-class": 0}})


def test_teaching_that_does_nothing_stops_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedprotokd, "distillation_loss", lambda logits, *_: 0.0 * logits.sum())
    with pytest.raises(RunError, match=r"fedprotokd\.distil = 1\.0"):
        simulate({"method": "fedprotokd"})
