"""A client that fails costs itself its turn and is on record; what is not the client's fault stops the run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from refprotofl.core.errors import ClientsFailed, DataError, GuardError, InputError, MachineError, RunError
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.records.events import read_messages
from refprotofl.records.folder import read_events
from refprotofl.wire import Message


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets clients fail at a verb."""

    def install(verb: str, problem: Exception, clients: tuple[int, ...]) -> None:
        real = getattr(RefProtoClient, verb)

        def answer(self: RefProtoClient, round: int, message: Message) -> Message:
            if self.context.client_id in clients:
                raise problem
            result: Message = real(self, round, message)
            return result

        monkeypatch.setattr(RefProtoClient, verb, answer)

    return install


@pytest.mark.parametrize("verb", ["join", "prototypes", "train"])
def test_a_client_that_fails_is_absent_and_on_record(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path, verb: str
) -> None:
    fail(verb, ValueError("out of luck"), (1,))
    finished = run(uneven(clients=3, fraction=1.0, rounds=2), out=tmp_path / "run")
    events = read_events(finished.folder)
    failures = [event for event in events if event["event"] == "client-failed"]
    assert [(event["round"], event["client"], event["reason"]) for event in failures] == [
        (1, 1, f"{verb}: its code failed"),
        (2, 1, f"{verb}: its code failed"),
    ]
    assert {event["code"] for event in failures} == {"failed"}
    assert "out of luck" not in (finished.folder / "events.jsonl").read_text()  # it stays with the client
    log = (finished.folder / "logs" / "client-1.log").read_text()
    assert log.count(f"{verb}: out of luck") == 2
    assert "ValueError" in log
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["participants"] for event in rounds] == [[0, 2], [0, 2]]
    assert all(1 not in read_messages(event)["train"].get("up", {}) for event in rounds)
    assert finished.summary["full_model"]["participations"] == 4


def test_a_client_that_cannot_be_scored_is_on_record_too(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path
) -> None:
    fail("evaluate", ValueError("no test images"), (1,))
    finished = run(uneven(clients=3, fraction=1.0, rounds=1), out=tmp_path / "run")
    failures = [event for event in read_events(finished.folder) if event["event"] == "client-failed"]
    assert [(event["client"], event["reason"]) for event in failures] == [(1, "evaluate: its code failed")]
    assert finished.summary["evaluated_clients"] == [0, 2]
    assert finished.summary["accuracy_per_client"]["personal"][1] is None
    assert finished.summary["full_model"]["participations"] == 3  # it did train


def test_without_any_client_left_the_run_fails_with_the_reasons(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path
) -> None:
    fail("train", ValueError("out of luck"), (0, 1, 2))
    with pytest.raises(RunError, match=r"Round 1: no client is left \(client 0: train: out of luck; client 1"):
        run(uneven(clients=3, fraction=1.0), out=tmp_path / "run")


@pytest.mark.parametrize("kind", [InputError, DataError, RunError, GuardError])
def test_no_error_of_one_client_stops_the_others(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path, kind: type[RunError]
) -> None:
    fail("train", kind("The sky fell."), (1,))
    finished = run(uneven(clients=3, fraction=1.0, rounds=2), out=tmp_path / "run")
    failures = [event for event in read_events(finished.folder) if event["event"] == "client-failed"]
    codes = {InputError: "input", DataError: "data", RunError: "failed", GuardError: "guard"}
    assert [(event["client"], event["code"]) for event in failures] == [(1, codes[kind])] * 2


@pytest.mark.parametrize("kind", [InputError, DataError, RunError, GuardError])
def test_what_all_clients_report_ends_the_run_with_its_own_exit_code(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path, kind: type[RunError]
) -> None:
    fail("train", kind("The sky fell."), (0, 1, 2))
    with pytest.raises(kind, match=r"Round 1: no client is left \(client 0: train: The sky fell") as stopped:
        run(uneven(clients=3, fraction=1.0), out=tmp_path / "run")
    assert type(stopped.value) is (ClientsFailed if kind is RunError else kind)


@pytest.mark.parametrize(("clients", "stops"), [((1,), False), ((1, 3), True)])
def test_a_guard_that_trips_at_half_of_the_clients_stops_the_run(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path, clients: tuple[int, ...], stops: bool
) -> None:
    fail("train", GuardError("nothing moved"), clients)
    experiment = uneven(clients=4, fraction=1.0, rounds=1)
    if stops:
        with pytest.raises(GuardError, match="Round 1: client 1: train: nothing moved; client 3: train: nothing moved"):
            run(experiment, out=tmp_path / "run")
    else:
        assert run(experiment, out=tmp_path / "run").summary["full_model"]["participations"] == 3


def test_a_client_that_is_asked_alone_is_not_half_of_all(
    monkeypatch: pytest.MonkeyPatch, uneven: Callable[..., Experiment], tmp_path: Path
) -> None:
    """It says that its store is lost, is asked once more, and then claims a broken promise."""
    honest = RefProtoClient.answer
    said: list[str] = []

    def answer(self: RefProtoClient, verb: str, round: int, message: Message) -> Message:
        if self.context.client_id != 1 or verb != "train":
            return honest(self, verb, round, message)
        said.append(verb)
        if len(said) == 1:
            return {"lost": True}
        raise GuardError("nothing moved")

    monkeypatch.setattr(RefProtoClient, "answer", answer)
    finished = run(uneven(clients=4, fraction=1.0, rounds=1), out=tmp_path / "run")
    assert finished.summary["full_model"]["participations"] == 3


def test_a_full_disk_is_no_clients_fault(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path
) -> None:
    fail("join", MachineError("The disk is full"), (1,))
    with pytest.raises(RunError, match="Round 1, client 1: The disk is full"):
        run(uneven(clients=3, fraction=1.0), out=tmp_path / "run")
