import json
import shutil

import pytest
import torch

from refprotofl import data
from refprotofl.core.errors import DataError, InputError
from refprotofl.export import load_trained
from refprotofl.models import ADAPTER, build_model
from refprotofl.records.folder import read_events, read_experiment
from refprotofl.records.state_files import load_state


def manifest(folder):
    return json.loads((folder / "checkpoint" / "manifest.json").read_text())


def test_private_backbones_and_one_shared_adapter(mlp_run):
    models = [load_trained(mlp_run, client).model for client in range(3)]
    record = manifest(mlp_run)["server"]
    shared = load_state(mlp_run / "checkpoint" / record["file"], record["digest"])["adapter"]
    assert isinstance(shared, torch.Tensor)
    assert all(torch.equal(model.read(ADAPTER), shared) for model in models)
    first, second = (model.read_private(ADAPTER)["backbone.1.weight"] for model in models[:2])
    assert not torch.equal(first, second)
    assert not any(module.training for model in models for module in model.modules())


def test_what_is_known_of_it(mlp_run):
    trained = load_trained(mlp_run, 1)
    assert trained.class_names == tuple("0123456789")
    assert trained.shape == (1, 8, 8)
    assert (trained.client, trained.rounds_done) == (1, 2)
    assert trained.state_digest == json.loads((mlp_run / "summary.json").read_text())["state_digest"]


def test_local_clients_have_their_own_adapters_and_the_initial_one_before_training(local_run):
    trained_clients = {client for event in read_events(local_run) for client in event.get("participants", [])}
    initial = build_model(read_experiment(local_run))
    adapters = [load_trained(local_run, client).model.read(ADAPTER) for client in range(3)]
    assert 0 < len(trained_clients) < 3
    for client, adapter in enumerate(adapters):
        assert torch.equal(adapter, initial.read(ADAPTER)) == (client not in trained_clients)


def test_the_data_set_is_not_loaded(mlp_run, monkeypatch):
    monkeypatch.setattr(data.loading, "load_digits", lambda: pytest.fail("the data set was loaded"))
    load_trained(mlp_run, 0)


def test_nothing_in_the_run_folder_changes(mlp_run):
    stray = mlp_run / "checkpoint" / "server-7.safetensors"
    stray.write_bytes(b"of a round that never was")
    before = {path: path.stat().st_mtime_ns for path in mlp_run.rglob("*")}
    load_trained(mlp_run, 0)
    assert {path: path.stat().st_mtime_ns for path in mlp_run.rglob("*")} == before
    stray.unlink()


def test_not_a_run_folder(tmp_path):
    with pytest.raises(InputError, match=r"is not a run folder: it has no experiment\.json"):
        load_trained(tmp_path, 0)


def test_no_committed_round(mlp_run, tmp_path):
    shutil.copy(mlp_run / "experiment.json", tmp_path)
    with pytest.raises(InputError, match="has no committed round"):
        load_trained(tmp_path, 0)


@pytest.mark.parametrize("client", [-1, 3])
def test_a_client_that_is_not_there(mlp_run, client):
    with pytest.raises(InputError, match=rf"There is no client {client} in .*\. Its clients are 0 to 2"):
        load_trained(mlp_run, client)


@pytest.mark.parametrize("part", ["server", "client"])
def test_a_damaged_file_is_named(mlp_run, tmp_path, part):
    copy = shutil.copytree(mlp_run, tmp_path / "copy")
    record = manifest(copy)["server"] if part == "server" else manifest(copy)["clients"]["2"]
    file = copy / "checkpoint" / ("clients" if part == "client" else "") / record["file"]
    file.write_bytes(file.read_bytes()[:-1] + b"\x00\x01")
    with pytest.raises(DataError, match=f"{file.name} is truncated or was changed"):
        load_trained(copy, 2)
    file.unlink()
    with pytest.raises(DataError, match=f"{file.name} cannot be read"):
        load_trained(copy, 2)
