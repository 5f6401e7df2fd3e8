"""Output streams: results on stdout, progress and errors on stderr."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, default_folder

if TYPE_CHECKING:
    from tests.cli.conftest import Command


def lasting(summary: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in summary.items() if key != "seconds"}


def test_json_is_the_summary_and_nothing_else(refprotofl: "Command", tiny: Path, undisturbed: RunResult) -> None:
    outcome = refprotofl("run", tiny, "--workers", 1, "--out", "run", "--json")
    assert outcome.code == 0
    printed = json.loads(outcome.out)
    assert printed == json.loads(Path("run/summary.json").read_text())
    assert lasting(printed) == lasting(undisturbed.summary)
    contract = "schema experiment experiment_hash rounds_done accuracy accuracy_per_client communication seconds"
    assert {*contract.split(), "state_digest"} <= printed.keys()


def test_progress_goes_to_stderr(refprotofl: "Command", tiny: Path) -> None:
    outcome = refprotofl("run", tiny, "--workers", 1, "--out", "run")
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    assert len(lines) == 4  # the title, one line for each evaluation, and the next command
    assert lines[0].endswith(
        "2 clients, Dirichlet 0.5, 2 rounds, seed 0, sharing the adapter, clients run in this process"
    )
    assert [line.split(":")[0] for line in lines[1:]] == ["round 1/2", "round 2/2", "Next"]
    assert "round 1/2" not in outcome.out
    assert "\x1b" not in outcome.out + outcome.err  # no colours in a file


def test_the_result_names_protocols_traffic_folder_and_digest(
    refprotofl: "Command", tiny: Path, undisturbed: RunResult
) -> None:
    outcome = refprotofl("run", tiny, "--workers", 1, "--out", "a [bold] folder")
    assert outcome.code == 0
    for word in ("personal_before", "own_prototype", "uplink", "downlink", undisturbed.summary["state_digest"]):
        assert word in outcome.out
    assert "Run folder: a [bold] folder\n" in outcome.out
    assert "seed 0, sharing the adapter, results of the last round" in " ".join(outcome.out.split())
    assert Path("a [bold] folder/summary.json").exists()


def test_without_out_a_new_folder_is_made_under_runs(refprotofl: "Command", tiny: Path) -> None:
    assert refprotofl("run", tiny, "--workers", 1).code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.endswith("-refprotofl-tiny-seed0")
    assert (folder / "summary.json").exists()


def test_folders_of_the_same_second_have_names_of_their_own() -> None:
    assert len({default_folder(Experiment()) for _ in range(200)}) == 200
    (name,) = {default_folder(Experiment(dataset="a b/[/x]\n.npz", method="my.mod:Own")).name.split("-", 3)[3]}
    assert name == "my.mod-Own-x-seed0"


def test_a_home_folder_is_found(refprotofl: "Command", tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd() / "home"))
    assert refprotofl("run", tiny, "--workers", 1, "--out=~/a").code == 0
    assert Path("home/a/summary.json").exists()
    assert refprotofl("verify", "~/a").code == 0
    outcome = refprotofl("run", tiny, "--out=~no-such-user/a")
    assert (outcome.code, "unknown home folder" in outcome.err) == (2, True)


def test_the_version(refprotofl: "Command") -> None:
    outcome = refprotofl("--version")
    assert (outcome.code, outcome.out) == (0, f"refprotofl {version('refprotofl')}\n")


def test_one_round_of_one_client_is_not_many(refprotofl: "Command", tiny: Path) -> None:
    outcome = refprotofl("run", tiny, "--set", "rounds=1", "--set", "clients=1", "--workers", 1)
    assert ": 1 client, Dirichlet 0.5, 1 round, seed 0" in outcome.out


def test_settings_win_over_file_and_file_over_preset(refprotofl: "Command", tiny: Path) -> None:
    command = ("run", tiny, "--preset", "quick", "--set", "rounds=1", "--set", "refprotofl.erpa=off")
    assert refprotofl(*command, "--workers", 1, "--out", "run").code == 0
    experiment = json.loads(Path("run/experiment.json").read_text())
    assert experiment["train"]["batch-size"] == 16  # the preset's
    assert experiment["clients"] == 2  # the file's
    assert experiment["rounds"] == 1  # the setting
    assert experiment["refprotofl"]["erpa"] is False


def test_verify_of_one_and_of_two_runs(
    refprotofl: "Command", undisturbed: RunResult, finished_copy: Path, cut_off: Path
) -> None:
    digest = undisturbed.summary["state_digest"]
    outcome = refprotofl("verify", undisturbed.folder)
    assert outcome.code == 0
    assert "The hashes have no key" in outcome.err
    first, second = outcome.out.splitlines()
    assert first == f"{undisturbed.folder}: round 2 is intact, state digest {digest}"
    assert second == "Checkpoints of rounds 1, 2: all files are intact."
    outcome = refprotofl("verify", undisturbed.folder, finished_copy)
    assert outcome.code == 0
    assert outcome.out.endswith("The two runs agree in all messages and states.\n")
    outcome = refprotofl("verify", undisturbed.folder, cut_off)
    assert outcome.code == 4
    assert "one has 2, the other 1" in outcome.err


def test_verify_of_two_experiments_names_what_differs(
    refprotofl: "Command", tiny: Path, undisturbed: RunResult
) -> None:
    assert refprotofl("run", tiny, "--set", "train.lr=0.5", "--workers", 1, "--out", "other").code == 0
    outcome = refprotofl("verify", undisturbed.folder, "other")
    assert outcome.code == 4
    assert "The experiments differ in train.lr." in outcome.err


def test_an_unexpected_error_is_still_a_sentence(
    refprotofl: "Command", tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("our mistake")

    monkeypatch.setattr("refprotofl.federation.simulation.server_side", break_down)
    outcome = refprotofl("run", tiny, "--workers", 1)
    assert outcome.code == 4
    assert "Internal error: ZeroDivisionError: our mistake. Set REFPROTOFL_DEBUG=1" in outcome.err
    assert not Path("runs").exists()


def test_the_installed_command(tiny: Path, undisturbed: RunResult) -> None:
    """The true thing, in a process of its own."""
    installed = str(Path(sys.executable).with_name("refprotofl"))
    command = [installed, "run", str(tiny), "--workers", "1", "--out", "run", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONWARNINGS": ""}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state_digest"] == undisturbed.summary["state_digest"]
    assert "Traceback" not in done.stderr


def test_partition_shows_and_draws_the_classes_of_each_client(refprotofl: "Command", tiny: Path) -> None:
    outcome = refprotofl("partition", tiny, "--out", "new/picture.svg")
    assert outcome.code == 0, outcome.err
    table = [line.strip("│ ").split("│") for line in outcome.out.splitlines() if line.startswith("│")]
    rows = [[int(cell) for cell in line] for line in table]
    assert [row[0] for row in rows] == [0, 1]
    assert all(row[1] == sum(row[2:]) for row in rows)
    assert sum(row[1] for row in rows) == 45 - 2 * 3  # all but the public images
    assert "2 clients by 3 classes" in outcome.out
    assert Path("new/picture.svg").read_text().startswith("<?xml")
