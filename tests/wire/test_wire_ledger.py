"""The account of what crossed the wire, by hand and as a law of conservation."""

import json
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.wire import Ledger, Message, Sparse, WireError, encode
from refprotofl.wire.ledger import Kind

KINDS: dict[str, Kind] = {"adapter": "parameters", "update": "parameters", "anchors": "prototype_values"}
COUNTED = ("parameters", "prototype_values", "other_values", "payload_bytes", "messages")


def record(ledger: Ledger, message: Message, **about: Any) -> int:
    size = len(encode(message))
    usual: dict[str, Any] = {"round": 1, "phase": "train", "client": 0, "kinds": KINDS}
    ledger.record(message=message, size=size, **usual | about)
    return size


def test_a_fresh_ledger_has_the_shape_of_the_summary() -> None:
    counts = dict.fromkeys(COUNTED, 0)
    costs = {"payload_bytes": 0, "messages": 0}
    assert Ledger().totals() == {"uplink": counts, "downlink": counts, "one_off": costs, "evaluation": costs}


def test_values_are_counted_by_hand() -> None:
    ledger = Ledger()
    down = record(ledger, {"adapter": torch.zeros(4, 5), "phase": "train", "round": 1}, direction="down")
    update = Sparse(torch.tensor([1, 7]), torch.ones(2), 20)
    up = record(
        ledger,
        {
            "update": update,
            "anchors": torch.zeros(3, 2),
            "counts": torch.tensor([1, 2, 3]),
            "loss": 0.5,
            "ok": True,
        },
        direction="up",
    )
    assert ledger.totals()["downlink"] == {
        "parameters": 20, "prototype_values": 0, "other_values": 1, "payload_bytes": down, "messages": 1
    }  # fmt: skip
    assert ledger.totals()["uplink"] == {
        "parameters": 2, "prototype_values": 6, "other_values": 5, "payload_bytes": up, "messages": 1
    }  # fmt: skip


def test_one_off_and_evaluation_traffic_have_buckets_of_their_own() -> None:
    ledger = Ledger()
    message: Message = {"adapter": torch.zeros(3)}
    size = record(ledger, message, direction="down", purpose="one_off", round=0, phase="public")
    record(ledger, message, direction="down", purpose="evaluation", phase="evaluate")
    record(ledger, message, direction="up", purpose="evaluation", phase="evaluate")
    totals = ledger.totals()
    assert totals["one_off"] == {"payload_bytes": size, "messages": 1}
    assert totals["evaluation"] == {"payload_bytes": 2 * size, "messages": 2}
    assert totals["uplink"]["messages"] == totals["downlink"]["messages"] == 0


def test_rows_are_by_client_phase_and_direction_and_can_be_written_as_json() -> None:
    ledger = Ledger()
    for client in (2, 0):
        record(ledger, {"adapter": torch.zeros(3)}, direction="down", client=client)
    size = record(ledger, {"loss": 1.0}, direction="up", client=2)
    rows = ledger.rows(1)
    assert [(row["client"], row["direction"]) for row in rows] == [(0, "down"), (2, "down"), (2, "up")]
    assert rows[2] == {
        "round": 1, "client": 2, "phase": "train", "purpose": "training", "direction": "up",
        "parameters": 0, "prototype_values": 0, "other_values": 1, "payload_bytes": size, "messages": 1,
    }  # fmt: skip
    assert json.loads(json.dumps(rows)) == rows


def test_a_closed_round_is_forgotten_but_still_counted() -> None:
    ledger = Ledger()
    record(ledger, {"loss": 1.0}, direction="up")
    totals = ledger.totals()
    assert len(ledger.close(1)) == 1
    assert ledger.rows(1) == ledger.close(1) == []
    assert ledger.totals() == totals


traffic = st.lists(
    st.fixed_dictionaries(
        {
            "round": st.integers(1, 3),
            "phase": st.sampled_from(["prototypes", "train", "evaluate"]),
            "client": st.integers(0, 3),
            "direction": st.sampled_from(["up", "down"]),
            "purpose": st.sampled_from(["training", "one_off", "evaluation"]),
            "size": st.integers(0, 1000),
            "message": st.fixed_dictionaries(
                {},
                optional={
                    "adapter": st.just(torch.zeros(7)),
                    "anchors": st.just(torch.zeros(2)),
                    "n": st.just(1),
                },
            ),
        }
    ),
    max_size=30,
)


def bucket(row: dict[str, Any]) -> str:
    return {"up": "uplink", "down": "downlink"}[row["direction"]] if row["purpose"] == "training" else row["purpose"]


@given(traffic)
def test_totals_are_the_sum_of_all_rows(records: list[dict[str, Any]]) -> None:
    ledger = Ledger()
    for about in records:
        ledger.record(kinds=KINDS, **about)
    totals: dict[str, Any] = dict(ledger.totals())
    sums: dict[str, Counter[str]] = {name: Counter() for name in totals}
    for row in (row for number in (1, 2, 3) for row in ledger.close(number)):
        sums[bucket(row)].update({name: row[name] for name in COUNTED})
    assert totals == {name: {key: sums[name][key] for key in counts} for name, counts in totals.items()}
    assert sum(counts["payload_bytes"] for counts in totals.values()) == sum(about["size"] for about in records)
    assert sum(counts["messages"] for counts in totals.values()) == len(records)


@given(traffic, traffic)
def test_a_restored_ledger_continues_where_it_was(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    whole, first = Ledger(), Ledger()
    for about in before:
        first.record(kinds=KINDS, **about)
    second = Ledger.restore(json.loads(json.dumps(first.totals())))
    for about in before + after:
        whole.record(kinds=KINDS, **about)
    for about in after:
        second.record(kinds=KINDS, **about)
    assert second.totals() == whole.totals()


@pytest.mark.parametrize(
    "damage", [{"uplink": {}}, {"one_off": None}, {"evaluation": {"payload_bytes": -1, "messages": 0}}]
)
def test_damaged_totals_are_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="totals to continue"):
        Ledger.restore({**Ledger().totals(), **damage})


def test_an_unknown_kind_is_a_mistake_that_counts_nothing() -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match="unknown kinds"):
        record(ledger, {"adapter": torch.zeros(3)}, direction="up", kinds={"adapter": "weights"})
    assert ledger.totals() == Ledger().totals()
    assert ledger.rows(1) == []
