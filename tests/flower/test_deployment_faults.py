"""What goes wrong on the way to a node or at it; where nothing is lost, the run ends as if it had not."""

from pathlib import Path

import pytest
from flwr.app import Message
from tests.flower.deploying import Configs, Once, Stop, deployed, failures, kind, participants
from tests.flower.inmemory import MemoryGrid, restart_nodes

from refprotofl.engines.flower import gathering
from refprotofl.errors import RunError
from refprotofl.records.events import read_events
from refprotofl.records.rounds import read_messages
from refprotofl.records.verify import first_difference


@pytest.mark.parametrize("verb", ["prototypes", "train", "evaluate"])
def test_a_node_that_dies_and_comes_back_changes_nothing(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, undisturbed: Path, verb: str
) -> None:
    grid.fate = Once(101, ("ask", 2, verb), "gone", restart_nodes)
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None
    assert failures(there.folder) == []


def test_an_answer_that_got_lost_is_given_again_with_the_same_bytes(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, undisturbed: Path
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
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None


@pytest.mark.parametrize("action", ["hello", "run"])
def test_a_node_that_is_slow_to_join_is_not_asked_again_and_again(
    grid: MemoryGrid,
    settings: Configs,
    tmp_path: Path,
    undisturbed: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
) -> None:
    """It would start over with every message, and never come to the end of them."""
    monkeypatch.setattr(gathering, "GREETING", 0.0)
    grid.fate = lambda number, message: "slow" if (number, kind(message)[0]) == (101, action) else ""
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None
    assert grid.asked.count((101, f"query.{action}")) == 1


def test_a_node_that_dies_while_it_is_told_of_the_run_is_told_again(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    grid.fate = Once(101, ("run", 0, ""), "gone", restart_nodes)
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None


def test_a_message_that_arrives_twice_is_answered_once(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    grid.fate = lambda number, message: "twice" if kind(message)[0] == "ask" else ""
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None


def test_a_server_that_is_started_again_goes_on_after_the_last_committed_round(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    out = tmp_path / "there"
    with pytest.raises(KeyboardInterrupt):
        deployed(grid, settings(), out, Stop(1))
    there = deployed(grid, settings(), out)
    assert first_difference(undisturbed, there.folder) is None
    assert deployed(grid, settings(), out).reused


def test_a_server_that_dies_within_a_round_does_it_again(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    """All nodes have trained in a round that was never committed; they start it again from the one before."""

    def die() -> None:
        raise KeyboardInterrupt

    out = tmp_path / "there"
    grid.fate = Once(102, ("ask", 2, "evaluate"), "", die)
    with pytest.raises(KeyboardInterrupt):
        deployed(grid, settings(), out)
    there = deployed(grid, settings(), out)
    assert first_difference(undisturbed, there.folder) is None


def test_a_late_node_is_absent_from_that_phase_on_and_takes_part_in_the_next_round(
    grid: MemoryGrid, settings: Configs, tmp_path: Path
) -> None:
    grid.fate = Once(101, ("ask", 2, "train"), "deaf")  # it trains, and nobody hears of it
    there = deployed(grid, settings(deadline=0.5), tmp_path / "there")
    assert failures(there.folder) == [(2, 1, "late")]
    assert participants(there.folder) == [[0, 1, 2], [0, 2], [0, 1, 2]]


def test_too_few_replies_stop_the_run_which_then_goes_on(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    out = tmp_path / "there"
    grid.fate = lambda number, message: "lost" if kind(message) == ("ask", 2, "train") and number > 100 else ""
    with pytest.raises(RunError, match="fewer than min-replies = 2"):
        deployed(grid, settings(deadline=0.5, min_replies=2), out)
    grid.fate = lambda number, message: ""
    there = deployed(grid, settings(), out)
    assert first_difference(undisturbed, there.folder) is None


def test_a_node_that_joins_in_mid_run_takes_part_from_the_next_round(
    grid: MemoryGrid, settings: Configs, tmp_path: Path
) -> None:
    late = grid.nodes.pop(102)
    grid.fate = Once(100, ("ask", 2, "train"), "", lambda: grid.nodes.update({102: late}))
    there = deployed(grid, settings(deadline=0.5, min_replies=2), tmp_path / "there")
    assert participants(there.folder) == [[0, 1], [0, 1], [0, 1, 2]]
    assert failures(there.folder)[0] == (1, 2, "absent")


def test_a_node_that_lost_its_disk_joins_anew(grid: MemoryGrid, settings: Configs, tmp_path: Path) -> None:
    def wipe() -> None:
        restart_nodes()
        grid.nodes[101] = {**grid.nodes[101], "store": str(tmp_path / "new-disk")}

    grid.fate = Once(101, ("ask", 2, "prototypes"), "", wipe)
    there = deployed(grid, settings(), tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2]] * 3
    rounds = [event for event in read_events(there.folder) if event["event"] == "round"]
    joins = [messages["join"]["up"] for messages in map(read_messages, rounds) if "join" in messages]
    assert [sorted(one) for one in joins] == [[0, 1, 2], [1]]
