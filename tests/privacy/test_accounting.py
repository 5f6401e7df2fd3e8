"""Epsilon by hand: the Gaussian mechanism's, a composition's, a sample's of everything, and who is worst."""

import math
from typing import Any

import pytest

from refprotofl.experiment import Experiment
from refprotofl.privacy.accounting import ORDERS, Spent, epsilon_cell, epsilon_sentence
from refprotofl.privacy.mechanisms import create_mechanism

DELTA = 1e-5


def by_hand(rdp_per_order: float, delta: float = DELTA) -> float:
    """From Renyi divergences a * rdp at order a to epsilon (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    return min(a * rdp_per_order + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in ORDERS)


def cost(rounds: int, sizes: list[int] | None = None, asked: list[int] | None = None, **keys: Any) -> Spent:
    experiment = Experiment(**keys)
    sizes = sizes or [100] * experiment.clients
    found = create_mechanism(experiment).spent(rounds, sizes, asked or [rounds] * len(sizes))
    assert found is not None
    return found


def privacy(unit: str, noise: float) -> dict[str, Any]:
    return {"unit": unit, "noise": noise, "delta": DELTA}


def test_nothing_is_spent_where_nothing_is_protected() -> None:
    assert create_mechanism(Experiment()).spent(5, [10] * 10, [5] * 10) is None


def test_full_batches_are_gaussian_mechanisms_without_amplification() -> None:
    """Noise z and t full batches: Renyi divergence t * a / (2 z^2)."""
    found = cost(7, [60] * 10, method="local", privacy=privacy("sample", 3.0))  # one batch of 64 holds all
    assert found["epsilon"] == pytest.approx(by_hand(7 / (2 * 3.0**2)), rel=1e-9)
    assert (found["unit"], found["relation"], found["delta"]) == ("sample", "zero-out-one", DELTA)


def test_class_means_cost_one_gaussian_mechanism_a_round_more() -> None:
    found = cost(7, [60] * 10, method="fedproto", privacy=privacy("sample", 3.0))
    assert found["epsilon"] == pytest.approx(by_hand(2 * 7 / (2 * 3.0**2)), rel=1e-9)


def test_poisson_samples_amplify_as_the_sum_over_orders_says() -> None:
    """At whole orders (Mironov, Talwar, Zhang 2019): log of sum_k C(a, k) (1-q)^(a-k) q^k exp(k (k-1) / (2 z^2))."""
    z, q, steps = 2.0, 1 / 5, 5 * 3

    def rdp(a: int) -> float:
        terms = [
            math.comb(a, k) * (1 - q) ** (a - k) * q**k * math.exp(k * (k - 1) / (2 * z * z)) for k in range(a + 1)
        ]
        return math.log(sum(terms)) / (a - 1)

    best = min(steps * rdp(a) + math.log((a - 1) / a) - (math.log(DELTA) + math.log(a)) / (a - 1) for a in range(2, 41))
    found = cost(3, [320] * 10, method="local", privacy=privacy("sample", z))  # 320 samples, batches of 64
    assert found["epsilon"] == pytest.approx(best, rel=1e-6)


def test_the_worst_client_is_reported_and_the_median_with_it() -> None:
    sizes, asked = [70, 1000, 1000], [4, 4, 0]
    found = cost(4, sizes, asked, method="local", clients=3, privacy=privacy("sample", 1.0))
    alone = cost(4, [70], [4], method="local", clients=1, privacy=privacy("sample", 1.0))
    large = cost(4, [1000], [4], method="local", clients=1, privacy=privacy("sample", 1.0))
    assert found["epsilon"] == alone["epsilon"]
    assert found["epsilon_median"] == large["epsilon"]


def test_with_all_clients_in_a_round_there_is_no_amplification() -> None:
    """To exchange a client moves the sum by twice the clip: noise z is a Gaussian mechanism of z / 2."""
    found = cost(5, method="fedavg", privacy=privacy("client", 8.0))
    assert found["epsilon"] == pytest.approx(by_hand(5 / (2 * 4.0**2)), rel=1e-9)
    assert found["relation"] == "replace-one"


def test_prototypes_and_adapter_are_two_sums_of_a_round() -> None:
    keys: dict[str, Any] = {"refprotofl": {"select": "random"}, "privacy": privacy("client", 8.0)}
    assert cost(5, **keys)["epsilon"] == pytest.approx(by_hand(2 * 5 / (2 * 4.0**2)), rel=1e-9)


def test_a_client_that_keeps_a_state_is_not_hidden_by_the_draw_but_counts_its_own_rounds_alone() -> None:
    keys: dict[str, Any] = {"clients": 4, "fraction": 0.5, "method": "fedavg", "privacy": privacy("client", 8.0)}
    found = cost(6, None, [2, 4, 3, 3], **keys)  # the backbone is private
    assert found["epsilon"] == pytest.approx(by_hand(4 / (2 * 4.0**2)), rel=1e-9)


def test_few_drawn_clients_hide_each_other_where_they_keep_nothing() -> None:
    keys: dict[str, Any] = {"method": "fedavg", "share": "full", "clients": 100, "privacy": privacy("client", 4.0)}
    every = cost(20, **keys)["epsilon"]
    some = cost(20, fraction=0.05, **keys)["epsilon"]
    assert some is not None
    assert every is not None
    assert 0 < some < every / 4


def test_without_noise_there_is_no_bound_and_no_number() -> None:
    found = cost(1, method="local", privacy=privacy("sample", 0.0))
    assert found["epsilon"] is None
    assert epsilon_cell(found) == "no bound"
    assert "no guarantee" in epsilon_sentence(found)


def test_an_epsilon_never_stands_without_unit_delta_and_relation() -> None:
    found = cost(7, [60] * 10, method="local", privacy=privacy("sample", 3.0))
    assert epsilon_sentence(found) == (
        f"Privacy: epsilon {found['epsilon']:.3g} (of the median client {found['epsilon']:.3g}) over 7 rounds, by "
        "sample of the client with the largest, at delta 1e-05, zero-out-one (one sample exchanged for one that adds "
        "nothing)"
    )
    assert epsilon_cell(found).endswith("(sample)")
