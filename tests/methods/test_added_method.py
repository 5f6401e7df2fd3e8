"""A built-in method with options is its folder and its page: nothing else knows of it, and every list has it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

DECLARATION = '''
"""FedAvg that takes smaller steps."""

from typing import Literal

from pydantic import Field

from refprotofl.experiment.keys import Table, key
from refprotofl.methods.builtin.fedavg import FedAvg
from refprotofl.methods.declaration import Cost, lazy


class Options(Table):
    pace: float = Field(0.5, gt=0, le=1, description="how far of its way a client goes, above 0 and up to 1")
    kind: Literal["even", "odd"] = "even"
    newer: int = key(3, "a key that came later", enters="changed")


class Timid(FedAvg):
    """FedAvg that takes smaller steps"""

    name = "timid-avg"
    options = Options
    client = lazy("refprotofl.methods.builtin.timid.timid:TimidClient")
    notes = ("nobody published this",)

    @staticmethod
    def cost(experiment):
        return Cost("P", "P")

    @staticmethod
    def check(experiment):
        if experiment.clients == 7:
            raise ValueError("has clients = 7, which timid-avg is afraid of")
'''

CODE = """
from refprotofl.methods.builtin.fedavg.fedavg import FedAvgClient
from refprotofl.methods.builtin.timid import Options


class TimidClient(FedAvgClient):
    options: Options

    def train(self, round, message):
        answer = super().train(round, message)
        before = message.tensor("shared")
        return {"shared": before + self.options.pace * (answer["shared"] - before)}
"""

PAGE = "# Timid-avg\\n\\n| `[timid-avg]` | |\\n|---|---|\\n| `pace` | |\\n| `kind` | |\\n"

SCRIPT = """
import contextlib, io, json, sys
from pathlib import Path

import refprotofl.methods.builtin as builtin

place, root, tests = map(Path, sys.argv[1:])
builtin.__path__.append(str(place / "builtin"))
sys.path.insert(0, str(tests / "docs"))

from refprotofl.experiment.presets import load_experiment
from refprotofl.core.errors import InputError
from refprotofl.methods.catalogue import METHODS
assert "torch" not in sys.modules, "declarations and options load without torch"
from refprotofl import Experiment, run
from refprotofl.cli import main
from check import undocumented


def command(*arguments):
    sys.argv = ["refprotofl", *arguments]
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        from refprotofl.cli.output import out
        out.file = text
        main()
    return text.getvalue()


def complaint(*settings):
    try:
        load_experiment(settings=settings)
    except InputError as problem:
        return str(problem)


named = Experiment(method="timid-avg")
page = place / "docs" / "methods" / "timid.md"
without_page = undocumented(place)
page.write_text((place / "timid.md").read_text())
half_a_page = undocumented(place)
page.write_text(page.read_text() + "| `newer` | |")
finished = run(
    load_experiment(preset="quick", settings=["method=timid-avg", "rounds=1", "timid-avg.pace=0.25"]),
    out=place / "run",
)
print(json.dumps({
    "methods": command("methods"),
    "timid": command("methods", "timid-avg"),
    "undocumented": [without_page, half_a_page, undocumented(place)],
    "hashes": {name: Experiment(method=name, share="adapter").hash for name in METHODS},
    "plain": named.plain()["timid-avg"],
    "changed": Experiment(method="timid-avg", timid_avg={"newer": 4}).plain()["timid-avg"],
    "other": Experiment(method="fedavg", timid_avg={"pace": 0.1}).hash == Experiment(method="fedavg").hash,
    "own": Experiment(method="timid-avg", timid_avg={"pace": 0.1}).hash == named.hash,
    "complaints": [
        complaint("timid-avg.pace=2"), complaint("timid-avg.kind=wild"), complaint("method=timid-avg", "clients=7"),
        complaint("timid-avg.pase=0.2"),
    ],
    "stored": finished.summary["experiment"]["timid-avg"],
}))
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    place = tmp_path_factory.mktemp("added")
    folder = place / "builtin" / "timid"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(DECLARATION)
    (folder / "timid.py").write_text(CODE)
    (place / "timid.md").write_text(PAGE.replace("\\n", "\n"))
    shutil.copytree(ROOT / "docs", place / "docs")
    command = [sys.executable, "-W", "error", "-c", SCRIPT, place, ROOT, ROOT / "tests"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, cwd=place)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_it_is_listed(outputs: dict[str, str]) -> None:
    assert "timid-avg" in outputs["methods"]
    assert "FedAvg that takes smaller steps" in outputs["methods"]


def test_its_keys_and_notes_are_reported(outputs: dict[str, str]) -> None:
    lines = [" ".join(line.split()) for line in outputs["timid"].splitlines()]
    assert "timid-avg.pace 0.5 how far of its way a client goes, above 0 and up to 1" in lines
    assert "timid-avg.kind even even or odd" in lines
    assert "note: nobody published this" in lines


def test_its_page_is_held_to_its_keys(outputs: dict[str, list[list[str]]]) -> None:
    without_page, half_a_page, whole_page = outputs["undocumented"]
    assert "docs/methods/timid.md on timid-avg" in without_page
    assert half_a_page == ["timid-avg.newer"]
    assert whole_page == []


def test_no_other_hash_changes(outputs: dict[str, dict[str, str]]) -> None:
    pinned = json.loads((ROOT / "tests" / "pins" / "pins.json").read_text())["hashes"]
    assert {name: outputs["hashes"][name] for name in pinned} == pinned
    assert set(outputs["hashes"]) == {*pinned, "timid-avg"}


def test_its_own_table_counts_for_itself_alone(outputs: dict[str, object]) -> None:
    assert outputs["other"] is True
    assert outputs["own"] is False
    assert outputs["plain"] == {"pace": 0.5, "kind": "even"}
    assert outputs["stored"] == {"pace": 0.25, "kind": "even"}


def test_a_key_that_came_later_counts_where_it_is_changed(outputs: dict[str, object]) -> None:
    assert outputs["changed"] == {"pace": 0.5, "kind": "even", "newer": 4}


def test_what_is_wrong_with_its_keys_is_reported_as_with_any(outputs: dict[str, list[str]]) -> None:
    assert outputs["complaints"] == [
        "timid-avg.pace = 2 is too large; allowed: how far of its way a client goes, above 0 and up to 1.",
        "timid-avg.kind = 'wild' is not known; allowed: even or odd.",
        "The experiment has clients = 7, which timid-avg is afraid of.",
        "There is no key timid-avg.pase; did you mean timid-avg.pace?",
    ]
