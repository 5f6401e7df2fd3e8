"""Names of classes, folders and files that are markup, escapes, formulas or HTML elsewhere."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from tests.cli.conftest import Command

pytestmark = pytest.mark.skipif(Path("x").drive != "", reason="such file names need another system")

CLASSES = ("[red]a", "[bold]", ":dog:", "=cmd|' '!A1", "\x1b[31mred", "<script>", "two\nlines", "$\\frac$")
SETTING = ("clients=2", "rounds=1", "min-size=3", "public.per-class=1", "model.embedding=8")
OPTIONS = [word for setting in SETTING for word in ("--set", setting)]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of images whose every name is out for trouble."""
    folder = tmp_path / "set [" / "x]\x1b[32m"
    draw = np.random.default_rng(0)
    for split, count in (("train", 12), ("test", 3)):
        for number, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for sample in range(count):
                pixels = draw.integers(0, 100, (6, 6)).astype(np.uint8) + 15 * number
                Image.fromarray(pixels).save(folder / split / name / f"=x{sample}.png")
    return folder


def assert_harmless(text: str) -> None:
    assert "\x1b" not in text
    assert "MarkupError" not in text
    assert "Internal error" not in text


def test_tables_of_data_and_partition_show_every_name(
    refprotofl: "Command", hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refprotofl.cli.output.out.width", 250)
    drawn = [*OPTIONS[:2], *OPTIONS[4:8], "--out", "picture.png"]
    for command in (("data", "check", hostile), ("partition", "--set", f"dataset={hostile}", *drawn)):
        outcome = refprotofl(*command)
        assert outcome.code == 0, outcome.err
        assert_harmless(outcome.out)
        for name in ("[red]a", "[bold]", ":dog:", "=cmd|' '!A1", r"\x1b[31mred", "<script>", r"two\nlines", "$\\frac$"):
            assert name in outcome.out
    assert Path("picture.png").exists()


def test_run_compare_export_and_predict(refprotofl: "Command", hostile: Path) -> None:
    chosen = ["--set", f"dataset={hostile}", *OPTIONS, "--workers", 1]
    ran = refprotofl("run", *chosen, "--out", "run [/x]\x1b[1m")
    assert ran.code == 0, ran.err
    assert r"Run folder: run [/x]\x1b[1m" in ran.out

    compared = refprotofl("compare", "--methods", "local", "--seeds", "0", *chosen, "--out", "grid [/x]")
    assert compared.code == 0, compared.err
    assert "Runs are in grid [/x]" in compared.out

    exported = refprotofl("export", "run [/x]\x1b[1m", "--client", 0, "--out", "model [/x]")
    assert exported.code == 0, exported.err
    assert "model [/x]/README.md" in exported.out
    for outcome in (ran, compared, exported):
        assert_harmless(outcome.out + outcome.err)

    card = Path("model [/x]/README.md").read_text()
    assert_harmless(card)
    assert "<script>" not in card
    (classes,) = [line for line in card.splitlines() if line.startswith("| classes |")]
    assert r"two\\nlines" in classes
    assert "&lt;script&gt;" in classes


def test_predictions_hold_no_formula_and_no_escape(refprotofl: "Command", hostile: Path) -> None:
    assert refprotofl("run", "--set", f"dataset={hostile}", *OPTIONS, "--workers", 1, "--out", "run").code == 0
    outcome = refprotofl("predict", "run", hostile / "test" / "<script>", "--client", 0)
    assert outcome.code == 0, outcome.err
    assert_harmless(outcome.out)
    rows = list(csv.reader(io.StringIO(outcome.out)))
    assert len(rows) == 1 + 3
    assert len(outcome.out.splitlines()) == 1 + 3
    assert all(not cell.startswith(("=", "@", "+")) for row in rows for cell in row)


BABBLING = """
from refprotofl.methods import find_method
FedAvg = find_method("fedavg")
class Babbling(FedAvg.client):
    def train(self, round, message):
        raise ValueError("[/x] \\x1b[31m red\\nerror: forged")
class Mine:
    server, client = FedAvg.server, Babbling
"""


@pytest.mark.parametrize("command", ["run", "compare"])
def test_errors_of_clients(refprotofl: "Command", tiny: Path, command: str) -> None:
    Path("babbling.py").write_text(BABBLING)
    what = ("run", "--set", "method=babbling:Mine") if command == "run" else ("compare", "--methods", "babbling:Mine")
    outcome = refprotofl(*what, tiny, "--workers", 1, "--out", "run")
    assert outcome.code == 4
    assert_harmless(outcome.err)
    assert r"client 0: train: [/x] \x1b[31m red\nerror: forged" in outcome.err


@pytest.mark.parametrize("name", ["[/x]", "\x1b[31mx", "[red]x"])
def test_what_is_typed_wrongly_is_shown_as_typed(refprotofl: "Command", name: str) -> None:
    for arguments in (
        ("run", name),
        ("verify", name),
        ("run", "x", name),
        ("run", f"--{name}"),
        ("data", "check", name),
    ):
        outcome = refprotofl(*arguments)
        assert outcome.code in (2, 3)
        assert_harmless(outcome.err)
        assert name.replace("\x1b", r"\x1b") in outcome.err
