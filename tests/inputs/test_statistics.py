"""Sums that clients send give the statistics of all samples together, and one client's lie does not spoil them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kinds import tiny_experiment

from refprotofl.core import InputError
from refprotofl.core.inputs import Summary
from refprotofl.core.moments import moments, pooled
from refprotofl.federation import Callback, run
from refprotofl.federation.resolution import prepare
from refprotofl.federation.simulation import load_federation
from refprotofl.federation.statistics import screened
from refprotofl.inputs import find_kind
from refprotofl.wire import decode


def test_sums_by_hand() -> None:
    """Values 1, 3 at one client and 8 at another: mean 4, variance (9 + 1 + 16) / 3."""
    parts = [np.array([[1.0], [3.0]]), np.array([[8.0]])]
    mean, std = pooled(map(moments, parts), 1).statistics()
    assert mean == (4.0,)
    assert std[0] == pytest.approx((26 / 3) ** 0.5)


@pytest.mark.parametrize("shape", [(60, 3), (60, 3, 7)])
def test_sums_of_clients_are_those_of_all_samples_also_far_from_zero(shape: tuple[int, ...]) -> None:
    draw = np.random.default_rng(1)
    inputs = (1e6 + draw.standard_normal(shape)).astype(np.float32)
    inputs[draw.random(shape) < 0.1] = np.nan  # missing values do not count
    mean, std = pooled(map(moments, np.split(inputs, [5, 6, 30])), 3).statistics()
    axes = (0, *range(2, inputs.ndim))
    np.testing.assert_allclose(mean, np.nanmean(inputs.astype(np.float64), axis=axes), rtol=1e-12)
    np.testing.assert_allclose(std, np.nanstd(inputs.astype(np.float64), axis=axes), rtol=1e-6)


def test_a_constant_or_missing_feature_has_deviation_1() -> None:
    inputs = np.array([[7.1, np.nan], [7.1, np.nan]], np.float32)
    mean, std = moments(inputs).statistics()
    assert (round(mean[0], 6), mean[1], std) == (7.1, 0.0, (1.0, 1.0))


class Tap(Callback):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, bytes, str]] = []

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if phase == "statistics":
            self.seen.append((direction, client, data, purpose))


def test_the_first_exchange_is_counted_once_and_carries_sums_alone(tmp_path: Path) -> None:
    tap, experiment = Tap(), tiny_experiment("vector", tmp_path, method="fedproto")
    summary = run(experiment, out=tmp_path / "run", callback=tap).summary
    assert [(way, client) for way, client, _, _ in tap.seen] == [
        (way, client) for client in range(3) for way in ("up", "down")
    ]
    assert summary["communication"]["one_off"]["payload_bytes"] == sum(len(data) for _, _, data, _ in tap.seen)
    sent = decode(next(data for way, _, data, _ in tap.seen if way == "up"))
    assert {name: tuple(one.shape) for name, one in sent.items()} == {  # type: ignore[union-attr]
        "counts": (5,),
        "means": (5,),
        "squares": (5,),
    }
    federation = load_federation(prepare(experiment), None)
    rows = np.concatenate(federation.data.client_indices)
    pool = federation.data.dataset.train_inputs[rows].astype(np.float64)
    np.testing.assert_allclose(federation.experiment.known_input.mean, pool.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(federation.experiment.known_input.std, pool.std(axis=0), rtol=1e-9)


def summaries(clients: int = 4) -> list[Summary]:
    draw = np.random.default_rng(2)
    return [find_kind("vector").summarise(draw.standard_normal((20, 2)), (), 0) for _ in range(clients)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"means": np.array([0.0, 1e9])}, "out of proportion"),
        ({"squares": np.array([1e12, 1.0])}, "out of proportion"),
        ({"means": np.array([0.0, np.nan])}, "not finite"),
        ({"squares": np.array([-1.0, 1.0])}, "below 0"),
        ({"counts": np.array([10**9, 20])}, "more than any client has values"),
        ({"means": np.zeros(3)}, "not a number for each of 2 features"),
        ({"counts": "many"}, "not a number for each of 2 features"),
    ],
)
def test_sums_that_cannot_be_right_or_are_out_of_proportion_do_not_count(change: dict[str, Any], reason: str) -> None:
    honest = summaries()
    lying = [*honest[:2], honest[2] | change, honest[3]]
    kind = find_kind("vector")
    kept, notes = screened(kind, lying, (2,), 20, 100.0)
    expected = kind.agree([honest[0], honest[1], honest[3]], (2,), 0)
    assert kind.agree(kept, (2,), 0) == expected
    assert reason in notes[0]
    assert "client 2" in notes[0]


def test_honest_clients_that_differ_all_count_and_no_sums_at_all_stop_the_run() -> None:
    draw = np.random.default_rng(3)
    kind = find_kind("vector")
    different = [kind.summarise(client + draw.standard_normal((20, 2)), (), 0) for client in range(5)]
    assert screened(kind, different, (2,), 20, 100.0) == (different, ())
    with pytest.raises(InputError, match="No client's sums"):
        screened(kind, [{}], (2,), 20, 100.0)


def test_a_vocabulary_is_voted_for_and_a_token_of_one_client_stays_out() -> None:
    kind = find_kind("tokens")
    known = ("a", "b", "c", "d")
    texts = [[[2, 2, 3]], [[2, 3, 4]], [[2, 5, 5]]]
    sent = [kind.summarise(np.array(one), known, 4) for one in texts]
    assert kind.agree(sent, (3,), 10).vocabulary == ("a", "b")
    assert kind.agree(sent, (3,), 1).vocabulary == ("a",)
    assert kind.agree(sent[:1], (3,), 10).vocabulary == ("a", "b")
    shouting: Summary = {"tokens": '["zzz"]', "counts": np.array([10**6])}
    kept, notes = screened(kind, [*sent, shouting], (3,), 1, 100.0)
    assert len(kept) == 3
    assert "more tokens than any client" in notes[0]


@pytest.mark.parametrize("statistics", ["clients", "public"])
def test_a_vocabulary_is_part_of_the_experiment_and_other_tokens_are_unknown(statistics: str, tmp_path: Path) -> None:
    data = {"kind": "tokens", "unit": "words", "statistics": statistics, "vocabulary": 4}
    federation = load_federation(prepare(tiny_experiment("tokens", tmp_path, data=data)), None)
    vocabulary = federation.experiment.known_input.vocabulary
    assert len(vocabulary) == 4
    assert federation.data.dataset.vocabulary == vocabulary
    assert int(federation.data.dataset.train_inputs.max()) == 5
    assert (federation.data.dataset.train_inputs == 1).any()
