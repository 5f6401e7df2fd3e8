"""SCAFFOLD and FedDyn: FedAvg where nothing is corrected, and what both sides remember of the clients' changes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation.resolution import prepare
from refprotofl.wire.tensors import same_bits

ONE_STEP = {"lr": 0.1, "momentum": 0.0, "weight-decay": 0.0, "batch-size": 1000}


def shared(simulation: Any) -> Tensor:
    found: Tensor = simulation.server_state()["shared"]
    return found


def samples(simulation: Any) -> dict[int, int]:
    return {one.client: one.message.whole("samples") for one in simulation.tap.select("up", "join")}


def mean(simulation: Any, name: str) -> Tensor:
    """The mean of what all clients keep under a name, by data size: 0 of the usual size where one has not joined."""
    sizes = samples(simulation)
    kept = [size * simulation.client_state(client)[name].double() for client, size in sizes.items()]
    joined: float = len(sizes) / simulation.experiment.clients
    return joined * torch.stack(kept).sum(dim=0) / sum(sizes.values())


def changes(simulation: Any, round: int) -> dict[int, Tensor]:
    received = {one.client: one.message for one in simulation.tap.select("down", "train") if one.round == round}
    return {
        one.client: one.message.tensor("shared").double() - received[one.client].tensor("shared").double()
        for one in simulation.tap.select("up", "train")
        if one.round == round
    }


@pytest.mark.parametrize("share", ["adapter", "full"])
def test_without_variates_scaffold_is_fedavg(simulated: Any, share: str) -> None:
    plain, first = (simulated({"method": name, "rounds": 1, "share": share}) for name in ("fedavg", "scaffold"))
    assert same_bits(shared(plain), shared(first))  # no client has a variate before its first round


def test_scaffold_is_fedavg_where_a_round_is_one_full_step(simulated: Any) -> None:
    """The corrections c - c_k of all clients cancel; those of single clients do not."""
    keys = {"rounds": 3, "train": ONE_STEP}
    plain, done = (simulated({"method": name, **keys}) for name in ("fedavg", "scaffold"))
    assert torch.allclose(shared(plain), shared(done), atol=1e-6, rtol=0)
    alike = [changes(plain, 2)[client].allclose(changes(done, 2)[client], atol=1e-4) for client in range(4)]
    assert not any(alike)


def test_a_clients_variate_is_its_gradient_by_hand(simulated: Any) -> None:
    """After one step of 0.1 it is -change / 0.1; in the next round the change is -0.1 (gradient + c - c_k)."""
    once, twice = (simulated({"method": "scaffold", "rounds": rounds, "train": ONE_STEP}) for rounds in (1, 2))
    common = once.server_state()["variate"].double()
    for client in range(4):
        first = once.client_state(client)["variate"].double()
        assert torch.allclose(first, -changes(once, 1)[client] / 0.1, atol=1e-6)
        gradient = -changes(twice, 2)[client] / 0.1 - (common - first)
        assert torch.allclose(twice.client_state(client)["variate"].double(), gradient, atol=1e-5)


def test_with_momentum_the_variate_divides_by_the_weight_of_the_gradients(simulated: Any) -> None:
    """Two steps at momentum 0.5 weigh 1 + 1.5."""
    over = {"method": "scaffold", "rounds": 1, "clients": 1, "train": {"lr": 0.1, "momentum": 0.5, "batch-size": 75}}
    done = simulated(over)
    assert samples(done)[0] in range(76, 151)
    assert torch.allclose(done.client_state(0)["variate"].double(), -changes(done, 1)[0] / 0.25, atol=1e-6)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"fraction": 0.5},
        {"fraction": 0.5, "rounds": 6},
        {"compress": {"name": "top-k-ef"}},
        {"compress": {"name": "stc"}},
    ],
    ids=["all", "some", "some-in-turn", "top-k-ef", "stc"],
)
def test_scaffolds_server_knows_the_mean_of_the_clients_variates(simulated: Any, keys: dict[str, Any]) -> None:
    done = simulated({"method": "scaffold", "rounds": 2, "share": "adapter", **keys})
    common = done.server_state()["variate"].double()
    assert common.abs().max() > 1e-3
    assert torch.allclose(mean(done, "variate"), common, atol=1e-5)


def test_scaffold_alone_is_fedavg(simulated: Any) -> None:
    plain, done = (simulated({"method": name, "clients": 1, "rounds": 3}) for name in ("fedavg", "scaffold"))
    assert torch.allclose(shared(plain), shared(done), atol=1e-5)


@pytest.mark.parametrize("share", ["adapter", "full"])
def test_feddyn_without_its_regulariser_is_fedavg(simulated: Any, share: str) -> None:
    keys = {"rounds": 2, "share": share}
    plain = simulated({"method": "fedavg", **keys})
    assert same_bits(shared(plain), shared(simulated({"method": "feddyn", "feddyn": {"alpha": 0}, **keys})))
    assert not shared(simulated({"method": "feddyn", **keys})).equal(shared(plain))


def test_feddyns_two_rounds_by_hand(simulated: Any) -> None:
    """Round 1: w = w_0 + 2 d_1. Round 2: w = w_1 + d_1 + 2 d_2, and g_k = -alpha (d_1k + d_2k)."""
    done = simulated({"method": "feddyn", "rounds": 2, "feddyn": {"alpha": 0.5}, "train": ONE_STEP})
    sizes, total = samples(done), sum(samples(done).values())
    first, second = changes(done, 1), changes(done, 2)
    means = [torch.stack([sizes[one] * by[one] for one in sizes]).sum(dim=0) / total for by in (first, second)]
    broadcast = [next(one for one in done.tap.select("down", "train") if one.round == round) for round in (1, 2)]
    start, after = (one.message.tensor("shared").double() for one in broadcast)
    assert torch.allclose(after, start + 2 * means[0], atol=1e-6)
    assert torch.allclose(shared(done).double(), after + means[0] + 2 * means[1], atol=1e-6)
    for client in range(4):
        kept = done.client_state(client)["gradient"].double()
        assert torch.allclose(kept, -0.5 * (first[client] + second[client]), atol=1e-6)


def test_feddyns_second_step_follows_the_gradient_less_the_kept_one(simulated: Any) -> None:
    """Where g_k is 0.5 times another run's the steps differ by 0.1 (g_k - g_k'), as the model before is the same."""
    half, full = (
        simulated({"method": "feddyn", "rounds": 2, "feddyn": {"alpha": alpha}, "train": ONE_STEP})
        for alpha in (0.25, 0.5)
    )
    for client in range(4):
        apart = changes(full, 2)[client] - changes(half, 2)[client]
        assert torch.allclose(apart, 0.1 * (-0.5 + 0.25) * changes(full, 1)[client], atol=1e-6)


@pytest.mark.parametrize(
    "keys",
    [{}, {"fraction": 0.5}, {"fraction": 0.5, "rounds": 6}, {"compress": {"name": "qsgd", "bits": 4}}],
    ids=["all", "some", "some-in-turn", "qsgd"],
)
def test_feddyns_server_knows_the_mean_of_the_clients_gradients(simulated: Any, keys: dict[str, Any]) -> None:
    done = simulated({"method": "feddyn", "share": "adapter", "feddyn": {"alpha": 0.2}, **keys})
    moved = done.server_state()["moved"].double()
    assert moved.abs().max() > 1e-3
    assert torch.allclose(mean(done, "gradient") / -0.2, moved, atol=1e-5)


def test_under_client_level_privacy_feddyn_counts_all_clients_alike(simulated: Any) -> None:
    """The sum is divided by the clients that were asked, whatever their data."""
    keys = {"rounds": 6, "fraction": 0.5, "privacy": {"unit": "client", "clip": 1e6, "noise": 0}}
    done = simulated({"method": "feddyn", "feddyn": {"alpha": 0.2}, **keys})
    kept = torch.stack([done.client_state(client)["gradient"].double() for client in samples(done)])
    assert torch.allclose(
        kept.sum(dim=0) / done.experiment.clients / -0.2, done.server_state()["moved"].double(), atol=1e-5
    )


@pytest.mark.parametrize("method", ["scaffold", "feddyn"])
def test_changes_that_count_again_are_refused(method: str) -> None:
    with pytest.raises(InputError, match=r'"ef21" counts the last changes of absent clients again'):
        prepare(Experiment(method=method, compress={"name": "ef21"}))
    prepare(Experiment(method=method, compress={"name": "top-k-ef"}))
