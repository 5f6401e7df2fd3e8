"""A client that fails costs itself its turn and is on record; what is not the client's fault stops the run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from refprotofl.errors import DataError, GuardError, InputError, RunError
from refprotofl.experiment import Experiment
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.records.folder import read_events
from refprotofl.simulation.run import run
from refprotofl.wire import Message


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets clients fail at a verb."""

    def install(verb: str, problem: Exception, clients: tuple[int, ...]) -> None:
        real = getattr(RefProtoClient, verb)

        def answer(self: RefProtoClient, round: int, message: Message) -> Message:
            if self.seat.number in clients:
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
        (1, 1, f"{verb}: out of luck"),
        (2, 1, f"{verb}: out of luck"),
    ]
    assert "ValueError" in failures[0]["trace"]
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["participants"] for event in rounds] == [[0, 2], [0, 2]]
    assert all("1" not in event["messages"]["train"].get("up", {}) for event in rounds)
    assert finished.summary["full_model"]["participations"] == 4


def test_a_client_that_cannot_be_scored_is_on_record_too(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path
) -> None:
    fail("evaluate", ValueError("no test images"), (1,))
    finished = run(uneven(clients=3, fraction=1.0, rounds=1), out=tmp_path / "run")
    failures = [event for event in read_events(finished.folder) if event["event"] == "client-failed"]
    assert [(event["client"], event["reason"]) for event in failures] == [(1, "evaluate: no test images")]
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
def test_what_is_not_the_clients_fault_stops_the_run_with_its_own_exit_code(
    fail: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path, kind: type[RunError]
) -> None:
    fail("train", kind("The sky fell."), (1,))
    with pytest.raises(kind) as stopped:
        run(uneven(clients=3, fraction=1.0), out=tmp_path / "run")
    assert str(stopped.value) == "Round 1, client 1: The sky fell."
    assert type(stopped.value) is kind
