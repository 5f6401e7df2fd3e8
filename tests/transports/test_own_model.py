"""A device's use of its store without a server: its own model, within the given disk space."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.deployments import Configs, Grid, deployed, simulated

from refprotofl.cli.entry import main
from refprotofl.core.errors import InputError
from refprotofl.export import load_exported, load_trained, predict
from refprotofl.export.node_model import is_node_store, load_own


@pytest.mark.parametrize("changed", [{}, {"method": "fedavg"}, {"method": "fedproto"}, {"evaluate__clients": 1}])
def test_a_device_predicts_with_the_model_that_it_has_in_the_simulated_run(
    grid: Grid, settings: Configs, apart: Path, tmp_path: Path, changed: dict[str, str]
) -> None:
    config = settings(**changed)
    deployed(grid, config, tmp_path / "there")
    here = simulated(config, tmp_path / "here")
    for client in here.summary["evaluated_clients"]:
        store = tmp_path / f"store-{client}"
        assert is_node_store(store)
        own, known = load_own(store), load_trained(here.folder, client)
        assert own.client == client
        assert own.rounds_done == 3
        asked = apart / f"client-{client}.npz"
        assert np.array_equal(predict(own, asked).probabilities, predict(known, asked).probabilities)


def test_a_device_that_was_never_scored_has_what_its_training_left(
    grid: Grid, settings: Configs, apart: Path, tmp_path: Path
) -> None:
    there = deployed(grid, settings(evaluate__clients=1), tmp_path / "there")
    (scored,) = there.summary["evaluated_clients"]
    other = next(client for client in range(3) if client != scored)
    assert len(predict(load_own(tmp_path / f"store-{other}"), apart / f"client-{other}.npz").predicted) > 0


def test_the_commands_take_a_store(
    grid: Grid, settings: Configs, apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(grid, settings(rounds=1), tmp_path / "there")
    store, model, labels = tmp_path / "store-1", tmp_path / "model", tmp_path / "labels.json"

    def command(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["refprotofl", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert command("export", str(store), "--out", str(model)) == 0
    assert load_exported(model).head.out_features == 10
    assert "Exported on its own device" in (model / "README.md").read_text()
    options = ["--format", "json", "--out", str(labels)]
    assert command("predict", str(store), str(apart / "client-1.npz"), *options) == 0
    assert json.loads(labels.read_text())["accuracy"] > 0
    assert command("predict", str(store), str(apart / "client-1.npz"), "--client", "0") == 2
    assert command("predict", str(tmp_path / "there"), str(apart / "client-1.npz")) == 2


def test_a_store_keeps_the_runs_that_were_used_last(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    grid.nodes[100] = {**grid.nodes[100], "keep-runs": 2}
    runs = []
    for number in range(4):
        deployed(grid, settings(rounds=1, seed=number), tmp_path / f"there-{number}")
        runs.append(json.loads((tmp_path / f"there-{number}" / "nodes.json").read_text())["run"])
    kept = {client: {one.name for one in (tmp_path / f"store-{client}" / "runs").iterdir()} for client in (0, 1)}
    assert kept == {0: {*runs[2:]}, 1: {*runs[1:]}}


def test_a_store_without_a_model_says_so(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    deployed(grid, settings(rounds=1), tmp_path / "there")
    (run,) = (tmp_path / "store-0" / "runs").iterdir()
    (run / "states.json").unlink()
    with pytest.raises(InputError, match="has no model yet"):
        load_own(tmp_path / "store-0")
