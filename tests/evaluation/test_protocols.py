"""The protocols are declared in one place; all output copes with one more."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from refprotofl.cli.compare import show_comparison
from refprotofl.cli.progress import print_summary
from refprotofl.evaluation.protocols import PROTOCOLS, Protocol
from refprotofl.evaluation.scoring import accuracies
from refprotofl.experiment import Experiment
from refprotofl.export import export, load_trained
from refprotofl.federation import RunResult, run
from refprotofl.report.comparison import tabulate
from refprotofl.studies.results import result_of
from refprotofl.studies.trials import Trial

ROOT = Path(__file__).parents[2]

# A method whose clients count correct answers under one more name.
HALVED = """
from refprotofl.methods import find_method

class HalvedClient(find_method("local").client):
    def evaluate(self, round, message):
        counts = super().evaluate(round, message)
        return {**counts, "halved": counts["own"] // 2}

class Halved:
    server = find_method("local").server
    client = HalvedClient
    shared = ()
"""


def test_accuracies_by_hand() -> None:
    counts = {"tested": 20, "own_tested": 8, "personal": 15, "own": 6, "personal_before": 10, "own_prototype": 2}
    assert accuracies({**counts, "loss": 0.5}) == {
        "personal": 0.75,
        "personal_before": 0.5,
        "own": 0.75,
        "own_prototype": 0.25,
    }
    assert accuracies({**counts, "own_tested": 0}) == {"personal": 0.75, "personal_before": 0.5}
    assert "global" not in accuracies({**counts, "global": 20})  # no client's


def test_the_order_is_that_of_the_files() -> None:
    assert list(PROTOCOLS) == ["personal", "personal_before", "global", "own", "personal_prototype", "own_prototype"]


def test_naming_them_does_not_wait_for_torch() -> None:
    code = "import sys, refprotofl.evaluation.protocols; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_the_documentation_names_every_protocol() -> None:
    page = (ROOT / "docs" / "run-folder.md").read_text()
    assert [name for name in PROTOCOLS if f"`{name}`" not in page] == []


@pytest.fixture
def halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    """A run with a protocol that is declared, and nothing more."""
    monkeypatch.setitem(PROTOCOLS, "halved", Protocol("halved", "every other right answer", "own_tested"))
    (tmp_path / "halved_method.py").write_text(HALVED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    values = {"method": "halved_method:Halved", "rounds": 1, "clients": 2, "min-size": 10, "train-limit": 200}
    return run(Experiment.parse({**values, "public": {"per-class": 2}, "model": {"name": "mlp"}}), out=tmp_path / "run")


def test_one_more_protocol_is_recorded_shown_compared_and_in_the_card(halved: RunResult, tmp_path: Path) -> None:
    accuracy, own = halved.summary["accuracy"]["halved"], halved.summary["accuracy"]["own"]
    assert accuracy is not None
    assert own is not None
    assert own / 3 < accuracy <= own / 2
    shown = f"{100 * accuracy:.2f} %"

    screen = Console(file=io.StringIO(), width=200)
    print_summary(screen, halved.summary, halved.folder)
    assert isinstance(screen.file, io.StringIO)
    (line,) = [line for line in screen.file.getvalue().splitlines() if "halved " in line and "%" in line]
    assert shown in line
    assert "every other right answer" in line

    export(load_trained(halved.folder, 1, trust_code=True), tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| {shown} | every other right answer |" in card

    cell = Trial("mine", Experiment.parse(halved.summary["experiment"]), halved.folder)
    table = Console(file=io.StringIO(), width=200, record=True)
    show_comparison(tabulate([(cell, result_of(halved.folder, cell.experiment))]), "one seed", table)
    assert "halved" in table.export_text(clear=False)
    assert shown in table.export_text()


def test_protocols_that_only_another_version_has_are_no_trouble(
    halved: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer version's run is read without the declaration, an older one's with one that it lacks."""
    monkeypatch.delitem(PROTOCOLS, "halved")
    monkeypatch.setitem(PROTOCOLS, "later", Protocol("later", "unheard of", "tested"))
    screen = Console(file=io.StringIO(), width=200, record=True)
    print_summary(screen, halved.summary, halved.folder)
    assert "halved" in screen.export_text()
    cell = Trial("mine", Experiment.parse(halved.summary["experiment"]), halved.folder)
    (row,) = tabulate([(cell, result_of(halved.folder, cell.experiment))])
    assert "later" not in row.accuracy
    assert "personal" in row.accuracy
