"""The optimisers of [train]: a first step by hand, torch's own classes, clipping, and runs that use them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import tiny_experiment
from torch import nn

from refprotofl.core import InputError
from refprotofl.experiment.sections import Train
from refprotofl.federation import run
from refprotofl.methods.base.optimisers import OPTIMISERS, create_optimiser

TORCHS: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, 0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1),
}


def settings(optimizer: str, **keys: Any) -> Train:
    adams = {} if optimizer == "sgd" else {"betas": (0.8, 0.9), "eps": 1e-3}
    return Train(optimizer=optimizer, lr=0.1, weight_decay=0.1, **adams, **keys)  # type: ignore[arg-type]


def stepped(table: Train, gradient: list[float], start: float = 1.0) -> list[float]:
    """Return a parameter after one step from `start` along this gradient."""
    weight = nn.Parameter(torch.full((len(gradient),), start))
    create_optimiser([weight], table).step((weight * torch.tensor(gradient)).sum())
    return weight.detach().tolist()


def test_adams_first_step_by_hand() -> None:
    """With corrected moments it is the rate times g / (|g| + eps), whatever the gradient's size."""
    table = Train(optimizer="adam", lr=0.1, weight_decay=0.0, eps=1e-2)
    assert stepped(table, [4.0, -0.03]) == pytest.approx([1 - 0.1 * 4 / 4.01, 1 + 0.1 * 0.03 / 0.04])


def test_adam_puts_the_decay_into_the_gradient_and_adamw_next_to_it() -> None:
    keys: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.5, "eps": 1e-2}
    start, gradient = 2.0, 0.25  # decay turns the gradient into 1.25
    assert stepped(Train(optimizer="adam", **keys), [gradient], start) == pytest.approx([start - 0.1 * 1.25 / 1.26])
    shrunk = start * (1 - 0.1 * 0.5)
    assert stepped(Train(optimizer="adamw", **keys), [gradient], start) == pytest.approx([shrunk - 0.1 * 0.25 / 0.26])


@pytest.mark.parametrize("name", OPTIMISERS)
def test_five_steps_agree_with_torchs_classes(name: str) -> None:
    """Also of a parameter that gets no gradient in some steps."""
    draw = torch.Generator().manual_seed(0)
    ours, theirs = ([nn.Parameter(torch.arange(3.0) + i) for i in range(2)] for _ in range(2))
    mine, torchs = create_optimiser(ours, settings(name)), TORCHS[name](theirs)
    for step in range(5):
        inputs = torch.randn(3, generator=draw)
        for parameters, optimiser in ((ours, mine), (theirs, torchs)):
            used = parameters if step % 2 else parameters[:1]
            loss = sum(((one * inputs).square().sum() for one in used), torch.zeros(()))
            if optimiser is mine:
                mine.step(loss)
            else:
                torchs.zero_grad()
                loss.backward()
                torchs.step()
    for one, other in zip(ours, theirs, strict=True):
        assert one.allclose(other, atol=1e-6)


def test_a_long_gradient_is_clipped_to_the_norm_and_a_short_one_is_not() -> None:
    table = Train(lr=1.0, momentum=0.0, weight_decay=0.0, grad_clip=1.0)
    assert stepped(table, [3.0, 4.0], 0.0) == pytest.approx([-0.6, -0.8], rel=1e-5)
    assert stepped(table, [0.3, 0.4], 0.0) == pytest.approx([-0.3, -0.4])


def test_clipping_is_of_all_parameters_together_and_of_what_a_hook_adds() -> None:
    one, other = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimiser = create_optimiser([one, other], Train(lr=1.0, momentum=0.0, weight_decay=0.0, grad_clip=5.0))

    def hook(parameters: list[nn.Parameter]) -> None:
        assert parameters[1].grad is not None
        parameters[1].grad.add_(8.0)

    optimiser.step((6 * one + 0 * other).sum(), hook)  # (6, 8), of norm 10
    assert (one.item(), other.item()) == pytest.approx((-3.0, -4.0), rel=1e-5)


def test_a_run_in_two_workers_is_the_run_in_one(tmp_path: Path) -> None:
    train = {"batch-size": 16, "optimizer": "adamw", "lr": 0.003, "schedule": "cosine", "warmup": 1, "grad-clip": 0.5}
    experiment = tiny_experiment(method="fedavg", rounds=3, train=train)
    digests = {
        run(experiment, out=tmp_path / str(workers), workers=workers).summary["state_digest"] for workers in (1, 2)
    }
    assert len(digests) == 1


def test_the_schedule_reaches_the_clients(simulated: Any) -> None:
    """A second round at a thousandth of the rate hardly moves the shared weights, one at the same rate does."""
    train = {"batch-size": 16, "schedule": "step", "step-size": 1}
    first, *second = (
        simulated({"method": "fedavg", "share": "adapter", "rounds": rounds, "train": train | {"gamma": gamma}})
        for rounds, gamma in ((1, 1.0), (2, 1.0), (2, 1e-3))
    )
    start = first.server_state()["shared"]
    usual, small = (float((one.server_state()["shared"] - start).norm()) for one in second)
    assert 0 < small < usual / 100


@pytest.mark.parametrize(("schedule", "refused"), [("cosine", True), ("step", True), ("constant", False)])
def test_a_run_whose_rate_depends_on_the_number_of_rounds_cannot_be_extended(
    schedule: str, refused: bool, tmp_path: Path
) -> None:
    experiment = tiny_experiment(method="fedavg", rounds=1, train={"batch-size": 16, "schedule": schedule})
    run(experiment, out=tmp_path / "run")
    longer = experiment.model_copy(update={"rounds": 2})
    if refused:
        with pytest.raises(InputError, match=f'train.schedule = "{schedule}" depends on the number of all rounds'):
            run(longer, out=tmp_path / "run", resume=True)
    else:
        assert run(longer, out=tmp_path / "run", resume=True).summary["rounds_done"] == 2
