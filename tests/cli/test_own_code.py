"""Errors in the user's own code are reported as such, with the line; ours are not."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Command

MINE = """
import torch
from refprotofl.methods import find_method
from helper import slip

FedAvg = find_method("fedavg")

class Slipping(FedAvg.server):
    def round(self, cohort):
        slip()

class Adding(FedAvg.server):
    def round(self, cohort):
        torch.zeros(2) + torch.zeros(3)  # torch raises, but not by itself

class Starting(FedAvg.server):
    def __init__(self, context):
        super().__init__(context)
        self.table = {}["nothing"]

class Dividing(FedAvg.client):
    def train(self, round, message):
        return {"share": 1 / 0}

class Slip:
    server, client = Slipping, FedAvg.client
class Add:
    server, client = Adding, FedAvg.client
class Start:
    server, client = Starting, FedAvg.client
class Divide:
    server, client = FedAvg.server, Dividing
"""


@pytest.fixture
def _mine(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text(MINE)
    Path("helper.py").write_text("def slip():\n    raise KeyError('my slip')\n")
    for name in ("mine", "helper"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    monkeypatch.syspath_prepend(Path.cwd())


@pytest.mark.usefixtures("_mine")
@pytest.mark.parametrize(
    ("method", "what", "where"),
    [
        ("Slip", "KeyError: 'my slip'", "helper.py, line 2, in slip"),
        ("Add", "RuntimeError: The size of tensor a (2)", "mine.py, line 14, in round"),
        ("Start", "KeyError: 'nothing'", "mine.py, line 19, in __init__"),
    ],
)
def test_of_a_server(refprotofl: "Command", tiny: Path, method: str, what: str, where: str) -> None:
    outcome = refprotofl("run", tiny, "--set", f"method=mine:{method}", "--workers", 1, "--out", "run")
    assert outcome.code == 4
    assert f"Your own code failed with {what}" in outcome.err
    assert f"{where})" in outcome.err
    assert "please report" not in outcome.err


@pytest.mark.usefixtures("_mine")
def test_of_a_client(refprotofl: "Command", tiny: Path) -> None:
    outcome = refprotofl("run", tiny, "--set", "method=mine:Divide", "--workers", 1, "--out", "run")
    assert outcome.code == 4
    assert "client 0: train: division by zero (ZeroDivisionError in " in outcome.err
    assert "mine.py, line 23)" in outcome.err


@pytest.mark.usefixtures("_mine")
def test_our_own_mistake_is_not_theirs(refprotofl: "Command", tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("our mistake")

    monkeypatch.setattr("refprotofl.federation.loop.digest_value", break_down)
    method = ("--set", "method=fedavg")
    outcome = refprotofl("run", tiny, *method, "--workers", 1, "--out", "run")
    assert "Internal error: ZeroDivisionError: our mistake" in outcome.err
