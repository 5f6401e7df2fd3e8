"""Failures of nodes and of the transport; if nothing is lost, the run has the digest of an undisturbed one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deployments import (
    CLIENTS,
    Configs,
    Grid,
    Once,
    Stop,
    deployed,
    failures,
    kind,
    participants,
    restart_nodes,
    run_config,
    simulated,
)
from tests.flower.breaking import NONSENSE
from tests.mqtt.inmemory import MqttGrid

from refprotofl.core.errors import InputError, RunError
from refprotofl.deploy import engine, fleet, transport
from refprotofl.deploy.admission import Admissions, default_client
from refprotofl.deploy.headers import Answered, Route
from refprotofl.deploy.registry import Place
from refprotofl.deploy.run_config import read_run_config
from refprotofl.deploy.transport import Envelope, Sending
from refprotofl.federation import run
from refprotofl.records.events import read_events, read_messages
from refprotofl.records.verify import first_difference


@pytest.mark.parametrize("verb", ["prototypes", "train", "evaluate"])
def test_a_node_that_dies_and_comes_back_changes_nothing(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path, verb: str
) -> None:
    grid.fate = Once(101, ("ask", 2, verb), "gone", restart_nodes)
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None
    assert failures(there.folder) == []


def test_an_answer_that_got_lost_is_given_again_with_the_same_bytes(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    """The node has done its work; Flower says that its reply is not to be had."""
    answers: list[bytes] = []

    def fate(number: int, sending: Sending) -> str:
        if number == 101 and kind(sending) == ("ask", 2, "train"):
            answers.append(b"")
            if len(answers) == 1:
                grid.nodes[201] = grid.nodes.pop(101)  # it comes back under another number, as after a reboot
                grid.names[201] = "node-1"
                return "deaf"
        return ""

    grid.fate = fate
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None


@pytest.mark.parametrize(("fate", "sent_again"), [("lost", True), ("deaf", False)])
def test_a_node_that_stays_silent_is_reminded_and_the_request_sent_again_only_if_it_is_not_there(
    grid: Grid,
    settings: Configs,
    tmp_path: Path,
    undisturbed: Path,
    monkeypatch: pytest.MonkeyPatch,
    fate: str,
    sent_again: bool,
) -> None:
    """Flower lost the request, or the answer, of a node that is online all the time."""
    monkeypatch.setattr(engine, "LOST", 0.3)
    sizes: list[int] = []
    once = Once(101, ("ask", 2, "train"), fate)

    def watch(number: int, sending: Sending) -> str:
        if (number, kind(sending)) == (once.number, once.kind):
            sizes.append(len(sending.envelope.payload))
        return once(number, sending)

    grid.fate = watch
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None
    assert failures(there.folder) == []
    assert sizes == ([sizes[0], 0, sizes[0]] if sent_again else [sizes[0], 0])


def test_a_node_that_never_has_what_it_was_sent_costs_itself_its_turn(
    grid: Grid, settings: Configs, tmp_path: Path
) -> None:
    def altered(number: int, request: Envelope, answer: Envelope) -> Envelope:
        return Envelope({"needs-request": True}) if number == 101 and request.header.get("round") == 2 else answer

    grid.alter = altered
    there = deployed(grid, settings(), tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert {code for _, client, code in failures(there.folder) if client == 1} == {"failed"}


@pytest.mark.parametrize("action", ["hello", "run"])
def test_a_node_that_is_slow_to_join_is_not_asked_again_and_again(
    grid: Grid,
    settings: Configs,
    tmp_path: Path,
    undisturbed: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
) -> None:
    """It would start over with every message, and never come to the end of them."""
    monkeypatch.setattr(fleet, "GREETING", 0.0)
    grid.fate = lambda number, sending: "slow" if (number, kind(sending)[0]) == (101, action) else ""
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None
    assert grid.asked.count((101, action)) == 1


def test_a_node_that_dies_while_it_receives_the_run_receives_it_again(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    grid.fate = Once(101, ("run", 0, ""), "gone", restart_nodes)
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None


def test_a_message_that_arrives_twice_is_answered_once(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    grid.fate = lambda number, sending: "twice" if kind(sending)[0] == "ask" else ""
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None


def test_a_server_that_is_started_again_continues_after_the_last_committed_round(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    out = tmp_path / "there"
    with pytest.raises(KeyboardInterrupt):
        deployed(grid, settings(), out, Stop(1))
    there = deployed(grid, settings(), out)
    assert first_difference(undisturbed, there.folder) is None
    assert deployed(grid, settings(), out).reused


def test_a_server_that_dies_within_a_round_does_it_again(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path
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
    grid: Grid, settings: Configs, tmp_path: Path
) -> None:
    grid.fate = Once(101, ("ask", 2, "train"), "deaf")  # it trains, and its answer is lost
    there = deployed(grid, settings(deadline=0.5), tmp_path / "there")
    assert failures(there.folder) == [(2, 1, "late")]
    assert participants(there.folder) == [[0, 1, 2], [0, 2], [0, 1, 2]]


def test_too_few_replies_stop_the_run_which_then_continues(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    out = tmp_path / "there"
    grid.fate = lambda number, sending: "lost" if kind(sending) == ("ask", 2, "train") and number > 100 else ""
    with pytest.raises(
        RunError,
        match=r"fewer than min-replies = 2 .* are kept: continue with refprotofl deploy run and the same --out\.",
    ):
        deployed(grid, settings(deadline=0.5, min_replies=2), out)
    grid.fate = lambda number, sending: ""
    there = deployed(grid, settings(), out)
    assert first_difference(undisturbed, there.folder) is None


def test_a_node_that_joins_in_mid_run_takes_part_from_the_next_round(
    grid: Grid, settings: Configs, tmp_path: Path
) -> None:
    late = grid.nodes.pop(102)
    grid.fate = Once(100, ("ask", 2, "train"), "", lambda: grid.nodes.update({102: late}))
    there = deployed(grid, settings(deadline=0.5, min_replies=2), tmp_path / "there")
    assert participants(there.folder) == [[0, 1], [0, 1], [0, 1, 2]]
    assert failures(there.folder)[0] == (1, 2, "absent")


@pytest.mark.parametrize("max_in_flight", [engine.AHEAD, 1])
def test_a_node_that_lost_its_disk_joins_anew(
    grid: Grid, settings: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_in_flight: int
) -> None:
    """It is asked again while others' answers wait, however few of them are fetched."""
    monkeypatch.setattr(engine, "AHEAD", max_in_flight)

    def wipe() -> None:
        restart_nodes()
        grid.nodes[101] = {**grid.nodes[101], "store": str(tmp_path / "new-disk")}

    grid.fate = Once(101, ("ask", 2, "prototypes"), "", wipe)
    there = deployed(grid, settings(), tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2]] * 3
    rounds = [event for event in read_events(there.folder) if event["event"] == "round"]
    joins = [messages["join"]["up"] for messages in map(read_messages, rounds) if "join" in messages]
    assert [sorted(one) for one in joins] == [[0, 1, 2], [1]]


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_whatever_a_node_says_costs_itself_its_turn(
    grid: Grid, settings: Configs, tmp_path: Path, nonsense: Callable[[dict[str, Any]], Envelope]
) -> None:
    def altered(number: int, request: Envelope, answer: Envelope) -> Envelope:
        if number != 101 or (request.header.get("round"), request.header.get("verb")) != (2, "train"):
            return answer
        return nonsense(Answered.to(Route.read(request.header), state="f" * 64).header())

    grid.alter = altered
    there = deployed(grid, settings(), tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2], [0, 2], [0, 1, 2]]


