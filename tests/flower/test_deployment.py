"""Nodes with data and stores of their own, asked through Flower's messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flower.conftest import CLIENTS
from tests.flower.inmemory import MemoryGrid, restart_nodes

from refprotofl.engines.flower.courier import Courier
from refprotofl.engines.flower.deployed import deploy
from refprotofl.engines.flower.settings import read_run_config
from refprotofl.records.events import read_events
from refprotofl.records.verify import first_difference
from refprotofl.simulation.run import Finished, run
from refprotofl.simulation.watching import Watcher

Configs = Callable[..., dict[str, Any]]


@pytest.fixture
def grid(apart: Path, tmp_path: Path) -> MemoryGrid:
    return MemoryGrid({100 + number: node(apart, tmp_path, number) for number in range(CLIENTS)})


def node(data: Path, folder: Path, number: int, **more: Any) -> dict[str, Any]:
    store = str(folder / f"store-{number}")
    return {"data-path": str(data / f"client-{number}.npz"), "store": store, "client": number, **more}


def deployed(grid: MemoryGrid, config: dict[str, Any], out: Path, watcher: Watcher | None = None) -> Finished:
    restart_nodes()
    return deploy(grid, Courier(grid, lambda seconds: None), read_run_config(config), out, watcher or Watcher())


def simulated(config: dict[str, Any], out: Path) -> Finished:
    return run(read_run_config(config).experiment, out=out)


def failures(folder: Path) -> list[tuple[int, int, str]]:
    told = [event for event in read_events(folder) if event["event"] == "client-failed"]
    return [(event["round"], event["client"], event["code"]) for event in told]


@pytest.mark.parametrize(
    "changed",
    [{}, {"method": "fedavg", "share": "full"}, {"method": "fedproto"}, {"method": "local"}],
    ids=lambda changed: str(changed.get("method", "refprotofl")),
)
def test_a_deployment_is_the_simulated_run(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, changed: dict[str, Any]
) -> None:
    config = settings(**changed)
    there, here = deployed(grid, config, tmp_path / "there"), simulated(config, tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None
    unknown = {"seconds": None, "steps": None}  # a client of FedProto does not tell how many samples it has
    assert there.summary | unknown == here.summary | unknown


def test_a_simulated_federation_can_be_deployed_as_it_is(exported: Path, settings: Configs, tmp_path: Path) -> None:
    """What was held out of the clients' data is the public set of the deployment, with the statistics of the whole."""
    grid = MemoryGrid({number: node(exported, tmp_path, number) for number in range(CLIENTS)})
    config = settings()
    there = deployed(grid, config, tmp_path / "there")
    here = simulated(config | {"public.dataset": "", "test.dataset": ""}, tmp_path / "here")
    assert there.summary["state_digest"] == here.summary["state_digest"]
    assert there.summary["accuracy"] == here.summary["accuracy"]


def test_a_node_keeps_its_store_to_itself_and_no_more_states_than_it_needs(
    grid: MemoryGrid, settings: Configs, tmp_path: Path
) -> None:
    there = deployed(grid, settings(), tmp_path / "there")
    manifest = json.loads((there.folder / "checkpoint" / "manifest.json").read_text())
    roster = json.loads((there.folder / "nodes.json").read_text())
    for number in range(CLIENTS):
        store = tmp_path / f"store-{number}" / "runs" / roster["run"]
        assert stat.S_IMODE((tmp_path / f"store-{number}").stat().st_mode) == 0o700
        held = json.loads((store / "states.json").read_text())
        assert list(held)[-1] == manifest["clients"][str(number)]["digest"]
        files = {name for one in held.values() for name in (one["file"], one["changes"]) if name}
        assert {path.name for path in (store / "checkpoint" / "clients").iterdir()} == files
        assert len(held) <= 3  # the committed state, that of the phase before, and the newest


def kind(message: Message) -> tuple[str, int, str]:
    """What is asked for in a message: the action, the round and the verb."""
    header = unwrap(message.content).header
    action = message.metadata.message_type.partition(".")[2]
    return action, int(header.get("round", 0)), str(header.get("verb", ""))


