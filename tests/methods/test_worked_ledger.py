"""The worked example of the account: what one round of RefProtoFL costs a client at the paper's sizes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl.records.events import read_traffic

CLIENTS, ROUNDS = 2, 2


@pytest.fixture(scope="module")
def garments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """28 x 28 grey images of 10 classes, a few of each."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "garments.npz"
    labels, test = np.arange(60) % 10, np.arange(20) % 10
    np.savez(
        path,
        x_train=random.integers(0, 256, (60, 28, 28), dtype=np.uint8),
        y_train=labels,
        x_test=random.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        y_test=test,
    )
    return path


def test_a_round_costs_6695_parameters_and_1280_prototype_values_up_and_66954_and_1280_down(
    simulate: Any, garments: Path
) -> None:
    paid = simulate(
        {
            "dataset": str(garments), "train-limit": 0, "clients": CLIENTS, "rounds": ROUNDS, "partition": "iid",
            "public": {"per-class": 1}, "model": {"name": "cnn", "norm": "group", "embedding": 128},
            "evaluate": {"every": ROUNDS, "test-limit": 0},
        },
        keep=0.1,
    )  # fmt: skip
    rows = [row for event in paid.events("round") for row in read_traffic(event) if row["purpose"] == "training"]
    for client in range(CLIENTS):
        for number in range(1, ROUNDS + 1):
            of_round = [row for row in rows if (row["client"], row["round"]) == (client, number)]
            assert counted(of_round, "up") == {"parameters": 6_695, "prototype_values": 1_280, "other_values": 0}
            assert counted(of_round, "down") == {"parameters": 66_954, "prototype_values": 1_280, "other_values": 0}
    times = CLIENTS * ROUNDS
    up, down = paid.communication["uplink"], paid.communication["downlink"]
    assert (up["parameters"], up["prototype_values"], up["other_values"]) == (6_695 * times, 1_280 * times, 0)
    assert (down["parameters"], down["prototype_values"], down["other_values"]) == (66_954 * times, 1_280 * times, 0)
    assert (up["messages"], down["messages"]) == (2 * times, 2 * times)
    # The mask is paid in bytes only, and costs less than a bitmap's 66,954 bits.
    beside_values = up["payload_bytes"] / times - 4 * (6_695 + 1_280)
    assert 0 < beside_values < 66_954 / 8
    # 10 images of 28 x 28 and their labels, once for each client.
    assert CLIENTS * 10 * 785 < paid.communication["one_off"]["payload_bytes"] < CLIENTS * (10 * 785 + 100)


def counted(rows: list[dict[str, Any]], direction: str) -> dict[str, int]:
    kinds = ("parameters", "prototype_values", "other_values")
    return {kind: sum(row[kind] for row in rows if row["direction"] == direction) for kind in kinds}


def test_values_that_are_no_parameters_are_counted_separately(simulated: Any) -> None:
    """Half of the classes are uncovered: class ids, counts, and the classes of the anchors are sent."""
    mixed = simulated({"public": {"coverage": 0.5}})
    messages = [one.message for one in mixed.tap.select("up", "prototypes")]
    held = sum(len(message["classes"]) for message in messages)
    assert held > 0
    assert mixed.communication["uplink"]["other_values"] == 2 * held
    assert mixed.communication["uplink"]["prototype_values"] == 8 * (5 * len(messages) + held)
