"""The mean prediction of the clients' models on mixed public images, and its distillation into the server's model."""

import numpy as np
import pytest
import torch

from refprotofl.core.errors import InputError
from refprotofl.core.parts import ALL
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, run
from refprotofl.methods.builtin.thin.distillation import Ensemble, balanced, mixtures
from refprotofl.models import SplitModel
from refprotofl.models.inputs.image import pixels

pytestmark = pytest.mark.slow

IMAGES = torch.tensor([[[[0, 100]]], [[[200, 40]]]], dtype=torch.uint8)  # (2, 1, 1, 2)


class Flat(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.flatten(1)


@pytest.fixture
def model() -> SplitModel:
    """Two pixels, an embedding of one value, two classes; pixels are seen as they are."""
    return SplitModel(Flat(), 2, 1, 2, pixels([0.0], [1 / 255]))


def weights(head: tuple[float, float]) -> torch.Tensor:
    """A model that embeds a picture as its first pixel, in hundreds, and gives each class a multiple of that."""
    return torch.tensor([0.01, 0.0, 0.0, *head, 0.0, 0.0])


def test_a_mixture_is_a_share_of_one_image_and_the_rest_of_another() -> None:
    mixed = mixtures(IMAGES, 500, np.random.default_rng(0)).to(torch.float64).flatten(1)
    first = mixed[:, 0] / 200  # the share of the second image
    assert mixed[:, 1].numpy() == pytest.approx((100 - 60 * first).numpy(), abs=0.7)
    assert 0.0 in first
    assert 1.0 in first
    assert float(first.min()) == 0.0 < float(first.mean()) < 1.0 == float(first.max())


def test_the_answers_are_the_mean_of_what_each_model_says_by_its_weight(model: SplitModel) -> None:
    ensemble = Ensemble(model, ALL, 2, IMAGES[1:])  # embedded as 2
    ensemble.add(weights((1.0, 0.0)), 3.0)
    ensemble.add(weights((0.0, 0.5)), 1.0)
    first, second = np.exp(2) / (np.exp(2) + 1), 1 / (1 + np.exp(1))
    assert float(ensemble.predictions[0, 0]) == pytest.approx((3 * first + second) / 4, abs=1e-6)
    assert float(ensemble.predictions.sum()) == pytest.approx(1.0)


def test_a_client_that_knows_one_class_best_does_not_speak_for_it() -> None:
    said = torch.tensor([[0.9, 0.1], [0.7, 0.3]], dtype=torch.float64)  # names the first class four times in five
    even = balanced(said, torch.tensor([0.5, 0.5], dtype=torch.float64))
    # 0.9 / 0.8 against 0.1 / 0.2, and 0.7 / 0.8 against 0.3 / 0.2
    assert even.tolist() == [pytest.approx([9 / 13, 4 / 13]), pytest.approx([7 / 19, 12 / 19])]
    as_it_is = balanced(said, torch.tensor([0.8, 0.2], dtype=torch.float64))
    assert torch.allclose(as_it_is, said)


def test_what_is_said_of_a_class_without_pictures_stays_and_one_that_is_never_named_is_no_trouble() -> None:
    said = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.1, 0.4]], dtype=torch.float64)
    found = balanced(said, torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64))
    first, second = 0.5 * 0.25 / 0.5, 0.3 * 0.75 / 0.2  # of the 0.8 that are not the third class's
    assert found[0].tolist() == pytest.approx([0.8 * first / (first + second), 0.8 * second / (first + second), 0.2])
    assert found[:, 2].tolist() == pytest.approx([0.2, 0.4])
    only = balanced(torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.tensor([1.0, 0.0]))
    assert only.tolist() == [[0.0, 1.0]]
    never = balanced(torch.tensor([[1.0, 0.0]] * 2, dtype=torch.float64), torch.tensor([0.5, 0.5]))
    assert never.tolist() == [[1.0, 0.0]] * 2


