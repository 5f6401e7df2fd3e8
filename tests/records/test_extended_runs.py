"""A run that is made longer ends as if it had been planned so, whatever happens in between."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.records.test_crash_points import Mortal, live

from refprotofl.core.errors import InputError
from refprotofl.engines.local.store import read_state
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.federation.models import known_digests
from refprotofl.methods import METHODS
from refprotofl.records.folder import read_events, read_experiment
from refprotofl.records.manifest import read_manifest
from refprotofl.records.verify import verify_run

USUAL = {"every": 3}  # the second of two rounds is evaluated because it is the last


@pytest.fixture(scope="module")
def planned(tiny: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(tiny(rounds=4, evaluate=USUAL), out=tmp_path_factory.mktemp("planned") / "run")


def events_of(folder: Path) -> list[str]:
    return [event["event"] for event in read_events(folder)]


def check(folder: Path, planned: RunResult) -> None:
    recorded = read_manifest(folder / "checkpoint")["initial"]
    found = verify_run(folder, known_digests(read_experiment(folder), recorded), read_state)
    assert (found.round, found.state_digest) == (4, planned.summary["state_digest"])
    assert [event["round"] for event in read_events(folder) if event["event"] == "round"] == [1, 2, 3, 4]
    assert [event["rounds"] for event in read_events(folder) if event["event"] == "extend"] == [4]


def test_it_ends_as_if_it_had_been_planned(tiny: Callable[..., Experiment], tmp_path: Path, planned: RunResult) -> None:
    out = tmp_path / "run"
    run(tiny(evaluate=USUAL), out=out)
    longer = run(tiny(rounds=4, evaluate=USUAL), out=out, resume=True)
    assert longer.summary["state_digest"] == planned.summary["state_digest"]
    assert longer.summary["accuracy"] == planned.summary["accuracy"]
    assert longer.summary["experiment_hash"] == planned.summary["experiment_hash"]
    assert longer.summary["communication"]["uplink"] == planned.summary["communication"]["uplink"]
    check(out, planned)
    first, then = ["start", "round", "evaluation", "round"], ["evaluation", "round", "evaluation", "round", "end"]
    assert events_of(out) == [*first, "resume", "extend", *then]
    assert run(tiny(rounds=4, evaluate=USUAL), out=out, resume=True).reused


@pytest.mark.parametrize("completes_it", [False, True], ids=["before", "after"])
def test_death_at_any_deed_changes_nothing(
    tiny: Callable[..., Experiment], tmp_path: Path, planned: RunResult, completes_it: bool
) -> None:
    for last in range(1, 13):  # the first deeds are those of the extension, then comes the third round
        out = tmp_path / str(last)
        run(tiny(evaluate=USUAL), out=out)
        assert live(Mortal(last, completes_it), tiny(rounds=4, evaluate=USUAL), out) is None
        run(read_experiment(out), out=out, resume=True)  # whatever it is by now, it resumes
        run(tiny(rounds=4, evaluate=USUAL), out=out, resume=True)
        check(out, planned)


def test_a_run_that_was_cut_off_can_be_made_longer(
    tiny: Callable[..., Experiment], cut_off: Path, undisturbed: RunResult
) -> None:
    longer = run(tiny(rounds=3), out=cut_off, resume=True).summary
    assert longer["rounds_done"] == 3
    digests = [event["state_digest"] for event in read_events(cut_off) if event["event"] == "round"]
    assert digests[1] == undisturbed.summary["state_digest"]


def test_a_run_cannot_be_made_shorter(tiny: Callable[..., Experiment], cut_off: Path) -> None:
    with pytest.raises(InputError, match="it differs in rounds"):
        run(tiny(rounds=1), out=cut_off, resume=True)


def test_a_method_that_depends_on_the_number_of_rounds_is_refused(
    tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    finished = run(tiny(method="fedproc", rounds=1), out=tmp_path / "run")
    with pytest.raises(InputError, match=r"planned for rounds = 1 .* each round of method = 'fedproc' depends"):
        run(tiny(method="fedproc", rounds=2), out=tmp_path / "run", resume=True)
    again = run(tiny(method="fedproc", rounds=1), out=tmp_path / "run", resume=True)
    assert again.summary == finished.summary


METHODS_AS_THEY_COME = [name for name, method in METHODS.items() if not method.depends_on_rounds and name != "fedpcl"]


@pytest.mark.parametrize("method", METHODS_AS_THEY_COME)  # fedpcl needs a backbone that does not learn
def test_an_evaluation_more_leaves_no_trace_in_any_method(
    tiny: Callable[..., Experiment], tmp_path: Path, method: str
) -> None:
    settings = {"method": method, "evaluate": USUAL}
    run(tiny(rounds=1, **settings), out=tmp_path / "run")
    longer = run(tiny(rounds=2, **settings), out=tmp_path / "run", resume=True)
    whole = run(tiny(rounds=2, **settings), out=tmp_path / "whole")
    assert longer.summary["state_digest"] == whole.summary["state_digest"]
    assert longer.summary["accuracy"] == whole.summary["accuracy"]
