"""A node's answers when its config, store or code is broken: a code for the server, details in its log."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.deployments import Configs, Grid, Once, deployed, failures

from refprotofl.core.errors import InputError
from refprotofl.deploy import node
from refprotofl.deploy.node_config import NodeConfig, read_node_config
from refprotofl.deploy.node_store import EXPERIMENT, runs_in
from refprotofl.deploy.transport import Envelope
from refprotofl.records.verify import first_difference


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"client": 1}', b'{"client": 1, "experiment": {"rounds": 0}}'])
def test_a_node_with_a_damaged_experiment_receives_it_again(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path, damage: bytes
) -> None:
    def spoil() -> None:
        (runs_in(tmp_path / "store-1")[0].folder / EXPERIMENT).write_bytes(damage)

    grid.fate = Once(101, ("ask", 2, "prototypes"), "", spoil)
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None
    assert grid.asked.count((101, "run")) == 2


def test_what_fails_on_the_way_to_an_answer_is_a_failure_of_the_node(
    grid: Grid,
    settings: Configs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = node.answer

    def broken(config: NodeConfig, envelope: Envelope) -> Envelope:
        if (config.name, envelope.header["verb"]) == ("node-1", "train"):
            raise ValueError("a secret of this node")
        return answer(config, envelope)

    monkeypatch.setitem(node.ANSWERS, "ask", broken)
    there = deployed(grid, settings(rounds=1), tmp_path / "there")
    assert failures(there.folder) == [(1, 1, "failed")]
    assert "a secret of this node" in capsys.readouterr().out
    assert "secret" not in (there.folder / "events.jsonl").read_text()


@pytest.mark.parametrize("header", [{}, {"round": "x"}, {"run": "../" * 8, "client": 0}])
@pytest.mark.parametrize("action", ["ask", "run", "no such action"])
def test_a_message_that_makes_no_sense_gets_a_code_and_does_not_end_the_node(
    tmp_path: Path, action: str, header: dict[str, Any]
) -> None:
    config = NodeConfig.read({"data-path": str(tmp_path), "store": str(tmp_path / "store")})
    assert node.handle(config, action, Envelope(header)).header["code"] is not None
    assert not (tmp_path / "store").exists()


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
    assert str(refused.value) == f"node.toml: {sentence}"


def test_a_node_says_what_its_settings_lack(tmp_path: Path) -> None:
    for text, words in [
        ("", "node.toml has no data-path"),
        ("data-path = 7", "node.toml: data-path = 7"),
        ('data-path = "x"\nlook-every = 0.01', "node.toml: look-every = 0.01"),
        ("data-path = ", "is not valid TOML"),
    ]:
        (tmp_path / "node.toml").write_text(text)
        with pytest.raises(InputError, match=re.escape(words)):
            read_node_config(tmp_path)
    with pytest.raises(InputError, match=r"has no node\.toml: give the folder of a node's kit\."):
        read_node_config(tmp_path / "nowhere")


@pytest.mark.parametrize("server", ["", "server.example", "server.example:", "server.example:99999", "server:x"])
def test_a_server_that_is_no_address_is_reported(server: str) -> None:
    with pytest.raises(InputError, match="is not an address such as"):
        assert NodeConfig.read({"data-path": "files", "server": server}).address


def test_paths_of_a_kit_start_at_the_kit(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('data-path = "data"\nstore = "store"\nserver = "[::1]:8443"\n')
    config = read_node_config(tmp_path)
    assert (config.data_path, config.folder) == (str(tmp_path / "data"), tmp_path / "store")
    assert config.address == ("::1", 8443)
    assert NodeConfig.read({"data-path": "module:images", "store": ""}).data_path == "module:images"