def test_each_model_is_set_right_before_its_answers_are_added(model: SplitModel) -> None:
    mix = torch.tensor([0.5, 0.5], dtype=torch.float64)
    fair, plain = Ensemble(model, ALL, 2, IMAGES, mix), Ensemble(model, ALL, 2, IMAGES)
    for ensemble in (fair, plain):
        ensemble.add(weights((3.0, 0.0)), 1.0)
        ensemble.add(weights((2.0, 0.0)), 3.0)
    alone = [Ensemble(model, ALL, 2, IMAGES) for _ in range(2)]
    for ensemble, head in zip(alone, ((3.0, 0.0), (2.0, 0.0)), strict=True):
        ensemble.add(weights(head), 1.0)
    first, second = (balanced(ensemble.predictions.double(), mix) for ensemble in alone)
    assert torch.allclose(fair.predictions.double(), (first + 3 * second) / 4, atol=1e-6)
    assert float(plain.predictions[:, 0].mean()) > 0.7 > float(fair.predictions[:, 0].mean())


def test_a_model_that_says_no_numbers_is_not_listened_to(model: SplitModel) -> None:
    ensemble = Ensemble(model, ALL, 2, IMAGES)
    ensemble.add(weights((1.0, 0.0)), 1.0)
    before = ensemble.predictions
    ensemble.add(weights((3e38, 3e38)) * 3e38, 1_000.0)
    assert torch.equal(ensemble.predictions, before)


def test_the_loss_is_that_of_the_labels_and_of_the_pictures_in_turn(model: SplitModel) -> None:
    ensemble = Ensemble(model, ALL, 2, IMAGES[[1, 0]])
    ensemble.add(weights((1.0, 0.0)), 1.0)
    model.write(ALL, weights((0.0, 0.0)))  # it says one half of everything
    loss, inputs = ensemble.loss(0.5), model.prepare(IMAGES[:1])
    for _ in range(2):
        with torch.no_grad():
            total, distilled = loss(inputs, torch.tensor([0]))
        assert distilled is not None
        assert float(total) == pytest.approx(1.5 * np.log(2), abs=1e-6)
        assert float(distilled) == pytest.approx(0.5 * np.log(2), abs=1e-6)
    model.write(ALL, weights((1.0, 0.0)))
    loss, said = ensemble.loss(1.0), ensemble.predictions.double()
    for entropy in (-(said * said.log()).sum(dim=1)).tolist():
        with torch.no_grad():
            _, distilled = loss(inputs, torch.tensor([0]))
        assert distilled is not None
        assert float(distilled) == pytest.approx(entropy, abs=1e-5)


TINY = {
    "method": "thin",
    "train-limit": 150,
    "clients": 4,
    "min-size": 5,
    "rounds": 2,
    "model": {"name": "mlp"},
    "public": {"per-class": 3},
    "thin": {"distil": 1.0},
}


def test_it_costs_no_byte_and_changes_the_servers_model(tmp_path) -> None:
    distilled = run(Experiment(**TINY), out=tmp_path / "distilled")
    plain = run(Experiment(**{**TINY, "thin": {}}), out=tmp_path / "plain")
    balance = {"distil": 1.0, "balance": True}
    fair = run(Experiment(**{**TINY, "thin": balance}), out=tmp_path / "fair")
    assert distilled.summary["communication"] == plain.summary["communication"] == fair.summary["communication"]
    digests = {one.summary["state_digest"] for one in (distilled, plain, fair)}
    assert len(digests) == 3


class Killed(Callback):
    def on_round(self, event, accuracy) -> None:
        raise KeyboardInterrupt


def test_killed_and_resumed_or_in_several_processes_it_is_the_same(tmp_path) -> None:
    asked = Experiment(**{**TINY, "thin": {"distil": 1.0, "balance": True}})
    whole = run(asked, out=tmp_path / "whole").summary["state_digest"]
    workers = run(asked, out=tmp_path / "workers", workers=2).summary["state_digest"]
    with pytest.raises(KeyboardInterrupt):
        run(asked, out=tmp_path / "killed", callback=Killed())
    resumed = run(asked, out=tmp_path / "killed", resume=True).summary["state_digest"]
    assert whole == workers == resumed


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"thin": {"distil": 1.0, "server-epochs": 0}}, "a part of the server's passes"),
        ({"thin": {"balance": True}}, "with thin.distil = 0"),
        ({"aggregate": "median"}, "weights all clients equally"),
        ({"public": {"per-class": 0}}, "it must not be empty"),
        (
            {"privacy": {"unit": "client", "clip": 1.0, "noise": 1.0}, "thin": {"distil": 1.0, "feedback": False}},
            "to which no noise was added",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(changed, words, tmp_path) -> None:
    with pytest.raises((InputError, ValueError), match=words):
        run(Experiment(**{**TINY, **changed}), out=tmp_path / "run")
