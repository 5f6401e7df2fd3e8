"""Nodes with data and stores of their own, asked through Flower's messages: the same run as a simulation."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deployments import CLIENTS, FIRST, Configs, Grid, Stop, deployed, failures, mark_of, node, simulated
from tests.transports.conftest import MakeGrid

from refprotofl.core.errors import InputError
from refprotofl.deploy.admission import default_client
from refprotofl.records.events import read_events, read_traffic
from refprotofl.records.verify import first_difference


@pytest.mark.parametrize(
    "changed",
    [{}, {"method": "fedavg", "share": "full"}, {"method": "fedproto"}, {"method": "local"}, {"method": "thin"}],
    ids=lambda changed: str(changed.get("method", "refprotofl")),
)
def test_a_deployment_is_the_simulated_run(
    grid: Grid, settings: Configs, tmp_path: Path, changed: dict[str, Any]
) -> None:
    config = settings(**changed)
    there, here = deployed(grid, config, tmp_path / "there"), simulated(config, tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None
    unknown = {"seconds": None, "steps": None}  # a client of FedProto does not report its number of samples
    assert there.summary | unknown == here.summary | unknown


def test_a_simulated_federation_can_be_deployed_as_it_is(
    make_grid: MakeGrid, exported: Path, settings: Configs, tmp_path: Path
) -> None:
    """Use images held out of the clients' data as the deployment's public set, with the statistics of the whole."""
    grid = make_grid({FIRST + number: node(exported, tmp_path, number) for number in range(CLIENTS)})
    config = settings()
    there = deployed(grid, config, tmp_path / "there")
    here = simulated(config | {"public.dataset": "", "test.dataset": ""}, tmp_path / "here")
    assert there.summary["state_digest"] == here.summary["state_digest"]
    assert there.summary["accuracy"] == here.summary["accuracy"]


INPUT = {"class-names": [str(digit) for digit in range(10)], "shape": [1, 8, 8], "mean": [0.3], "std": [0.4]}


def as_text(seen: dict[str, Any]) -> str:
    """A table as a run config holds it: TOML, in one line."""
    return "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in seen.items()) + "}"


@pytest.mark.parametrize("found", ["test", "input"])
def test_a_deployment_without_a_public_set_continues_where_it_stopped(
    grid: Grid, settings: Configs, tmp_path: Path, found: str
) -> None:
    config = settings(method="fedavg", public__dataset="")
    if found == "input":
        config |= {"test.dataset": "", "input": as_text(INPUT)}
    with pytest.raises(KeyboardInterrupt):
        deployed(grid, config, tmp_path / "there", Stop(1))
    there, whole = deployed(grid, config, tmp_path / "there"), deployed(grid, config, tmp_path / "whole")
    assert first_difference(whole.folder, there.folder) is None
    assert deployed(grid, config, tmp_path / "there").reused


def test_without_a_test_set_each_node_scores_its_own_images_alone(
    grid: Grid, settings: Configs, tmp_path: Path
) -> None:
    config = settings(method="fedavg", public__dataset="", test__dataset="", input=as_text(INPUT))
    accuracy = deployed(grid, config, tmp_path / "there").summary["accuracy"]
    assert (accuracy["personal"], accuracy["global"]) == (None, None)
    assert accuracy["own"] is not None
    assert accuracy["own"] > 0.2


def test_other_keys_of_input_are_another_experiment(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    config = settings(method="fedavg", public__dataset="", test__dataset="", input=as_text(INPUT), rounds=1)
    deployed(grid, config, tmp_path / "there")
    with pytest.raises(InputError, match=r"another experiment; it differs in input\.mean"):
        deployed(grid, config | {"input": as_text(INPUT | {"mean": [0.5]})}, tmp_path / "there")


def test_classes_that_the_public_set_lacks_do_not_make_it_another_experiment(
    grid: Grid, settings: Configs, tmp_path: Path
) -> None:
    with np.load(settings()["public.dataset"]) as whole:
        few = {name: whole[name][whole["y"] < "4"] if name in ("x", "y") else whole[name] for name in whole.files}
    np.savez(tmp_path / "few.npz", **few)
    config = settings(rounds=1, public__dataset=str(tmp_path / "few.npz"), public__classes="[0, 1, 9]")
    deployed(grid, config, tmp_path / "there")
    assert deployed(grid, config, tmp_path / "there").reused


@pytest.mark.parametrize(("key", "value"), [("mean", [0.1, 0.2]), ("std", [0.0]), ("shape", [1, 0, 8])])
def test_an_input_that_no_image_can_have_is_refused(
    grid: Grid, settings: Configs, tmp_path: Path, key: str, value: list[float]
) -> None:
    config = settings(public__dataset="", test__dataset="", input=as_text(INPUT | {key: value}))
    with pytest.raises(InputError, match=rf"input\.{key} = |^input = .* has {key} "):
        deployed(grid, config, tmp_path / "there")


def test_a_node_keeps_its_store_to_itself_and_no_more_states_than_it_needs(
    grid: Grid, settings: Configs, tmp_path: Path
) -> None:
    there = deployed(grid, settings(), tmp_path / "there")
    manifest = json.loads((there.folder / "checkpoint" / "manifest.json").read_text())
    registry = json.loads((there.folder / "nodes.json").read_text())
    for number in range(CLIENTS):
        store = tmp_path / f"store-{number}" / "runs" / registry["run"]
        assert stat.S_IMODE((tmp_path / f"store-{number}").stat().st_mode) == 0o700
        held = json.loads((store / "states.json").read_text())
        assert list(held)[-1] == manifest["clients"][str(number)]["digest"]
        files = {name for one in held.values() for name in (one["file"], one["changes"]) if name}
        assert {path.name for path in (store / "checkpoint" / "clients").iterdir()} == files
        assert len(held) <= 5  # three committed rounds, the state of the phase before, and the newest


def test_nodes_are_the_clients_that_their_keys_were_admitted_as(
    make_grid: MakeGrid, apart: Path, settings: Configs, tmp_path: Path
) -> None:
    """Neither the order in which they connect has a say in it, nor the names that they give themselves."""
    configs = {number: node(apart, tmp_path, number, name=f"node-{2 - number}") for number in range(CLIENTS)}
    grid = make_grid({7: configs[2], 8: configs[0], 9: configs[1]}, {7: "node-2", 8: "node-0", 9: "node-1"})
    there, here = deployed(grid, settings(), tmp_path / "there"), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None
    registry = json.loads((there.folder / "nodes.json").read_text())
    assert registry["clients"] == {mark_of(client): client for client in range(CLIENTS)}
    assert registry["names"] == {mark_of(client): f"node-{client}" for client in range(CLIENTS)}


def test_two_nodes_for_one_client_are_reported(
    make_grid: MakeGrid,
    apart: Path,
    settings: Configs,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only where no keys are checked can two give themselves the same name."""
    configs = {
        FIRST + number: node(apart, tmp_path, number, name=f"node-{min(number, 1)}") for number in range(CLIENTS)
    }
    grid = make_grid(configs, dict.fromkeys(configs, ""))
    config = settings(deadline=0.2, min_replies=2, rounds=1)
    deployed(grid, config, tmp_path / "there", place=lambda node, name: default_client(name, CLIENTS))
    assert "Node node-1 is left out: node-1 (client 1) is online." in capsys.readouterr().out


