"""One model on the data of all clients: nothing crosses, and it is trained as often as it says."""

import math

import numpy as np
import pytest
import torch

from refprotofl.export import load_trained
from refprotofl.federation import Callback, run, simulation
from refprotofl.methods import Samples
from refprotofl.methods.base.optimisers import FreshSgd
from refprotofl.methods.builtin.centralised.centralised import CentralisedServer
from refprotofl.wire.tensors import same_bits

CENTRAL = {"method": "centralised"}


def test_nothing_crosses_but_the_model_that_is_evaluated(simulated):
    done = simulated(CENTRAL)
    assert {one.phase for one in done.tap.crossings} == {"evaluate"}
    for bucket in ("uplink", "downlink", "one_off"):
        assert not any(done.communication[bucket].values())


def test_every_client_scores_the_one_model_also_on_its_own_mix(simulated):
    summary = simulated(CENTRAL).finished.summary
    assert summary["accuracy_per_client"]["personal"] == [summary["accuracy"]["global"]] * 4
    assert summary["accuracy"]["personal_before"] is None
    assert len(set(summary["accuracy_per_client"]["own"])) > 1


def pooled(federation: simulation.Federation) -> Samples:
    server = simulation.server_side(federation).server
    assert isinstance(server, CentralisedServer)
    return server.pooled


def test_it_learns_from_what_all_clients_have(tiny, simulated):
    federation = simulation.load_federation(tiny(CENTRAL), None)
    data = federation.data
    rows = pooled(federation).rows.tolist()
    assert sorted(rows) == sorted(np.concatenate(data.client_indices).tolist())
    assert not set(rows) & set(data.public_indices.tolist())
    trained_on = simulation.load_federation(tiny(CENTRAL | {"public": {"train-on": True}}), None)
    assert len(pooled(trained_on)) == len(rows) + len(data.public_indices)


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_steps_are_those_of_as_many_passes_over_the_pooled_data(simulate, monkeypatch, epochs):
    steps = []
    honest = FreshSgd.step

    def counted(self, *rest):
        steps.append(1)
        honest(self, *rest)

    monkeypatch.setattr(FreshSgd, "step", counted)
    simulate(CENTRAL | {"train": {"local-epochs": epochs}})
    assert len(steps) == 3 * epochs * math.ceil((150 - 20) / 16)


def test_it_does_not_depend_on_how_the_data_were_dealt(simulated):
    one, other = simulated(CENTRAL), simulated(CENTRAL | {"partition": "iid", "clients": 2})
    assert same_bits(one.server_state()["shared"], other.server_state()["shared"])


def test_batch_statistics_travel_with_the_model_and_survive_a_break(simulated, tmp_path):
    over = CENTRAL | {"model": {"norm": "batch-local"}, "evaluate": {"every": 1, "test-limit": 100}}
    whole = simulated(over)
    assert whole.server_state()["backbone.2.num_batches_tracked"] == 3 * 9
    accuracy = whole.finished.summary["accuracy"]
    assert accuracy["global"] == accuracy["personal"] > 0.3

    class Breaker(Callback):
        def on_round(self, event, accuracy):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(whole.experiment, out=tmp_path / "run", callback=Breaker())
    resumed = run(whole.experiment, out=tmp_path / "run", resume=True)
    assert resumed.summary["state_digest"] == whole.finished.summary["state_digest"]

    weights = load_trained(whole.folder, 3).model.state_dict()
    for name, value in whole.server_state().items():
        if name != "shared":
            assert torch.equal(weights[name], value)