@pytest.mark.parametrize("name", [7, "x" * 64, ["node-1"], None])
def test_a_node_with_an_impossible_name_is_left_out(
    grid: Grid, settings: Configs, tmp_path: Path, name: object, capsys: pytest.CaptureFixture[str]
) -> None:
    def altered(number: int, request: Envelope, answer: Envelope) -> Envelope:
        return Envelope({**answer.header, "name": name}) if number == 101 and "protocol" in answer.header else answer

    grid.alter = altered
    there = deployed(grid, settings(deadline=0.2, min_replies=2, rounds=1), tmp_path / "there")
    assert participants(there.folder) == [[0, 2]]
    assert "Node node-1 is left out" in capsys.readouterr().out


def test_an_unregistered_node_is_absent_and_the_others_continue(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    """Flower takes no message for a node that it does not know any more."""

    def fate(number: int, sending: Sending) -> str:
        if number == 101 and kind(sending) == ("ask", 2, "train"):
            del grid.nodes[101]
            return "unknown"
        return ""

    grid.fate = fate
    there = deployed(grid, settings(deadline=0.5), tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2], [0, 2], [0, 2]]
    assert {code for _, client, code in failures(there.folder) if client == 1} == {"absent"}


def test_a_node_that_no_message_reaches_costs_its_own_turn(
    grid: Grid, settings: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "AGAIN", 0.0)
    grid.fate = lambda number, sending: "unknown" if (number, kind(sending)[0]) == (101, "ask") else ""
    there = deployed(grid, settings(), tmp_path / "there")
    assert participants(there.folder) == [[0, 2], [0, 2], [0, 2]]
    assert {code for _, client, code in failures(there.folder) if client == 1} == {"absent"}


