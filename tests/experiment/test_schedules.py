"""Learning-rate schedules: values by hand, torch's own schedulers, and the keys that choose them."""

import math
import warnings
from typing import Any

import pytest
import torch
from tests.tiny import tiny_experiment
from torch.optim import lr_scheduler

from refprotofl import Experiment
from refprotofl.core import InputError
from refprotofl.experiment.schedules import SCHEDULES

ROUNDS = 9


def rates(**train: Any) -> list[float]:
    experiment = Experiment(rounds=ROUNDS, train={"lr": 0.1, **train})
    return [experiment.train_in_round(round).lr for round in range(1, ROUNDS + 1)]


def test_a_rate_is_constant_by_default_to_the_bit() -> None:
    assert rates() == [0.1] * ROUNDS


def test_values_by_hand() -> None:
    cosine = rates(schedule="cosine")
    assert cosine[0] == 0.1
    assert cosine[3] == pytest.approx(0.1 * 0.75)  # after 3 of 9 rounds: (1 + cos 60°) / 2
    assert cosine[6] == pytest.approx(0.1 * 0.25)
    assert rates(schedule="linear") == pytest.approx([0.1 * share / 9 for share in range(9, 0, -1)])
    assert rates(schedule="step") == pytest.approx([0.1] * 3 + [0.01] * 3 + [0.001] * 3)
    assert rates(schedule="step", step_size=4, gamma=0.5) == pytest.approx([0.1] * 4 + [0.05] * 4 + [0.025])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_rises_to_the_whole_rate_and_the_schedule_begins_after_it(schedule: str) -> None:
    warm = rates(schedule=schedule, warmup=3)
    assert warm[:4] == pytest.approx([0.025, 0.05, 0.075, 0.1])
    rest = Experiment(rounds=ROUNDS - 3, train={"lr": 0.1, "schedule": schedule})
    assert warm[3:] == [rest.train_in_round(round).lr for round in range(1, ROUNDS - 2)]
    assert min(warm) > 0


@pytest.mark.parametrize(
    ("train", "theirs"),
    [
        ({"schedule": "cosine"}, lambda one: lr_scheduler.CosineAnnealingLR(one, T_max=ROUNDS)),
        ({"schedule": "step", "step_size": 2}, lambda one: lr_scheduler.StepLR(one, step_size=2)),
        (
            {"schedule": "linear"},
            lambda one: lr_scheduler.LinearLR(one, start_factor=1.0, end_factor=0.0, total_iters=ROUNDS),
        ),
    ],
)
def test_schedules_agree_with_torchs(train: dict[str, Any], theirs: Any) -> None:
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler, seen = theirs(optimiser), []
    for _ in range(ROUNDS):
        seen.append(optimiser.param_groups[0]["lr"])
        with warnings.catch_warnings():  # the order of steps, which are not taken here
            warnings.simplefilter("ignore")
            scheduler.step()
    assert rates(**train) == pytest.approx(seen)


def test_a_rate_of_the_methods_own_follows_the_schedule_unless_it_is_for_after_the_rounds() -> None:
    experiment = Experiment(rounds=4, train={"lr": 0.1, "schedule": "linear"})
    assert experiment.train_in_round(3, lr=0.2).lr == pytest.approx(0.1)
    assert experiment.train_in_round(4, lr=0.2, scheduled=False).lr == 0.2


def test_the_last_digit_of_a_cosine_depends_on_no_library() -> None:
    assert SCHEDULES["cosine"](1, 7, None) == pytest.approx((1 + math.cos(math.pi / 7)) / 2)  # type: ignore[arg-type]
    assert Experiment(rounds=7, train={"lr": 1.0, "schedule": "cosine"}).train_in_round(2).lr == 0.950484433951


@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        ({"optimizer": "adam", "momentum": 0.5}, 'momentum = 0.5, which is for optimizer = "sgd"; Adam has betas'),
        ({"betas": [0.8, 0.9]}, r'betas = \[0.8, 0.9\], which is for optimizer = "adam" or "adamw"'),
        ({"eps": 1e-3}, "eps = 0.001, which is for optimizer"),
        ({"gamma": 0.5, "schedule": "cosine"}, 'gamma = 0.5, which is for schedule = "step"'),
        ({"step-size": 3}, 'step-size = 3, which is for schedule = "step"'),
        ({"optimizer": "adam", "betas": [0.9, 1.0]}, "not a list of two numbers from 0 to below 1"),
        ({"optimizer": "lamb"}, "allowed: sgd, adam or adamw"),
        ({"scheduler": "cosine"}, "did you mean train.schedule?"),
        ({"max-grad-norm": 1.0}, "did you mean train.grad-clip?"),
        ({"warmup": 50}, "train.warmup = 50, but only rounds = 50"),
        ({"grad-clip": -1.0}, "too small; allowed: norm that the gradient of a batch is clipped to"),
    ],
)
def test_keys_that_contradict_each_other_are_refused_with_a_sentence(train: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Experiment.parse({"train": train})


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"method": "fednova", "train": {"optimizer": "adam"}}, 'fednova needs "sgd": it divides a change'),
        ({"method": "fednova", "train": {"grad-clip": 1.0}, "fednova": {"mu": 0.1}}, "proximal term in full"),
        ({"method": "scaffold", "train": {"grad-clip": 1.0}}, "as if every gradient entered it in full"),
        ({"method": "scaffold", "train": {"optimizer": "adamw"}}, 'scaffold needs "sgd"'),
        ({"privacy": {"unit": "sample"}, "train": {"grad-clip": 1.0}}, "set privacy.clip"),
        ({"method": "thin", "thin": {"cooling": 0.9}, "train": {"schedule": "linear"}}, "two schedules of one"),
    ],
)
def test_what_contradicts_the_method_is_refused_with_a_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Experiment.parse(keys)


def test_defaults_are_in_no_hash() -> None:
    plain = tiny_experiment().plain()["train"]
    assert plain.keys() == {"local-epochs", "batch-size", "lr", "momentum", "weight-decay"}
    assert tiny_experiment(train={"batch-size": 16, "schedule": "constant", "warmup": 0}).hash == tiny_experiment().hash
    assert tiny_experiment(train={"batch-size": 16, "warmup": 1}).hash != tiny_experiment().hash
