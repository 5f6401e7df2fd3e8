"""summary.json and the events behind it, as docs and reports rely on them."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.federation.participation import draw_cohort
from refprotofl.records.events import read_messages, read_traffic
from refprotofl.records.folder import read_events

VALUES = {"parameters", "prototype_values", "other_values", "payload_bytes", "messages"}
COSTS = {"payload_bytes", "messages"}


@pytest.fixture(scope="module")
def some(tiny: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Three of five clients a round, four rounds, evaluated every third and at the end, three clients of the five."""
    experiment = tiny(clients=5, fraction=0.6, rounds=4, min_size=3, evaluate={"every": 3, "clients": 3})
    return run(experiment, out=tmp_path_factory.mktemp("some") / "run")


def events_of(finished: RunResult, name: str) -> list[dict[str, Any]]:
    return [event for event in read_events(finished.folder) if event["event"] == name]


def test_every_key_and_type_of_the_contract(some: RunResult) -> None:
    summary = json.loads((some.folder / "summary.json").read_text())
    assert summary == some.summary
    assert summary["schema"] == 1
    assert Experiment.parse(summary["experiment"]).hash == summary["experiment_hash"]
    assert summary["rounds_done"] == 4
    protocols = {"personal", "personal_before", "global", "own", "personal_prototype", "own_prototype"}
    assert summary["accuracy"].keys() == protocols
    assert summary["accuracy"]["global"] is None  # private backbones have no global model
    assert all(type(value) is float for name, value in summary["accuracy"].items() if name != "global")
    traffic = summary["communication"]
    assert {name: set(counts) for name, counts in traffic.items()} == {
        "uplink": VALUES,
        "downlink": VALUES,
        "one_off": COSTS,
        "evaluation": COSTS,
    }
    assert all(type(count) is int for counts in traffic.values() for count in counts.values())
    assert summary["seconds"].keys() == {"total", "train", "evaluate"}
    seconds = summary["seconds"]
    assert 0 < seconds["train"] + seconds["evaluate"] < seconds["total"]
    assert len(bytes.fromhex(summary["state_digest"])) == 32


def test_accuracies_are_means_over_the_clients_that_have_one(some: RunResult) -> None:
    per_client = some.summary["accuracy_per_client"]
    for protocol, accuracy in some.summary["accuracy"].items():
        if accuracy is None:
            assert protocol not in per_client
            continue
        assert len(per_client[protocol]) == 5
        known = [value for value in per_client[protocol] if value is not None]
        assert all(0 <= value <= 1 for value in known)
        assert accuracy == pytest.approx(sum(known) / len(known), abs=1e-12)


def test_accuracies_are_shares_of_the_test_set(some: RunResult) -> None:
    for value in some.summary["accuracy_per_client"]["personal"]:
        assert value is None or value * 15 == pytest.approx(round(value * 15))


def test_totals_are_the_sums_of_what_the_rounds_tell(some: RunResult) -> None:
    sums: dict[str, Counter[str]] = {name: Counter() for name in some.summary["communication"]}
    for event in events_of(some, "round"):
        for row in read_traffic(event):
            assert row["round"] == event["round"]
            training = {"up": "uplink", "down": "downlink"}[row["direction"]]
            sums[training if row["purpose"] == "training" else row["purpose"]].update(
                {name: row[name] for name in VALUES}
            )
    totals: dict[str, Any] = dict(some.summary["communication"])
    for bucket, counts in totals.items():
        assert counts == {name: sums[bucket][name] for name in counts}
        assert counts["messages"] > 0


def test_messages_are_as_many_as_the_rounds_ask_for(some: RunResult) -> None:
    traffic, asked = some.summary["communication"], 4 * 3
    joined = {client for event in events_of(some, "round") for client in event["participants"]}
    assert traffic["uplink"]["messages"] == traffic["downlink"]["messages"] == 2 * asked  # prototypes, train
    assert traffic["one_off"]["messages"] == 2 * len(joined)
    assert traffic["evaluation"]["messages"] == 2 * 2 * 3  # after rounds 3 and 4, three clients, there and back
    assert some.summary["full_model"]["participations"] == asked


def test_evaluation_happens_when_and_where_it_was_asked_for(some: RunResult) -> None:
    evaluations = events_of(some, "evaluation")
    assert [event["round"] for event in evaluations] == [3, 4]
    clients = some.summary["evaluated_clients"]
    assert len(clients) == 3
    for event in evaluations:
        assert event["clients"] == clients  # the same sample throughout
        scored = [number for number, value in enumerate(event["per_client"]["personal"]) if value is not None]
        assert scored == clients
    assert evaluations[-1]["accuracy"] == some.summary["accuracy"]


def test_before_aggregation_only_clients_that_trained_count(some: RunResult) -> None:
    for event in events_of(some, "evaluation"):
        experiment = Experiment.parse(some.summary["experiment"])
        last = event["round"] == experiment.rounds  # before, this protocol is not scored: it costs too much
        trained = set(draw_cohort(experiment, event["round"])) if last else set()
        before = event["per_client"].get("personal_before", [None] * 5)
        scored = {number for number, value in enumerate(before) if value is not None}
        assert scored == trained & set(event["clients"])
        assert event["trained_clients"] == len(scored)
    assert some.summary["trained_clients"] == events_of(some, "evaluation")[-1]["trained_clients"]


def test_round_events_name_cohort_and_digests(some: RunResult) -> None:
    rounds = events_of(some, "round")
    assert [event["round"] for event in rounds] == [1, 2, 3, 4]
    assert rounds[-1]["state_digest"] == some.summary["state_digest"]
    assert len({event["state_digest"] for event in rounds}) == 4
    for event in rounds:
        assert event["asked"] == draw_cohort(Experiment.parse(some.summary["experiment"]), event["round"])
        assert len(event["asked"]) == 3
        assert list(event["clients"]) == [str(client) for client in event["participants"]]
        for phase in ("prototypes", "train"):
            assert set(read_messages(event)[phase]["up"]) == {int(client) for client in event["clients"]}


def test_without_prototypes_there_is_no_prototype_accuracy(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    summary = run(tiny(method="local", rounds=1), out=tmp_path / "run").summary
    assert summary["accuracy"]["personal_prototype"] is summary["accuracy"]["own_prototype"] is None
    assert summary["accuracy"]["personal_before"] == summary["accuracy"]["personal"]  # nothing is aggregated
    assert summary["communication"]["uplink"]["parameters"] == 0


def test_a_finished_run_returns_the_same_summary_again(undisturbed: RunResult, tiny: Callable[..., Experiment]) -> None:
    before = (undisturbed.folder / "events.jsonl").read_bytes()
    again = run(tiny(), out=undisturbed.folder, resume=True)
    assert again.summary == undisturbed.summary  # seconds too: nothing was done
    assert (undisturbed.folder / "events.jsonl").read_bytes() == before


def test_the_confusion_matrix_adds_up_to_the_accuracies(undisturbed: RunResult) -> None:
    summary = undisturbed.summary
    matrix, per_class = np.array(summary["confusion"]), summary["accuracy_per_class"]
    classes = len(summary["experiment"]["input"]["class-names"])
    assert matrix.shape == (classes, classes)
    assert matrix.trace() / matrix.sum() == pytest.approx(summary["accuracy"]["personal"])
    rows = matrix.sum(axis=1)
    assert per_class == [matrix[one, one] / rows[one] if rows[one] else None for one in range(classes)]
