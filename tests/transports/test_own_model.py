"""A device's use of its store without a server: its own model, within the given disk space."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.deployments import FIRST, Configs, Grid, deployed, mark_of, node, simulated
from tests.transports.conftest import MakeGrid

from refprotofl.cli.entry import main
from refprotofl.core.errors import DataError, InputError
from refprotofl.deploy.finals import FinalPart, HandOut
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.export import load_exported, load_trained, predict
from refprotofl.export.node_model import is_node_store, load_own
from refprotofl.export.personalise import finetune


@pytest.mark.parametrize(
    "changed", [{}, {"method": "fedavg"}, {"method": "fedproto"}, {"method": "thin"}, {"evaluate__clients": 1}]
)
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


def final_of(out: Path) -> FinalPart:
    return FinalPart.read(out.parent / "last.final")


def hand_out(grid: Grid, final: FinalPart, handed: set[str] | None = None) -> set[str]:
    """Hand a final part to the nodes of a grid, as the server of a site does; return who has it."""
    has = set() if handed is None else handed
    by_key = lambda node: grid.admissions.client_of(node.name, node.identity)  # noqa: E731
    HandOut(grid.connect(), final, by_key, has).finish(30.0)
    return has


@pytest.mark.parametrize("changed", [{}, {"method": "fedavg", "share": "full"}, {"method": "thin"}])
def test_a_node_that_comes_after_the_last_round_gets_a_usable_model(
    make_grid: MakeGrid, settings: Configs, apart: Path, tmp_path: Path, changed: dict[str, str]
) -> None:
    known = {FIRST + number: node(apart, tmp_path, number) for number in range(3)}
    grid = make_grid({number: one for number, one in known.items() if number != FIRST + 2})
    config = settings(**changed, deadline=1, min_replies=2, evaluate__clients=1)
    there = deployed(grid, config, tmp_path / "there", final=tmp_path / "last.final")
    final = final_of(there.folder)
    assert (final.round, final.clients) == (3, 3)
    assert hand_out(grid, final) == {mark_of(0), mark_of(1)}
    late = make_grid(known)
    has = hand_out(late, final, {mark_of(0), mark_of(1)})
    assert has == {mark_of(0), mark_of(1), mark_of(2)}
    assert {number for number, action in late.asked if action == "final"} == {FIRST + 2}
    samples = apart / "client-2.npz"
    if "method" not in changed:  # no common model: an adapter alone is of no use to an untrained backbone
        with pytest.raises(InputError, match=r"there is no common model, as clients share .* Make one on its own data"):
            load_own(tmp_path / "store-2")
    else:
        assert load_own(tmp_path / "store-2").rounds_done == 3
        assert len(predict(load_own(tmp_path / "store-2"), samples).predicted) > 0
    tuned = finetune(NodeConfig.read(known[FIRST + 2]), 3)
    assert tuned.client == 2
    assert tuned.before is not None
    assert tuned.after is not None
    assert tuned.after > 0.5
    own = load_own(tmp_path / "store-2")
    assert len(predict(own, samples).predicted) > 0


def test_a_fine_tuned_model_gives_way_to_a_newer_shared_part(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    there = deployed(grid, settings(method="fedavg"), tmp_path / "there", final=tmp_path / "last.final")
    before = load_own(tmp_path / "store-0").state_digest
    finetune(NodeConfig.read(grid.nodes[FIRST]), 1)
    assert load_own(tmp_path / "store-0").state_digest != before
    final = final_of(there.folder)
    hand_out(grid, FinalPart(**{**vars(final), "round": 4}))
    assert load_own(tmp_path / "store-0").state_digest == before
    assert load_own(tmp_path / "store-0").rounds_done == 4


def test_a_node_without_a_run_has_nothing_to_fine_tune(apart: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run yet: start the node"):
        finetune(NodeConfig.read(node(apart, tmp_path, 0)), 1)


def test_a_damaged_final_part_says_how_to_write_it_anew(tmp_path: Path) -> None:
    (tmp_path / "1.final").write_bytes(b"\x09\x00\x00\x00nothing")
    with pytest.raises(DataError, match="is damaged: run again with the same --out"):
        FinalPart.read(tmp_path / "1.final")
