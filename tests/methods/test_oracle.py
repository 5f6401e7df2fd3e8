"""The package compared with the paper in one plain file: the same federation, round by round, client by client."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from refprotofl.core import streams
from refprotofl.federation.participation import draw_cohort
from refprotofl.federation.simulation import Federation, load_federation
from refprotofl.models import ADAPTER
from refprotofl.wire import Sparse

TOLERANCE = 1e-6
ROUNDS = 4


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    path = Path(__file__).parents[2] / "reference" / "refprotofl_plain.py"
    spec = importlib.util.spec_from_file_location("refprotofl_plain_oracle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def foretell(plain: ModuleType, federation: Federation) -> list[Any]:
    """The plain file's run on the same data, initial weights, cohorts and batch orders."""
    experiment, data, model = federation.experiment, federation.data, federation.model
    train, table = experiment.train, experiment.refprotofl

    def dataset(indices: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        images = model.prepare(torch.from_numpy(data.dataset.train_inputs[indices]))
        return images.flatten(1).numpy(), data.dataset.train_labels[indices]

    def batch_order(client: int, number: int) -> NDArray[np.int64]:
        stream = streams.stream(experiment.seed, "batches", client=client, round=number)
        return np.stack([stream.permutation(len(data.client_indices[client])) for _ in range(train.local_epochs)])

    arrays = [value.numpy() for value in model.read_private(ADAPTER).values()]
    init = {
        "backbone": list(zip(arrays[0::2], arrays[1::2], strict=True)),
        "feature": (model.feature.weight.detach().numpy().copy(), model.feature.bias.detach().numpy().copy()),
        "head": (model.head.weight.detach().numpy().copy(), model.head.bias.detach().numpy().copy()),
    }
    history: list[Any] = plain.run(
        [dataset(indices) for indices in data.client_indices], dataset(data.public_indices), 10, init,
        experiment.rounds, keep=table.share, align=table.align, learning_rate=train.lr, momentum=train.momentum,
        weight_decay=train.weight_decay, batch_size=train.batch_size, epochs=train.local_epochs,
        participants=lambda number: draw_cohort(experiment, number), batch_order=batch_order,
    )  # fmt: skip
    return history


def test_the_package_does_what_the_paper_says(simulate: Any, plain: ModuleType) -> None:
    """In two worker processes; without weight decay, so that dead units do not move at all and ties are real."""
    compare(simulate, plain, workers=2, weight_decay=0.0, keep=0.9)


def test_the_package_does_what_the_paper_says_with_weight_decay_and_a_small_share(
    simulate: Any, plain: ModuleType
) -> None:
    compare(simulate, plain, workers=1, weight_decay=1e-3, keep=0.05)


def compare(simulate: Any, plain: ModuleType, workers: int, weight_decay: float, keep: float) -> None:
    ours = simulate(
        {
            "train-limit": 250, "clients": 5, "fraction": 0.6, "rounds": ROUNDS, "seed": 3,
            "public": {"coverage": 0.5, "per-class": 3},
            "train": {"local-epochs": 2, "lr": 0.05, "weight-decay": weight_decay},
            "evaluate": {"every": ROUNDS},
        },
        workers=workers, keep=keep, align=2.0,
    )  # fmt: skip
    federation = load_federation(ours.experiment, None)
    history = foretell(plain, federation)

    broadcasts = {one.round: one.message["adapter"] for one in ours.tap.select("down", "prototypes")}
    adapters = [*(broadcasts[number] for number in range(2, ROUNDS + 1)), ours.adapter()]
    for number, (expected, adapter) in enumerate(zip(history, adapters, strict=True), start=1):
        assert close(adapter, expected.adapter), f"adapter after round {number}"

        trained = [one for one in ours.tap.select("up", "train") if one.round == number]
        assert [one.client for one in trained] == sorted(expected.masks)
        for one in trained:
            update = one.message["adapter"]
            assert isinstance(update, Sparse)
            sent = np.flatnonzero(expected.masks[one.client])
            assert update.indices.tolist() == sent.tolist(), f"mask of client {one.client} in round {number}"

        for one in ours.tap.select("down", "train"):
            if one.round == number:
                classes = one.message["classes"].tolist() if "classes" in one.message else list(range(10))
                assert classes == np.flatnonzero(expected.defined).tolist(), f"anchored classes in round {number}"
                assert close(one.message["anchors"], expected.anchors[classes]), f"anchors of round {number}"

    covered = set(federation.data.public_classes)
    assert len(covered) == 5
    assert set(np.flatnonzero(history[0].defined)) > covered  # anchors of both kinds

    states = private_states(ours)
    assert set(states) == {client for round in history for client in round.masks}
    for client, state in states.items():
        for name, expected in zip(federation.model.read_private(ADAPTER), history[-1].backbones[client], strict=True):
            assert close(state[name], expected), f"{name} of client {client}"

    if weight_decay == 0:
        assert any(tied_at_the_threshold(states[client], broadcasts[ROUNDS], keep) for client in history[-1].masks)


def close(value: torch.Tensor, expected: NDArray[np.float32]) -> bool:
    return value.shape == expected.shape and bool(np.abs(value.numpy() - expected).max() <= TOLERANCE)


def private_states(simulation: Any) -> dict[int, Any]:
    return {client: simulation.client_state(client) for client in simulation.checkpoint().records}


def tied_at_the_threshold(state: Any, broadcast: torch.Tensor, keep: float) -> bool:
    """Return True if the last coordinate to be sent and the first to stay moved equally far."""
    moved = (state["trained"] - broadcast).abs().sort(descending=True).values
    last = int(keep * len(moved)) - 1
    return bool(moved[last] == moved[last + 1])
