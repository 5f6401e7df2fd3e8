"""FedAvgM, FedAdam and FedYogi: their steps by hand, and the settings in which they are FedAvg."""

from typing import Any

import pytest
import torch
from torch import Tensor

from refprotofl.methods.builtin.fedadam import Options
from refprotofl.methods.builtin.fedadam.fedadam import FedAdamServer
from refprotofl.methods.builtin.fedyogi.fedyogi import FedYogiServer
from refprotofl.methods.common import weights
from refprotofl.wire.tensors import same_bits


def steps(server: type[FedAdamServer], changes: list[list[float]], monkeypatch: Any, **options: float) -> list[Tensor]:
    """The shared vector, from 0, after each of the mean changes."""
    made = server.__new__(server)
    made.options, made.shared = Options(**options), torch.zeros(len(changes[0]))
    made.mean = torch.zeros_like(made.shared)
    made.mean_square = torch.full_like(made.shared, made.options.tau**2)
    made.join_newcomers = lambda cohort: None  # type: ignore[method-assign]
    coming = iter([torch.tensor(one, dtype=torch.float64) for one in changes])
    monkeypatch.setattr(weights, "mean_change", lambda *_: next(coming))
    monkeypatch.setattr(weights, "advance", lambda server, round, before, move: before + move.to(torch.float32))
    found, cohort = [], type("Cohort", (), {"round": 1})()
    for _ in changes:
        made.round(cohort)
        found.append(made.shared.clone())
    return found


def test_fedadams_first_steps_by_hand(monkeypatch: Any) -> None:
    """m = 0.1 * 0.01, v = 0.99e-6 + 0.01 * 1e-4 = 1.99e-6; then both recursions once more with a change of 0."""
    first, second = steps(FedAdamServer, [[0.01, 0.0, -0.01], [0.0, 0.0, 0.0]], monkeypatch)
    assert first.tolist() == pytest.approx([0.0041483, 0, -0.0041483], rel=1e-4)
    more = 0.01 * 0.0009 / (1.9701e-6**0.5 + 0.001)
    assert (second - first).tolist() == pytest.approx([more, 0, -more], rel=1e-4)


def test_fedyogis_first_step_by_hand(monkeypatch: Any) -> None:
    """A change above tau: v = 1e-6 + 0.01 * 1e-4 = 2e-6; one below it: v = 1e-6 - 0.01 * 1e-8 = 0.9999e-6."""
    (first,) = steps(FedYogiServer, [[0.01, 1e-4]], monkeypatch)
    assert first.tolist() == pytest.approx([1e-5 / (2e-6**0.5 + 1e-3), 1e-7 / (0.9999e-6**0.5 + 1e-3)], rel=1e-5)


@pytest.mark.parametrize("server", [FedAdamServer, FedYogiServer])
def test_a_large_tau_makes_it_momentum(server: type[FedAdamServer], monkeypatch: Any) -> None:
    """With tau = 1e6 and a rate of 2e6 the step is the mean of the changes: sqrt(v) + tau is 2 tau."""
    options = {"tau": 1e6, "server_lr": 2e6, "beta1": 0.5}
    first, second = steps(server, [[1.0, -2.0], [3.0, 0.0]], monkeypatch, **options)
    assert first.tolist() == pytest.approx([0.5, -1.0], rel=1e-2)
    assert second.tolist() == pytest.approx([0.5 + 1.75, -1.0 - 0.5], rel=1e-2)


def shared(simulation: Any) -> Tensor:
    found: Tensor = simulation.server_state()["shared"]
    return found


def test_fedavgm_without_momentum_is_fedavg(simulated: Any) -> None:
    plain = simulated({"method": "fedavg", "rounds": 2})
    same = simulated({"method": "fedavgm", "rounds": 2, "fedavgm": {"momentum": 0.0}})
    assert same_bits(shared(plain), shared(same))
    assert not shared(simulated({"method": "fedavgm", "rounds": 2})).equal(shared(plain))


def test_fedavgms_second_step_has_the_first_one_in_it(simulated: Any) -> None:
    """w_2 = w_1 + eta (beta v_1 + d_2), where v_1 = d_1 and d_t is the mean of what the clients send in round t."""
    done = simulated({"method": "fedavgm", "rounds": 2, "fedavgm": {"momentum": 0.5, "server-lr": 0.5}})
    sent = {round: [one for one in done.tap.select("up", "train") if one.round == round] for round in (1, 2)}
    samples = {one.client: float(one.message.whole("samples")) for one in done.tap.select("up", "join")}
    before = done.tap.select("down", "train")[0].message.tensor("shared").double()
    velocity = torch.zeros_like(before)
    for round in (1, 2):
        total = sum(samples[one.client] for one in sent[round])
        trained = sum(samples[one.client] * one.message.tensor("shared").double() for one in sent[round]) / total
        velocity = 0.5 * velocity + trained - before
        before = before + 0.5 * velocity
    assert torch.allclose(shared(done).double(), before, atol=1e-6, rtol=0)


@pytest.mark.parametrize("method", ["fedadam", "fedyogi"])
def test_an_adaptive_server_sends_as_much_as_fedavg_and_moves_otherwise(simulated: Any, method: str) -> None:
    plain, done = simulated({"method": "fedavg", "rounds": 2}), simulated({"method": method, "rounds": 2})
    assert done.communication["uplink"] == plain.communication["uplink"]
    first = plain.tap.select("down", "train")[0].message.tensor("shared")
    second = next(one for one in done.tap.select("down", "train") if one.round == 2).message.tensor("shared")
    average = next(one for one in plain.tap.select("down", "train") if one.round == 2).message.tensor("shared")
    change = (average.double() - first.double()).float()
    square = 0.99e-6 + 0.01 * change**2 if method == "fedadam" else 1e-6 - 0.01 * change**2 * (1e-6 - change**2).sign()
    expected = first + 0.01 * 0.1 * change / (square.sqrt() + 1e-3)
    assert torch.allclose(second, expected, atol=1e-6, rtol=1e-4)
