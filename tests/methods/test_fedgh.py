"""FedGH: the server's header learns from prototypes, and is no client's."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from refprotofl.core.errors import GuardError
from refprotofl.core.state import tensor_of
from refprotofl.federation import simulation
from refprotofl.methods.builtin.fedgh.fedgh import FedGHServer
from refprotofl.methods.common.prototypes import ClassMeans, read_means


def run_of(simulated: Any, **table: Any) -> Any:
    named = {name.replace("_", "-"): value for name, value in table.items()}
    return simulated({"method": "fedgh", "fedgh": named})


def headers(done: Any) -> list[Tensor]:
    """The header that was sent in each round, and the last one."""
    sent = {one.round: one.message["shared"] for one in done.tap.select("down", "train")}
    return [sent[1], sent[2], sent[3], done.server_state()["shared"]]


def server(tiny: Any, **table: Any) -> Any:
    over = {"method": "fedgh", "fedgh": {name.replace("_", "-"): value for name, value in table.items()}}
    built = simulation.server_side(simulation.load_federation(tiny(over), None)).server
    assert isinstance(built, FedGHServer)
    built.shared = torch.zeros(90)
    return built


def held(vectors: dict[int, Tensor], counts: dict[int, int] | None = None) -> ClassMeans:
    means, number = torch.zeros(10, 8), torch.zeros(10, dtype=torch.int64)
    for label, vector in vectors.items():
        means[label], number[label] = vector, (counts or {}).get(label, 1)
    return ClassMeans(means, number)


@pytest.mark.parametrize("mode", ["paper", "official"])
def test_the_header_moves_in_every_round_and_is_no_clients(simulated: Any, mode: str) -> None:
    done = run_of(simulated, server=mode)
    sent = headers(done)
    assert all(not one.equal(other) for one, other in itertools.pairwise(sent))
    for client in done.checkpoint().records:
        own = done.client_state(client)
        assert tensor_of(own, "trained").shape == sent[3].shape
        assert not tensor_of(own, "trained").equal(sent[3])


def test_a_frozen_header_stays_as_it_began(simulated: Any) -> None:
    sent = headers(run_of(simulated, server="frozen"))
    assert all(one.equal(sent[0]) for one in sent)


def test_the_local_header_is_scored_before_and_the_servers_after(simulated: Any) -> None:
    done = simulated({"method": "fedgh", "train": {"lr": 0.1}, "evaluate": {"test-limit": 0}})
    accuracy = done.finished.summary["accuracy"]
    assert None not in (accuracy["personal"], accuracy["personal_before"])
    assert accuracy["personal"] != accuracy["personal_before"]
    assert accuracy["global"] is accuracy["personal_prototype"] is None


def test_up_go_prototypes_with_labels_and_down_goes_the_header(simulated: Any) -> None:
    done = run_of(simulated)
    up, down = done.communication["uplink"], done.communication["downlink"]
    classes = [int(read_means(one.message, 10, 8).counts.sum()) for one in done.tap.select("up", "train")]
    assert (up["parameters"], up["prototype_values"], up["other_values"]) == (0, 8 * sum(classes), sum(classes))
    assert (down["parameters"], down["prototype_values"], down["other_values"]) == (12 * 90, 0, 0)


def test_one_epoch_from_zero_is_one_step_of_softmax_regression(tiny: Any) -> None:
    vector = torch.arange(8.0)
    header = server(tiny, server_epochs=1, server_lr=0.5).trained_header(1, [held({3: vector})])
    share = torch.full((10,), 0.1)
    share[3] -= 1  # softmax of zeros minus the label
    assert header[:80].view(10, 8).allclose(-0.5 * share.outer(vector))
    assert header[80:].allclose(-0.5 * share)


def test_by_count_a_prototype_of_three_samples_weighs_three_times_one_of_one(tiny: Any) -> None:
    vector, counts = torch.ones(8), {0: 1, 1: 3}
    weighing = server(tiny, server_epochs=1, weighting="count")
    bias = weighing.trained_header(1, [held({0: vector, 1: vector}, counts)])[80:]
    # (1 + 3) / 2 is the mean count: weights 0.5 and 1.5, a mean over two pairs, softmax 0.1 everywhere
    assert bias[0].item() == pytest.approx(0.01 * (0.5 * 0.9 - 1.5 * 0.1) / 2)
    assert bias[1].item() == pytest.approx(0.01 * (1.5 * 0.9 - 0.5 * 0.1) / 2)


def test_the_official_pass_takes_one_prototype_at_a_time_in_client_order(tiny: Any) -> None:
    one, other = held({0: torch.ones(8)}), held({1: torch.full((8,), 2.0)})
    built = server(tiny, server="official")
    forth, back = built.trained_header(1, [one, other]), built.trained_header(1, [other, one])
    assert not forth.equal(back)
    assert built.trained_header(2, [one, other]).equal(forth)  # nothing in it is drawn
    huge = built.trained_header(1, [held({0: torch.full((8,), 1e6)})])
    assert huge.norm().item() == pytest.approx(0.01 * 50, rel=1e-3)  # the gradient is clipped to length 50


def test_counts_go_up_only_if_they_weigh(simulated: Any) -> None:
    plain, weighted = run_of(simulated), run_of(simulated, weighting="count")
    assert not any("counts" in one.message for one in plain.tap.select("up", "train"))
    assert all("counts" in one.message for one in weighted.tap.select("up", "train"))
    assert not headers(plain)[1].equal(headers(weighted)[1])


def test_a_header_that_never_learns_stops_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refprotofl.methods.builtin.fedgh.fedgh.minimise", lambda *_: None)
    with pytest.raises(GuardError, match="left the header exactly as it was"):
        simulate({"method": "fedgh"})
