"""Augmentations: what they do to a sample by hand, and that runs with them do not depend on workers."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from tests.tiny import tiny_experiment
from torch import Tensor

from refprotofl import Experiment
from refprotofl.core import InputError
from refprotofl.experiment.sections import Input, Train
from refprotofl.federation import run
from refprotofl.methods.base.augmentation import AUGMENTATIONS, augmenter

IMAGES = Input(class_names=("a", "b"), shape=(1, 8, 8), mean=(0.5,), std=(0.5,))


class Fixed:
    """A generator whose draws are these numbers."""

    def __init__(self, *draws: Any) -> None:
        self._draws = [np.array(one) for one in draws]

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **also: self._draws.pop(0)


def changed(name: str, inputs: Tensor, known: Input, *draws: Any) -> Tensor:
    return AUGMENTATIONS[name].apply(inputs, known, Fixed(*draws))  # type: ignore[arg-type]


def picture() -> Tensor:
    return torch.arange(1, 65, dtype=torch.uint8).view(1, 1, 8, 8)


def test_a_crop_in_the_middle_is_the_image_and_one_at_the_corner_has_a_black_border() -> None:
    both = changed("crop", torch.cat([picture()] * 2), IMAGES, [1, 0], [1, 2])  # tops, lefts; the border is 1 wide
    assert both.dtype == torch.uint8
    assert both[0].equal(picture()[0])
    assert both[1, 0, 0].tolist() == [0] * 8  # a row of the border above
    assert both[1, 0, 1:, :7].equal(picture()[0, 0, :7, 1:])  # one down, one to the left
    assert both[1, 0, :, 7].tolist() == [0] * 8


def test_an_image_is_mirrored_below_a_half() -> None:
    both = changed("flip", torch.cat([picture()] * 2), IMAGES, [0.49, 0.5])
    assert both[0, 0, 0].tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert both[1].equal(picture()[0])


def test_jitter_is_in_proportion_to_the_channels_spread_and_leaves_missing_values() -> None:
    known = Input(class_names=("a", "b"), shape=(2, 2), mean=(0.0, 0.0), std=(1.0, 10.0), kind="series")
    inputs = torch.tensor([[[0.0, 1.0], [torch.nan, 5.0]]])
    after = changed("jitter", inputs, known, [[[1.0, -2.0], [1.0, 1.0]]])
    assert after[0, 0].tolist() == pytest.approx([0.05, 0.9])
    assert after[0, 1, 0].isnan()
    assert after[0, 1, 1].item() == pytest.approx(5.5)


def test_draws_follow_the_seed_and_a_samples_change_does_not_depend_on_the_others_values() -> None:
    experiment = Experiment.parse({"train": {"augment": ["crop", "flip"]}}).model_copy(update={"input": IMAGES})

    def drawn(inputs: Tensor, seed: int) -> Tensor:
        augment = augmenter(experiment, lambda name: np.random.default_rng([seed, *name.encode()]))
        assert augment is not None
        return augment(inputs)

    many = torch.cat([picture()] * 16)
    assert drawn(many, 1).equal(drawn(many, 1))
    assert not drawn(many, 1).equal(drawn(many, 2))
    others = torch.cat([picture(), torch.zeros(15, 1, 8, 8, dtype=torch.uint8)])
    assert drawn(many, 1)[0].equal(drawn(others, 1)[0])
    assert len(drawn(many[:0], 1)) == 0


def test_without_augmentations_there_are_no_draws() -> None:
    assert augmenter(Experiment(), lambda name: pytest.fail("a stream was opened")) is None


@pytest.mark.parametrize("method", ["fedavg", "refprotofl", "centralised"])
def test_results_do_not_depend_on_workers_and_differ_from_those_without(method: str, tmp_path: Path) -> None:
    train = {"batch-size": 16, "augment": "crop, flip"}
    digests = [
        run(tiny_experiment(method=method, train=table), out=tmp_path / name, workers=workers).summary["state_digest"]
        for name, table, workers in (("one", train, 1), ("two", train, 2), ("none", {"batch-size": 16}, 1))
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("augment", "sentence"),
    [("mixup", "allowed"), (["crop", "crop"], "names one twice"), ("crop,rotate", "train.augment")],
)
def test_what_is_no_augmentation_is_refused(augment: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Experiment.parse({"train": {"augment": augment}})


def test_an_augmentation_of_another_kind_of_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="jitter is for series, but the data are images"):
        run(tiny_experiment(train={"batch-size": 16, "augment": ["jitter"]}), out=tmp_path / "run")


def test_the_key_names_all_of_them() -> None:
    (names, _) = get_args(Train.model_fields["augment"].annotation)
    assert {*get_args(names)} == {*AUGMENTATIONS}
