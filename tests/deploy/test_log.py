"""Log lines as text and as JSON."""

import json
from pathlib import Path

import pytest

from refprotofl.deploy.log import VARIABLE, log, sentence_of, set_format
from refprotofl.deploy.status import StatusCallback, Wait

HOSTILE = "client \x1b[2J says\nError: nothing"


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "text")  # set_format changes the environment: what it was comes back
    set_format("json")


def test_a_line_of_text_shows_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    log(HOSTILE, "note", client=3)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.usefixtures("as_json")
def test_an_event_is_one_line_of_json_with_its_fields(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log(HOSTILE, "failed", client=3)
    StatusCallback(tmp_path / "state.json").waiting([Wait("node-1 (client 1)", "train", 0.0)])
    first, second = capsys.readouterr().out.splitlines()
    found = json.loads(first)
    assert (found["event"], found["message"], found["client"]) == ("failed", HOSTILE, 3)
    assert found["time"].endswith("Z")
    assert json.loads(second)["nodes"] == [{"client": "node-1 (client 1)", "verb": "train", "since": 0.0}]
    assert sentence_of(first) == HOSTILE
    assert "\x1b" not in first


@pytest.mark.parametrize("line", ["a sentence", "{a sentence}", '{"other": 1}', "[1]"])
def test_the_sentence_of_a_line_in_another_format_is_the_line(line: str) -> None:
    assert sentence_of(line) == line
