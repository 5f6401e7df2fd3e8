"""What a node answers when its config, store or code is broken: a kind for the server, the words in its log."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.flower.deploying import Configs, Once, deployed, failures
from tests.flower.inmemory import MemoryGrid

from refprotofl.engines.flower import client_app
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.node_store import EXPERIMENT, runs_in
from refprotofl.errors import InputError
from refprotofl.records.verify import first_difference


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"client": 1}', b'{"client": 1, "experiment": {"rounds": 0}}'])
def test_a_node_whose_experiment_is_damaged_is_told_anew(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, undisturbed: Path, damage: bytes
) -> None:
    def spoil() -> None:
        (runs_in(tmp_path / "store-1")[0].folder / EXPERIMENT).write_bytes(damage)

    grid.fate = Once(101, ("ask", 2, "prototypes"), "", spoil)
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None
    assert grid.asked.count((101, "query.run")) == 2


def test_a_config_that_broke_in_mid_run_is_told_by_its_kind(
    grid: MemoryGrid, settings: Configs, tmp_path: Path
) -> None:
    def misspell() -> None:
        grid.nodes[101] = {**grid.nodes[101], "hold_out": 0.3}

    grid.fate = Once(101, ("ask", 1, "train"), "", misspell)
    there = deployed(grid, settings(rounds=1), tmp_path / "there")
    assert failures(there.folder) == [(1, 1, "input")] * 2  # in training, and when it is scored


def test_what_fails_on_the_way_to_an_answer_is_a_failure_of_the_node(
    grid: MemoryGrid,
    settings: Configs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(config: NodeConfig, action: str, envelope: Any) -> None:
        if action == "ask" and envelope.header["verb"] == "train":
            raise ValueError("a secret of this node")

    monkeypatch.setattr(client_app, "hand_over", broken)
    grid.nodes[101] = {**grid.nodes[101], "worker": True}
    there = deployed(grid, settings(rounds=1), tmp_path / "there")
    assert failures(there.folder) == [(1, 1, "failed")]
    assert "a secret of this node" in capsys.readouterr().out
    assert "secret" not in (there.folder / "events.jsonl").read_text()


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("uplink_budget", "There is no key uplink_budget; did you mean uplink-budget?"),
        ("moduls", "There is no key moduls; did you mean modules?"),
        ("data_path", "There is no key data_path; did you mean data-path?"),
    ],
)
def test_a_misspelt_key_of_a_node_is_named_with_the_nearest_one(key: str, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        NodeConfig.read({"data-path": "files", key: 1})
    assert str(refused.value) == f"--node-config: {sentence}"


def test_flowers_own_keys_are_passed_over() -> None:
    config = {"data-path": "module:images", "partition-id": 0, "num-partitions": 3, "store": ""}
    assert json.loads(NodeConfig.read(config).model_dump_json())["data_path"] == "module:images"