class Once:
    """The first message of this kind to a node has this fate; `then` is done before it."""

    def __init__(self, number: int, kind: tuple[str, int, str], fate: str, then: Callable[[], None] | None = None):
        self.number, self.kind, self.fate, self.then, self.times = number, kind, fate, then, 0

    def __call__(self, number: int, message: Message) -> str:
        if (number, kind(message)) != (self.number, self.kind):
            return ""
        self.times += 1
        if self.times > 1:
            return ""
        if self.then is not None:
            self.then()
        return self.fate


@pytest.mark.parametrize("verb", ["prototypes", "train", "evaluate"])
def test_a_node_that_dies_and_comes_back_changes_nothing(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, verb: str
) -> None:
    grid.fate = Once(101, ("ask", 2, verb), "gone", restart_nodes)
    there, here = deployed(grid, settings(), tmp_path / "there"), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None
    assert failures(there.folder) == []


def test_an_answer_that_got_lost_is_given_again_with_the_same_bytes(
    grid: MemoryGrid, settings: Configs, tmp_path: Path
) -> None:
    """The node has done its work; Flower says that its reply is not to be had."""
    answers: list[bytes] = []

    def fate(number: int, message: Message) -> str:
        if number == 101 and kind(message) == ("ask", 2, "train"):
            answers.append(b"")
            if len(answers) == 1:
                grid.nodes[201] = grid.nodes.pop(101)  # it comes back under another number, as after a reboot
                grid.names[201] = "node-101"
                return "deaf"
        return ""

    grid.fate = fate
    there, here = deployed(grid, settings(), tmp_path / "there"), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None


def test_a_message_that_arrives_twice_is_answered_once(grid: MemoryGrid, settings: Configs, tmp_path: Path) -> None:
    grid.fate = lambda number, message: "twice" if kind(message)[0] == "ask" else ""
    there, here = deployed(grid, settings(), tmp_path / "there"), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None


