"""FAST in real runs: its messages, the weak labels that clients train on, and the recorded facts."""

import json

import pytest
import torch

from refprotofl.core.errors import InputError
from refprotofl.core.state import tensor_of
from refprotofl.engines.local.store import ClientStore, Location
from refprotofl.federation import Callback, run, simulation
from refprotofl.wire.tensors import same_bits

pytestmark = pytest.mark.slow

ADAPTER = 128 * 8 + 8 + 80 + 10


def fast(simulated, over=None, engine=None, **table):
    named = {name.replace("_", "-"): value for name, value in table.items()}
    opened = {} if engine is None else {"engine": engine}
    return simulated({"method": "fast", "share": "adapter", "fast": named, **(over or {})}, **opened)


def shared(done):
    return done.server_state()["shared"]


def labels_kept(done):
    return {client: tensor_of(done.client_state(client), "labels").long() for client in done.checkpoint().records}


def true_labels(done):
    data = simulation.load_federation(done.experiment, None).data
    return {
        client: torch.from_numpy(data.dataset.train_labels[rows]) for client, rows in enumerate(data.client_indices)
    }


@pytest.mark.parametrize("knn", ["pooled", "per-client"])
def test_with_every_label_asked_for_it_is_fedavg_to_the_last_bit(simulated, knn):
    assert same_bits(
        shared(fast(simulated, knn=knn, query_share=1.0)), shared(simulated({"method": "fedavg", "share": "adapter"}))
    )


@pytest.mark.parametrize("knn", ["pooled", "per-client"])
def test_weak_labels_are_trained_on_and_their_facts_are_true(simulated, knn):
    done = fast(simulated, knn=knn, query_share=0.1)
    assert not same_bits(shared(done), shared(simulated({"method": "fedavg", "share": "adapter"})))
    kept, true = labels_kept(done), true_labels(done)
    assert kept.keys() == true.keys()
    right = sum(int((kept[client] == true[client]).sum()) for client in true)
    facts = done.finished.summary["facts"]
    assert facts["training_label_accuracy"] == right / 130 < 1
    assert facts["embedder"] == "pca"
    answers = [one.message for one in done.tap.select("up", "label")]
    for one in done.tap.select("up", "label"):
        assert one.message["seeds"] + one.message["weak"] == len(true[one.client])
        assert one.message["queried"] == round(0.1 * one.message["weak"])
    assert facts["oracle_labels"] == sum(message["seeds"] + message["queried"] for message in answers)
    assert facts["weak_label_accuracy"] == sum(m["weak_right"] for m in answers) / sum(m["weak"] for m in answers) > 0.4
    assert facts["note"].startswith("seed labels were raised from 1 to ")


def test_facts_stand_in_every_evaluation_and_other_methods_have_none(simulated):
    done = fast(simulated, {"evaluate": {"every": 1, "test-limit": 20}})
    assert [event["facts"] for event in done.events("evaluation")] == [done.finished.summary["facts"]] * 3
    assert json.loads((done.folder / "summary.json").read_text())["facts"] == done.finished.summary["facts"]
    assert simulated({"method": "fedavg", "share": "adapter"}).finished.summary["facts"] == {}


def test_pooled_neighbours_cost_the_seeds_once_up_and_the_pool_once_down(simulated):
    done = fast(simulated)
    sent = {one.client: one.message for one in done.tap.select("up", "seed")}
    assert sum(len(message.get("labels", ())) for message in sent.values()) == 50  # five of each of ten classes
    classes = torch.cat([message["labels"] for message in sent.values() if message]).long()
    assert classes.bincount().tolist() == [5] * 10
    true = true_labels(done)
    for one in done.tap.select("down", "label"):
        assert one.message["pool"].shape == (50, 19)  # twenty public images span nineteen directions
        assert one.message["pool"].equal(torch.cat([message["embeddings"] for message in sent.values() if message]))
        assert one.message["pool_labels"].long().equal(classes)
    for client, message in sent.items():
        assert set(message["labels"].tolist()) <= set(true[client].tolist())
    assert [one.phase for one in done.tap.crossings if one.client == 1 and one.direction == "down"] == [
        "join", "seed", "label", "train", "train", "train", "evaluate"
    ]  # fmt: skip
    once = [one for one in done.tap.crossings if one.phase in ("join", "seed", "label")]
    assert done.communication["one_off"] == {"messages": 24, "payload_bytes": sum(len(one.data) for one in once)}
    assert done.communication["uplink"]["parameters"] == ADAPTER * 12
    assert done.communication["uplink"]["other_values"] == 0