def test_a_node_revoked_in_mid_run_is_absent_at_once_and_the_others_continue(
    grid: Grid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No deadline has to pass: a client without a place is not waited for. Its node may still be online."""

    def revoke() -> None:
        grid.admissions = grid.admissions.revoke("node-1")

    grid.fate = Once(101, ("ask", 2, "train"), "gone", revoke)
    there = deployed(grid, settings(), tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2], [0, 2], [0, 2]]
    assert {code for _, client, code in failures(there.folder) if client == 1} == {"absent"}
    assert "Node node-1 is left out: it has no place." in capsys.readouterr().out


def by_name() -> Place:
    """The places of a site without keys: by the name that a node gives itself."""

    def place(node: transport.Node, name: str) -> int | None:
        try:
            return default_client(name, CLIENTS)
        except InputError:
            return None

    return place


def test_a_node_without_a_key_is_known_again_by_the_name_that_it_gives_itself(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    """On an insecure site a node may have another key after a restart, unknown to Flower."""
    grid.names = dict.fromkeys([100, 101, 102, 201], "")

    def start_again() -> None:
        restart_nodes()
        grid.nodes[201] = grid.nodes.pop(101)

    grid.fate = Once(101, ("ask", 2, "train"), "unknown", start_again)
    there = deployed(grid, settings(), tmp_path / "there", place=by_name())
    assert first_difference(undisturbed, there.folder) is None
    assert failures(there.folder) == []


def test_a_node_with_a_key_never_takes_the_place_of_another(
    grid: Grid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the data, the settings and the name of node-1, but another key."""

    def replace_node() -> None:
        grid.nodes[201] = grid.nodes.pop(101)
        grid.names[201], grid.keys[201] = "node-1", b"another key"

    grid.fate = Once(101, ("ask", 2, "train"), "unknown", replace_node)
    there = deployed(grid, settings(deadline=0.5), tmp_path / "there")
    assert participants(there.folder) == [[0, 1, 2], [0, 2], [0, 2]]
    assert capsys.readouterr().out.count("Node node-1 is left out: it has no place.") == 1


def test_a_node_that_starts_first_under_anothers_name_does_not_get_its_place(
    grid: Grid, settings: Configs, tmp_path: Path, undisturbed: Path
) -> None:
    impostor = {**grid.nodes[100], "store": str(tmp_path / "impostor"), "client": 0}
    grid.nodes = {99: impostor, **grid.nodes}
    grid.names[99], grid.keys[99] = "node-0", b"another key"
    there = deployed(grid, settings(), tmp_path / "there")
    assert first_difference(undisturbed, there.folder) is None
    assert {action for number, action in grid.asked if number == 99} == {"hello"}


def test_an_unknown_node_is_left_out_and_reported_once(
    grid: Grid, settings: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid.names = dict.fromkeys([100, 101, 102], "")
    grid.nodes[101] = {**grid.nodes[101], "name": ""}
    deployed(grid, settings(deadline=0.5, rounds=2, min_replies=2), tmp_path / "there", place=by_name())
    assert capsys.readouterr().out.count(" is left out: it has no place.") == 1


@pytest.mark.parametrize("alone", [0.0, 300.0])
def test_a_node_that_is_admitted_in_mid_run_is_asked_again_but_not_at_every_look(
    grid: Grid, settings: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: float
) -> None:
    if alone and isinstance(grid, MqttGrid):
        pytest.skip("to MQTT, a node that is admitted is another one than before")
    monkeypatch.setattr(fleet, "ALONE", alone)
    complete = grid.admissions
    grid.admissions = without(complete, "node-1")

    def admit() -> None:
        grid.admissions = complete

    grid.fate = Once(100, ("ask", 2, "train"), "", admit)
    there = deployed(grid, settings(deadline=0.3, min_replies=2), tmp_path / "there")
    assert participants(there.folder)[0] == [0, 2]
    assert participants(there.folder)[2] == ([0, 1, 2] if not alone else [0, 2])
    greeted = grid.asked.count((101, "hello"))
    assert greeted == 1 if alone else greeted > 1


def without(admissions: Admissions, name: str) -> Admissions:
    return Admissions({one: found for one, found in admissions.nodes.items() if one != name}, [])


def test_a_node_that_was_left_out_and_starts_again_is_asked_at_once(
    grid: Grid, settings: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "ALONE", 300.0)
    complete, node = grid.admissions, grid.nodes[101]
    grid.admissions = without(complete, "node-1")

    def come_back() -> None:
        grid.admissions = complete
        grid.nodes[101] = node

    steps = iter([lambda: grid.nodes.pop(101), come_back])

    def fate(number: int, sending: Sending) -> str:
        if number == 100 and kind(sending)[2] == "prototypes":
            next(steps, dict)()
        return ""

    grid.fate = fate
    there = deployed(grid, settings(deadline=0.3, min_replies=2), tmp_path / "there")
    assert participants(there.folder) == [[0, 2], [0, 2], [0, 1, 2]]


def test_a_request_is_valid_as_long_as_its_answer_is_awaited(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    deployed(grid, settings(deadline=20, rounds=1), tmp_path / "hurried")
    assert 20 < max(grid.valid[-3:]) <= 20 + transport.SLACK + 3 * engine.FETCHED
    assert max(grid.valid) <= fleet.LOST + transport.SLACK
    deployed(grid, settings(rounds=1), tmp_path / "patient")
    assert engine.DEADLINE < max(grid.valid[-3:]) <= engine.DEADLINE + transport.SLACK + 3 * engine.FETCHED


def test_a_run_is_resumed_only_with_its_clients_states(grid: Grid, settings: Configs, tmp_path: Path) -> None:
    config = settings(public__dataset="", method="fedavg")
    with pytest.raises(KeyboardInterrupt):
        deployed(grid, config, tmp_path / "there", Stop(1))
    with pytest.raises(InputError, match=r"are on its nodes: continue with refprotofl deploy run and the same --out\."):
        run(read_run_config(run_config(config)).experiment, out=tmp_path / "there", resume=True)
    simulated(settings(), tmp_path / "here")
    with pytest.raises(InputError, match=r"are in its folder, not on nodes: resume it with run --resume\."):
        deployed(grid, settings(rounds=4), tmp_path / "here")


@pytest.mark.parametrize(
    ("late", "deadline", "waits"), [(0, 600, 600), (1, 600, 600), (2, 600, 60), (9, 100, 30), (9, 20, 20)]
)
def test_a_node_that_is_late_again_and_again_is_waited_for_less(late: int, deadline: float, waits: float) -> None:
    asking = engine.DeploymentEngine.__new__(engine.DeploymentEngine)
    asking._late = {1: late}
    assert asking._patience(1, deadline) == waits
    assert asking._patience(0, deadline) == deadline