class Stop(Watcher):
    """Kills the server after a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def committed(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        if event["round"] == self.after:
            raise KeyboardInterrupt


def test_a_server_that_is_started_again_goes_on_after_the_last_committed_round(
    grid: MemoryGrid, settings: Configs, tmp_path: Path
) -> None:
    out = tmp_path / "there"
    with pytest.raises(KeyboardInterrupt):
        deployed(grid, settings(), out, Stop(1))
    there, here = deployed(grid, settings(), out), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None
    assert deployed(grid, settings(), out).reused


def test_a_server_that_dies_within_a_round_does_it_again(grid: MemoryGrid, settings: Configs, tmp_path: Path) -> None:
    """All nodes have trained in a round that was never committed; they start it again from the one before."""

    def die() -> None:
        raise KeyboardInterrupt

    out = tmp_path / "there"
    grid.fate = Once(102, ("ask", 2, "evaluate"), "", die)
    with pytest.raises(KeyboardInterrupt):
        deployed(grid, settings(), out)
    there, here = deployed(grid, settings(), out), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None


def test_a_late_node_is_absent_from_that_phase_on_and_takes_part_in_the_next_round(
    grid: MemoryGrid, settings: Configs, tmp_path: Path
) -> None:
    grid.fate = Once(101, ("ask", 2, "train"), "deaf")  # it trains, and nobody hears of it
    there = deployed(grid, settings(deadline=0.5), tmp_path / "there")
    assert failures(there.folder) == [(2, 1, "late")]
    told = [event["participants"] for event in read_events(there.folder) if event["event"] == "round"]
    assert told == [[0, 1, 2], [0, 2], [0, 1, 2]]


def test_too_few_replies_stop_the_run_which_then_goes_on(grid: MemoryGrid, settings: Configs, tmp_path: Path) -> None:
    out = tmp_path / "there"
    grid.fate = lambda number, message: "lost" if kind(message) == ("ask", 2, "train") and number > 100 else ""
    with pytest.raises(RunError, match="fewer than min-replies = 2"):
        deployed(grid, settings(deadline=0.5, min_replies=2), out)
    grid.fate = lambda number, message: ""
    there, here = deployed(grid, settings(), out), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None


def test_a_node_that_joins_in_mid_run_takes_part_from_the_next_round(
    grid: MemoryGrid, settings: Configs, tmp_path: Path
) -> None:
    late = grid.nodes.pop(102)
    grid.fate = Once(100, ("ask", 2, "train"), "", lambda: grid.nodes.update({102: late}))
    there = deployed(grid, settings(deadline=0.5, min_replies=2), tmp_path / "there")
    told = [event["participants"] for event in read_events(there.folder) if event["event"] == "round"]
    assert told == [[0, 1], [0, 1], [0, 1, 2]]
    assert failures(there.folder)[0] == (1, 2, "absent")


def test_a_node_that_lost_its_disk_joins_anew(grid: MemoryGrid, settings: Configs, tmp_path: Path) -> None:
    def wipe() -> None:
        restart_nodes()
        grid.nodes[101] = {**grid.nodes[101], "store": str(tmp_path / "new-disk")}

    grid.fate = Once(101, ("ask", 2, "prototypes"), "", wipe)
    there = deployed(grid, settings(), tmp_path / "there")
    told = [event["participants"] for event in read_events(there.folder) if event["event"] == "round"]
    assert told == [[0, 1, 2]] * 3
    joins = [
        event["messages"]["join"]["up"] for event in read_events(there.folder) if "join" in event.get("messages", {})
    ]
    assert [sorted(one) for one in joins] == [["0", "1", "2"], ["1"]]


def test_nodes_without_a_wish_become_clients_by_their_names_and_stay_so(
    apart: Path, settings: Configs, tmp_path: Path
) -> None:
    configs = {number: node(apart, tmp_path, number) for number in range(CLIENTS)}
    for config in configs.values():
        del config["client"]
    grid = MemoryGrid({7: configs[2], 8: configs[0], 9: configs[1]}, {7: "node-10", 8: "node-2", 9: "node-9"})
    there, here = deployed(grid, settings(), tmp_path / "there"), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None
    roster = json.loads((there.folder / "nodes.json").read_text())
    assert roster["clients"] == {"node-2": 0, "node-9": 1, "node-10": 2}


def test_two_nodes_for_one_client_are_told(
    apart: Path, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = {number: node(apart, tmp_path, min(number, 1)) for number in range(CLIENTS)}
    grid = MemoryGrid(configs)
    deployed(grid, settings(deadline=0.2, min_replies=2, rounds=1), tmp_path / "there")
    assert "Node node-2 asks to be client 1, which is taken by another node: it is left out." in capsys.readouterr().out


def test_a_node_whose_data_do_not_fit_is_absent_and_its_log_says_why(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "animals"
    folder.mkdir()
    grid.nodes[101] = {**grid.nodes[101], "data-path": str(folder)}
    there = deployed(grid, settings(rounds=1), tmp_path / "there")
    assert failures(there.folder) == [(1, 1, "data"), (1, 1, "data")]  # in training, and when it is scored
    assert f"{folder} is empty or has no class folders" in capsys.readouterr().out


def test_a_node_imports_only_what_its_owner_named(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        ({"method": "fast"}, "is for simulation only: it hands every client a pool of others' embeddings"),
        ({"method": "centralised"}, "is for simulation only: it trains on all clients' data in one place"),
        ({"attack__kind": "signflip", "attack__fraction": 0.4}, "is for simulation only"),
        ({"public__dataset": "", "test__dataset": ""}, "Nobody tells what the nodes' images look like"),
    ],
)
def test_what_cannot_be_deployed_is_refused(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        deployed(grid, settings(**changed), tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_node_never_sends_more_than_its_owner_allows(grid: MemoryGrid, settings: Configs, tmp_path: Path) -> None:
    budget = 9_000
    grid.nodes[101] = {**grid.nodes[101], "uplink-budget": budget}
    there = deployed(grid, settings(refprotofl__uplink_budget="20 kB"), tmp_path / "there")
    sent: dict[str, int] = {}
    for event in (event for event in read_events(there.folder) if event["event"] == "round"):
        for client, traffic in event["traffic"]["clients"].items():
            sent[client] = max(sent.get(client, 0), traffic["up"])
    assert sent["1"] <= budget < min(sent["0"], sent["2"])