def test_alone_a_client_gets_the_public_directions_and_reveals_nothing_of_its_data(simulated):
    done = fast(simulated, knn="per-client")
    assert {one.phase for one in done.tap.crossings} == {"join", "label", "train", "evaluate"}
    assert all(set(one.message) == {"centre", "components"} for one in done.tap.select("down", "label"))
    assert all(
        not isinstance(value, torch.Tensor)
        for one in done.tap.select("up", "label", "join")
        for value in one.message.values()
    )


def test_without_a_public_set_each_fits_its_own_and_pooling_is_refused(simulated):
    none = {"public": {"per-class": 0}}
    done = fast(simulated, none, knn="per-client")
    assert all(one.message == {} for one in done.tap.select("down", "label"))
    assert done.finished.summary["facts"]["weak_label_accuracy"] > 0.4
    with pytest.raises(InputError, match="fitted on the public set, but there is none"):
        fast(simulated, none)


@pytest.mark.parametrize(
    "switch", [{"uncertainty": "entropy"}, {"uncertainty": "margin"}, {"class-aware": "off"}, {"neighbours": 1}]
)
def test_switches_change_the_queries(simulated, switch):
    over = {"train-limit": 800, "rounds": 1}
    usual, other = fast(simulated, over, query_share=0.2), fast(simulated, over, query_share=0.2, **switch)
    assert any(not labels_kept(usual)[client].equal(labels_kept(other)[client]) for client in range(4))
    assert usual.finished.summary["facts"]["oracle_labels"] == other.finished.summary["facts"]["oracle_labels"]


@pytest.mark.parametrize("knn", ["pooled", "per-client"])
def test_a_client_that_lost_its_labels_gets_the_same_seeds_again(simulate, simulated, stored_by, knn):
    usual = fast(simulated, knn=knn)

    class Forgetful(ClientStore):
        def base(self, client, location):
            return super().base(client, Location() if location.file == "000002-1.safetensors" else location)

    done = fast(simulate, engine=stored_by(Forgetful), knn=knn)
    assert done.events("client-failed") == []
    assert [(one.round, one.client) for one in done.tap.select("up", "label")][4:] == [(2, 2)]
    assert done.finished.summary["facts"] == usual.finished.summary["facts"]
    assert all(labels_kept(done)[client].equal(labels_kept(usual)[client]) for client in range(4))
    assert sorted(done.server_state()["pool_labels"].tolist()) == sorted(usual.server_state()["pool_labels"].tolist())


def test_late_clients_add_to_the_pool_and_a_break_changes_nothing(simulated, tmp_path):
    over = {"fraction": 0.5, "rounds": 4, "clients": 6, "evaluate": {"every": 1, "test-limit": 20}}
    whole = fast(simulated, over)
    joined = {one.client: one.round for one in whole.tap.select("up", "label")}
    assert len(set(joined.values())) > 1
    sizes = {one.round: len(one.message["pool"]) for one in whole.tap.select("down", "label")}
    assert list(sizes.values()) == sorted(sizes.values())

    class Breaker(Callback):
        def on_round(self, event, accuracy):
            if event["round"] == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(whole.experiment, out=tmp_path / "run", callback=Breaker())
    resumed = run(whole.experiment, out=tmp_path / "run", resume=True).summary
    assert resumed["state_digest"] == whole.finished.summary["state_digest"]
    assert resumed["facts"] == whole.finished.summary["facts"]


def test_a_bad_embedder_is_refused_before_the_run_begins(simulate, tmp_path):
    with pytest.raises(InputError, match=r"fast\.embedder = 'siglip'"):
        fast(simulate, embedder="siglip")
    assert list(simulate.last.folder.iterdir()) == []
