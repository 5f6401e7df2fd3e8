"""[finetune]: after the last round each client makes a model of its own from the common one, under any method."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.conftest import Simulate, Simulation
from tests.tiny import tiny_experiment

from refprotofl import Experiment
from refprotofl.core import ALL, HEAD, InputError, Parts, stream
from refprotofl.core.state import State, tensor_of
from refprotofl.export.trained_model import load_trained
from refprotofl.federation import Callback, run
from refprotofl.federation.resolution import prepare
from refprotofl.federation.simulation import load_federation
from refprotofl.methods import train
from refprotofl.wire import decode

LAST = 3  # round of the tiny experiment
FULL = {"method": "fedavg", "share": "full", "public": {"train-on": True}}


def trained_by_hand(done: Simulation, client: int, parts: Parts, epochs: int) -> torch.Tensor:
    """Return the vector after plain training of the common one on a client's own samples, written out here."""
    experiment = done.resolved
    federation = load_federation(Experiment.parse(done.experiment.plain()), None)
    samples, labels = federation.client(client).samples, done.client_state(client).get("labels")
    if isinstance(labels, torch.Tensor):
        samples = samples.relabelled(labels.long())
    model = federation.model
    model.write(ALL, tensor_of(done.server_state(), "shared"))
    settings = experiment.train.model_copy(update={"local_epochs": epochs, "lr": 0.5 * experiment.train.lr})
    train(model, samples, settings, stream(experiment.seed, "tune", client=client, round=LAST), parts=parts)
    return model.read(ALL)


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedproc", "vhl", "fast", "fednova"])
def test_each_client_ends_with_the_common_model_trained_on_its_own_samples(simulated: Simulate, method: str) -> None:
    table = {"epochs": 2, "rate": 0.5, "validation": 0}
    done = simulated({**FULL, "method": method, "finetune": table})
    for client in (0, 3):
        own = tensor_of(done.client_state(client), "own")
        assert own.equal(trained_by_hand(done, client, ALL, epochs=2))
        kept = load_trained(done.folder, client).model.read(("backbone", "feature"))  # vhl's head has more outputs
        assert kept.equal(own[: len(kept)])


def test_it_changes_no_round_and_costs_the_common_model_once_more(simulated: Simulate) -> None:
    plain, tuned = simulated(FULL), simulated({**FULL, "finetune": {"epochs": 2}})
    assert tensor_of(plain.server_state(), "shared").equal(tensor_of(tuned.server_state(), "shared"))
    last = tuned.tap.select("down", "finetune")
    assert [one.client for one in last] == [0, 1, 2, 3]
    answers = tuned.tap.select("up", "finetune")
    assert all(not one.message for one in answers)
    up = [one.communication["uplink"]["payload_bytes"] for one in (plain, tuned)]
    assert up[1] == up[0] + sum(len(one.data) for one in answers) < up[0] + 20
    more = sum(len(one.data) for one in last)
    assert tuned.communication["downlink"]["payload_bytes"] == plain.communication["downlink"]["payload_bytes"] + more
    size = tensor_of(tuned.server_state(), "shared").numel()
    assert tuned.communication["downlink"]["parameters"] == plain.communication["downlink"]["parameters"] + 4 * size
    assert tuned.finished is not None
    assert plain.finished is not None
    accuracies = tuned.finished.summary["accuracy"], plain.finished.summary["accuracy"]
    assert accuracies[0]["global"] == accuracies[1]["global"]
    assert (tuned.finished.summary["steps"] or 0) > (plain.finished.summary["steps"] or 0)


def test_the_head_alone_can_be_trained_first_or_only(simulated: Simulate) -> None:
    table = {"head-epochs": 2, "rate": 0.5, "validation": 0}
    probed = simulated({**FULL, "finetune": table})
    common, own = tensor_of(probed.server_state(), "shared"), tensor_of(probed.client_state(1), "own")
    head = sum(load_trained(probed.folder, 1).model.sizes(HEAD))
    assert own[:-head].equal(common[:-head])
    assert not own[-head:].equal(common[-head:])
    assert own.equal(trained_by_hand(probed, 1, HEAD, epochs=2))
    both = simulated({**FULL, "finetune": {**table, "epochs": 1}})
    assert not tensor_of(both.client_state(1), "own")[:-head].equal(common[:-head])


