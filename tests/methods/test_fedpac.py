"""FedPAC: alignment of the body, mixtures of the heads."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.core.errors import RunError
from refprotofl.methods import METHODS, erpa
from refprotofl.methods.builtin.fedpac.fedpac import (
    FedPACClient,
    HeadStatistics,
    head_statistics,
    least_on_simplex,
    mixture_weights,
)
from refprotofl.models import BODY, HEAD, build_model


def test_statistics_by_hand():
    """Class 0: (1, 0), (3, 0); class 2: (0, 4). Shares 2/3 and 1/3, means (2, 0) and (0, 4)."""
    embeddings = torch.tensor([[1.0, 0.0], [0.0, 4.0], [3.0, 0.0]])
    found, means = head_statistics(embeddings, torch.tensor([0, 2, 0]), 3)
    assert torch.allclose(found.means, torch.tensor([[4 / 3, 0.0], [0.0, 0.0], [0.0, 4 / 3]]))
    assert found.spread == pytest.approx(((1 + 9 + 16) / 3 - 2 * 16 / 9) / 3)
    assert torch.equal(means.means, torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 4.0]]))
    assert means.counts.tolist() == [2, 0, 1]


def test_two_clients_by_hand():
    """v = (1, 2), |h_0 - h_1|^2 = 3: row 0 minimises w^2 + (2 + 3) (1 - w)^2, so w = 5/6; row 1 4 w^2 + 2 (1 - w)^2."""
    statistics = [HeadStatistics(torch.tensor([[0.0]]), 1.0), HeadStatistics(torch.tensor([[3.0**0.5]]), 2.0)]
    weights = mixture_weights(statistics)
    assert torch.allclose(weights, torch.tensor([[5 / 6, 1 / 6], [1 / 3, 2 / 3]], dtype=torch.float64), atol=1e-7)


def test_equal_clients_share_by_their_certainty():
    """Without bias the best weights are proportional to 1 / v."""
    same = torch.ones(2, 3)
    weights = mixture_weights([HeadStatistics(same, spread) for spread in (1.0, 2.0, 4.0)])
    assert torch.allclose(weights, torch.tensor([[4 / 7, 2 / 7, 1 / 7]], dtype=torch.float64).expand(3, 3))


def test_clients_far_apart_keep_to_themselves():
    far = [HeadStatistics(1000.0 * torch.eye(3)[client], 1e-3) for client in range(3)]
    assert torch.allclose(mixture_weights(far), torch.eye(3, dtype=torch.float64), atol=1e-6)


def test_nothing_to_go_by_is_an_equal_mixture():
    assert least_on_simplex(np.zeros((4, 4))).tolist() == [0.25] * 4


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 7), rank=st.integers(1, 7), power=st.integers(-6, 6))
@settings(max_examples=80)
def test_no_other_mixture_is_better(seed, size, rank, power):
    """Optimality by its conditions: all used clients have the same slope, no unused one has a smaller slope."""
    draw = np.random.default_rng(seed)
    factor = draw.normal(size=(rank, size)) * 10.0**power
    matrix = factor.T @ factor + np.diag(draw.uniform(0, 1, size)) * 10.0 ** (2 * power)
    weights = least_on_simplex(matrix)
    slope = matrix @ weights
    best = weights @ slope
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert (slope >= best - 1e-7 * np.trace(matrix)).all()
    assert np.abs((slope - best)[weights > 1e-9]).max() <= 1e-7 * np.trace(matrix)


def test_small_programmes_agree_with_a_search():
    matrix = np.array([[2.0, 1.5, 0.1], [1.5, 1.2, 0.0], [0.1, 0.0, 3.0]])
    grid = [np.array([a, b, 400 - a - b]) / 400 for a, b in itertools.product(range(401), repeat=2) if a + b <= 400]
    best = min(grid, key=lambda weights: weights @ matrix @ weights)
    assert least_on_simplex(matrix) == pytest.approx(best, abs=1 / 400)


@pytest.fixture(scope="module")
def fedpac(simulated):
    return simulated({"method": "fedpac", "evaluate": {"every": 1, "test-limit": 20}})


def test_what_crosses(fedpac):
    """Up: body, head, q prototypes, C weighted means, 1 scalar; down: body, head, and C prototypes from round 2 on."""
    model = build_model(fedpac.resolved)
    body, head, width = sum(model.sizes(BODY)), sum(model.sizes(HEAD)), 8
    uploads = [one.message for one in fedpac.tap.select("up", "train")]
    held = [len(message["prototypes"]) for message in uploads]
    counts = fedpac.communication
    assert counts["uplink"]["parameters"] == counts["downlink"]["parameters"] == 12 * (body + head)
    assert counts["uplink"]["prototype_values"] == sum(held) * width + 12 * 10 * width
    known = [len(one.message["anchors"]) for one in fedpac.tap.select("down", "train") if one.round > 1]
    assert counts["downlink"]["prototype_values"] == sum(known) * width
    assert not any("anchors" in one.message for one in fedpac.tap.select("down", "train") if one.round == 1)
    assert counts["uplink"]["messages"] == counts["downlink"]["messages"] == 24


def test_prototypes_are_weighted_by_class_counts(fedpac):
    sums, counts = torch.zeros(10, 8, dtype=torch.float64), torch.zeros(10, dtype=torch.int64)
    for one in fedpac.tap.select("up", "train"):
        if one.round == 1:
            classes = one.message.get("classes", torch.arange(10)).long()
            sums[classes] += one.message["counts"].unsqueeze(1) * one.message["prototypes"].double()
            counts[classes] += one.message["counts"]
    sent = next(one.message for one in fedpac.tap.select("down", "train") if one.round == 2)
    assert torch.allclose(sent["anchors"].double(), (sums / counts.clamp(min=1).unsqueeze(1))[counts > 0], atol=1e-6)


def test_every_client_gets_its_own_convex_mixture(fedpac):
    heads = torch.stack([one.message["head"] for one in fedpac.tap.select("up", "train") if one.round == 3]).double()
    mixed = [one.message["head"].double() for one in fedpac.tap.select("down", "mixed_head") if one.round == 3]
    assert not torch.equal(mixed[0], mixed[1])
    for client, head in enumerate(mixed):
        weights = torch.linalg.lstsq(heads.T, head.unsqueeze(1)).solution.squeeze(1)
        assert weights.sum() == pytest.approx(1, abs=1e-4)
        assert (weights > -1e-4).all()
        kept = fedpac.client_state(client)
        assert torch.equal(torch.cat([kept["head.weight"].flatten(), kept["head.bias"]]).double(), head)


def test_the_head_is_judged_before_and_after_mixing(fedpac):
    """personal_before uses the head that training left, not the mixture."""
    state = fedpac.client_state(0)
    sent = next(one for one in fedpac.tap.select("up", "train") if one.round == 3 and one.client == 0)
    assert torch.equal(state["trained_head"], sent.message["head"])
    accuracy = fedpac.finished.summary["accuracy"]
    assert accuracy["personal_before"] is not None
    assert accuracy["personal_prototype"] is not None


def test_without_alignment_the_body_still_learns_and_prototypes_cross(simulated, fedpac):
    plain = simulated({"method": "fedpac", "fedpac": {"align": 0.0}, "evaluate": {"every": 1, "test-limit": 20}})
    first = [one.data for one in fedpac.tap.select("up", "train") if one.round == 1]
    assert first == [one.data for one in plain.tap.select("up", "train") if one.round == 1]  # no prototypes to align to
    assert not torch.equal(plain.server_state()["shared"], fedpac.server_state()["shared"])


def test_an_alignment_that_does_nothing_stops_the_run(simulate, monkeypatch):
    monkeypatch.setattr(erpa, "alignment_loss", lambda embeddings, *rest: embeddings.sum() * 0.0)
    with pytest.raises(
        RunError, match=r"Round 2: .*client 0: train: the alignment loss was 0\.0 .* fedpac\.align = 1\.0"
    ):
        simulate({"method": "fedpac"})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spread": -1.0}, "spread = -1.0 is below 0"),
        ({"spread": 1}, "spread = 1 is not a number"),
        ({"spread": float("nan")}, "field 'spread': the value is nan"),
        ({"head": torch.zeros(3)}, "head is not a float32 vector of 90 values"),
        ({"weighted_means": torch.full((10, 8), torch.nan)}, "field 'weighted_means': 80 of 80 values are NaN"),
    ],
)
def test_what_is_not_asked_for_is_refused(simulate, monkeypatch, change, reason):
    class Broken(FedPACClient):
        def train(self, round, message):
            answer = super().train(round, message)
            return answer | change if self.context.client_id == 1 else answer

    monkeypatch.setattr(type(METHODS["fedpac"]), "client", Broken)
    broken = simulate({"method": "fedpac", "rounds": 1})
    failures = broken.events("client-failed")
    assert [failure["client"] for failure in failures] == [1]
    assert reason in failures[0]["reason"] + broken.log(1)