def test_a_node_that_is_not_the_client_that_its_owner_wants_takes_no_part(
    grid: Grid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid.nodes[101] |= {"client": 2}
    there = deployed(grid, settings(rounds=1), tmp_path / "there")
    assert {one for one in failures(there.folder)} == {(1, 1, "input")}
    assert "The server made this node client 1, but client = 2 in node.toml" in capsys.readouterr().out


def test_a_node_whose_data_do_not_fit_is_absent_and_its_log_says_why(
    grid: Grid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "animals"
    folder.mkdir()
    grid.nodes[101] = {**grid.nodes[101], "data-path": str(folder)}
    there = deployed(grid, settings(rounds=1), tmp_path / "there")
    assert failures(there.folder) == [(1, 1, "data"), (1, 1, "data")]  # in training, and when it is scored
    assert f"{folder} is empty or has no class folders" in capsys.readouterr().out


def test_a_node_imports_only_what_its_owner_named(
    grid: Grid, settings: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text("from refprotofl.methods.builtin.fedavg import FedAvg as Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = settings(method="theirs:Mine")
    with pytest.raises(InputError, match="no client is left"):
        deployed(grid, config, tmp_path / "refused")
    grid.nodes = {number: {**one, "modules": "theirs:Mine"} for number, one in grid.nodes.items()}
    there, here = deployed(grid, config, tmp_path / "there"), simulated(config, tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"method": "fast"}, "is for simulation only: it sends every client a pool of others' embeddings"),
        ({"method": "centralised"}, "is for simulation only: it trains on all clients' data in one place"),
        ({"attack__kind": "signflip", "attack__fraction": 0.4}, "is for simulation only"),
        ({"validation": 0.2}, r"validation = 0.2 is for simulation only: leave it out\."),
        ({"public__dataset": "", "test__dataset": ""}, "The format of the nodes' data is unknown"),
    ],
)
def test_what_cannot_be_deployed_is_refused(
    grid: Grid, settings: Configs, tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        deployed(grid, settings(**changed), tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_node_never_sends_more_than_its_owner_allows(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    budget = 9_000
    grid.nodes[101] = {**grid.nodes[101], "uplink-budget": budget}
    there = deployed(grid, settings(refprotofl__uplink_budget="20 kB"), tmp_path / "there")
    sent: dict[str, int] = {}
    for event in (event for event in read_events(there.folder) if event["event"] == "round"):
        spent: dict[str, int] = {}
        for entry in read_traffic(event):
            if entry["direction"] == "up" and entry["purpose"] == "training":
                spent[str(entry["client"])] = spent.get(str(entry["client"]), 0) + entry["payload_bytes"]
        sent = {client: max(spent[client], sent.get(client, 0)) for client in spent}
    assert sent["1"] <= budget < min(sent["0"], sent["2"])