@pytest.mark.parametrize("compressor", ["stc", "ef21"])
def test_the_common_model_comes_as_the_broadcast_does(simulated: Simulate, compressor: str) -> None:
    done = simulated(
        {**FULL, "compress": {"name": compressor}, "finetune": {"epochs": 1, "rate": 0.5, "validation": 0}}
    )
    assert all(("base" in one.message) is (compressor == "stc") for one in done.tap.select("down", "finetune"))
    assert tensor_of(done.client_state(2), "own").equal(trained_by_hand(done, 2, ALL, epochs=1))


def test_a_mix_is_chosen_by_held_out_samples(simulated: Simulate) -> None:
    """Of five mixtures of the common and the fine-tuned weights."""
    done = simulated({**FULL, "finetune": {"epochs": 3, "validation": 4}, "train": {"lr": 0.1}})
    common = tensor_of(done.server_state(), "shared").double()
    for client in range(4):
        own = tensor_of(done.client_state(client), "own").double()
        assert own.equal(common) or float((own - common).norm()) > 0
    kept = simulated({**FULL, "finetune": {"epochs": 1, "validation": 10_000}})  # nobody has so many samples
    assert tensor_of(kept.client_state(0), "own").equal(tensor_of(kept.server_state(), "shared"))


def test_an_interrupted_run_and_one_with_workers_end_alike(simulate: Simulate, tmp_path: Path) -> None:
    class Kill(Callback):
        def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
            if event["round"] == 2:
                raise KeyboardInterrupt

    over = {**FULL, "clients": 5, "fraction": 0.6, "finetune": {"epochs": 1, "head-epochs": 1}}
    done = simulate(over)
    assert done.finished is not None
    digest = done.finished.summary["state_digest"]
    experiment = Experiment.parse(done.experiment.plain())
    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path / "killed", callback=Kill())
    assert run(experiment, out=tmp_path / "killed", resume=True).summary["state_digest"] == digest
    assert run(experiment, out=tmp_path / "two", workers=2).summary["state_digest"] == digest


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"method": "refprotofl"}, "clients share feature and head alone"),
        ({"method": "lg-fedavg"}, "clients share feature and head alone"),
        ({"method": "fedavg", "share": "adapter"}, "clients share feature and head alone"),
        ({"method": "fedpac"}, "clients share backbone and feature alone"),
        ({"method": "fedproto"}, "clients share no weights"),
        ({"method": "local"}, "clients share no weights"),
        ({"method": "centralised"}, "its clients do not train"),
        ({"method": "fedavg", "model": {"norm": "batch-local"}}, "each client has batch statistics of its own"),
    ],
)
def test_without_a_common_model_it_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=rf"common model, which method = '.*' does not have: .*{words}"):
        prepare(tiny_experiment(**keys, finetune={"epochs": 1}))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"rate": 0.1}, "nothing is fine-tuned"),
        ({"epochs": 1, "validation": 1}, "holds out every sample"),
        ({"epochs": 1, "rate": 0.0}, "rate"),
    ],
)
def test_what_would_be_without_effect_is_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        tiny_experiment(method="fedavg", finetune=table)


def test_a_run_whose_clients_were_fine_tuned_is_not_extended(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    keys: dict[str, Any] = {**FULL, "finetune": {"epochs": 1}}
    run(tiny({**keys, "rounds": 1}), out=tmp_path / "run")
    with pytest.raises(InputError, match=r"cannot be extended to 2: its clients were fine-tuned after the last round"):
        run(tiny({**keys, "rounds": 2}), out=tmp_path / "run", resume=True)


def test_a_client_refuses_to_fine_tune_unasked(simulated: Simulate) -> None:
    done = simulated(FULL)
    assert not done.tap.select("down", "finetune")
    state: State = done.client_state(0)
    assert "own" not in state
    assert decode(done.tap.select("down", "train")[0].data)
