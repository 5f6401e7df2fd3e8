"""Natural clients and mixed sizes on the command line: partition, data check, run, predict, export."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

if TYPE_CHECKING:
    from tests.cli.conftest import Command

KEYS = ("partition=natural", "resize=6", "min-size=6", "public.per-class=2", "rounds=1")
SETTINGS = [part for key in KEYS for part in ("--set", key)]


@pytest.fixture
def photos() -> str:
    """Images in the current folder, of sizes from 5 to 8 pixels; a client's name looks like a colour of the screen."""
    for client, each in (("[red]anna", 20), ("ben", 15), ("eve", 2)):
        for name, shade in (("cat", 40), ("dog", 200)):
            folder = Path("photos", client, name)
            folder.mkdir(parents=True)
            for number in range(each):
                Image.new("L", (5 + number % 4, 7), shade + number).save(folder / f"{number}.png")
    return "photos"


def test_the_partition_table_names_the_clients(refprotofl: "Command", photos: str) -> None:
    outcome = refprotofl("partition", "--set", f"dataset={photos}", *SETTINGS, "--out", "it.png")
    assert outcome.code == 0, outcome.err
    assert "[red]anna" in outcome.out
    assert "natural: 2 clients of the data set, 1 left out" in outcome.out
    assert "Clients left out, with fewer than min-size = 6 samples: eve (" in outcome.err
    assert Path("it.png").stat().st_size > 1000


def test_a_check_reads_as_a_run_would(refprotofl: "Command", photos: str) -> None:
    outcome = refprotofl("data", "check", photos, "--set", "partition=natural", "--set", "resize=6")
    assert outcome.code == 0, outcome.err
    assert "(1, 6, 6)" in outcome.out
    assert "3 clients, with training images: [red]anna (32), ben (24), eve (4)" in outcome.out
    plain = refprotofl("data", "check", photos)
    assert plain.code == 3
    assert 'with partition = "natural"' in plain.err
    mixed = refprotofl("data", "check", photos, "--set", "partition=natural")
    assert mixed.code == 3
    assert "resize = 32" in mixed.err


def test_a_number_of_clients_next_to_natural_ones_is_refused(refprotofl: "Command", photos: str) -> None:
    outcome = refprotofl("run", "--set", f"dataset={photos}", *SETTINGS, "--set", "clients=2")
    assert outcome.code == 2
    assert 'has clients = 2, but with partition = "natural" the clients come from the data' in outcome.err


def test_a_run_and_its_models_by_name(
    refprotofl: "Command", photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    outcome = refprotofl("run", "--set", f"dataset={photos}", *SETTINGS, "--workers", 1, "--out", folder)
    assert outcome.code == 0, outcome.err
    assert "Clients left out" in outcome.err
    assert "2 clients, natural, 1 round," in outcome.err
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # its data are found from here too
    one = refprotofl("predict", folder, photos, "--client", "ben")
    assert one.code == 0, one.err
    assert "Accuracy on labelled samples" in one.err
    assert "Confusion matrix" in one.err
    assert [line.split()[1] for line in one.err.splitlines() if line.startswith(("│ cat", "│ dog"))] == ["cat", "dog"]
    every = refprotofl("predict", folder, photos, "--client", "all")
    assert every.code == 0, every.err
    rows = list(csv.DictReader(io.StringIO(every.out)))
    assert {row["client"] for row in rows} == {"[red]anna", "ben"}
    assert "mean of 2 clients" in every.err
    found = json.loads(refprotofl("predict", folder, photos, "--client", "all", "--format", "json").out)
    assert len(found["rows"]) == len(rows)
    exported = refprotofl("export", folder, "--client", "ben", "--out", "model")
    assert exported.code == 0, exported.err
    assert Path("model/README.md").read_text().startswith("# Image classifier of client 1, ben")


def test_a_comparison_reports_once_which_clients_are_left_out(refprotofl: "Command", photos: str) -> None:
    grid = ("--methods", "local,fedavg", "--seeds", "0", "--workers", 1, "--out", "grid")
    outcome = refprotofl("compare", *grid, "--set", f"dataset={photos}", *SETTINGS)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("Clients left out") == 1
    assert refprotofl("methods", "--set", f"dataset={photos}", *SETTINGS).code == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("predict", "{run}", "digits", "--client", "eve"), ("There is no client eve", "0 to 1")),
        (("predict", "{run}", "digits", "--client", "2"), ("There is no client 2", "0 to 1")),
        (("export", "{run}", "--client", "-1", "--out", "model"), ("There is no client -1", "0 to 1")),
        (("export", "{run}", "--client", "all", "--out", "model"), ("--client all", "one client at a time")),
    ],
)
def test_clients_that_are_not_there(
    refprotofl: "Command", finished_copy: Path, command: tuple[str, ...], words: tuple[str, ...]
) -> None:
    outcome = refprotofl(*(part.format(run=finished_copy) for part in command))
    assert outcome.code == 2
    for word in words:
        assert word in outcome.err
