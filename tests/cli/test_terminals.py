"""Narrow terminals, closed pipes, encodings without our characters, terminals that want no styles."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len
from tests.tiny import tiny_options

from refprotofl.cli.output import Column, out, show

if TYPE_CHECKING:
    from tests.cli.conftest import Command

COMMAND = [sys.executable, "-c", "from refprotofl.cli import main; main()"]
TINY = [*tiny_options(clients=3), "--workers", "1"]


def widest(text: str) -> int:
    return max(cell_len(line) for line in text.splitlines() if line[:1] in "┏┃┡│└")


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    "command",
    [
        ("methods",),
        ("data", "list"),
        ("compare", "--methods", "refprotofl,fedavg:share=full", "--seeds", "0,1", *TINY),
        ("run", *TINY),
        ("bench", "aggregate", "--uploads", "2", "--size", "300", "--repeats", "1"),
    ],
    ids=lambda command: command[0],
)
def test_tables_fit(
    refprotofl: "Command", monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], width: int
) -> None:
    monkeypatch.setattr(out, "width", width)
    outcome = refprotofl(*command)
    assert outcome.code == 0, outcome.err
    assert 0 < widest(outcome.out) <= width
    assert "…" not in outcome.out  # nothing is cut


def test_the_keys_of_a_method_are_whole(refprotofl: "Command", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", 50)
    shown = refprotofl("methods", "refprotofl").out
    assert max(map(len, shown[shown.index("\nkey ") :].splitlines())) <= 50
    for key in ("refprotofl.selection-scope", "refprotofl.error-feedback", "refprotofl.uplink-budget"):
        assert any(line.startswith(f"{key} ") for line in shown.splitlines())


def test_a_table_continues_below_with_the_names_of_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(out, "width", 24)
    columns = [Column("name"), *(Column(f"number {number}", numbers=True) for number in range(5))]
    show(columns, [("a", *range(5)), ("b", *range(100, 105))])
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if line.startswith("│ b")]
    assert len(lines) > 1
    assert [cell for line in lines for cell in line.replace("│", " ").split()[1:]] == [str(n) for n in range(100, 105)]
    assert widest(shown) <= 24


def piped(reader: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with its output read by a shell's `reader`; the code of the command is printed last to stderr."""
    script = f'("$@"; echo "code $?" >&2) | {reader}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONWARNINGS": "", **environment},
    )


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs a shell")
@pytest.mark.parametrize("arguments", [("methods",), ("run", *TINY, "--json"), ("run", *TINY)], ids=str)
def test_a_closed_pipe_is_no_error(arguments: tuple[str, ...]) -> None:
    done = piped("true", *arguments)
    assert done.stderr.endswith("code 0\n")
    for word in ("Traceback", "BrokenPipe", "error", "Exception"):
        assert word not in done.stderr
    assert arguments[0] != "run" or list(Path("runs").glob("*/summary.json"))


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs a shell")
def test_ascii_will_do() -> None:
    done = piped("cat", "compare", "--methods", "local", "--seeds", "0,1", *TINY, PYTHONIOENCODING="ascii")
    assert done.stderr.endswith("code 0\n")
    assert done.stdout.isascii()
    assert "+/-" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("| local"))
    rule = next(line for line in done.stdout.splitlines() if line.startswith("|--"))
    assert [place for place, sign in enumerate(row) if sign == "|"][1:-1] == [
        place for place, sign in enumerate(rule) if sign == "+"
    ]


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs a shell")
def test_no_color_is_without_bold_too() -> None:
    plain = piped("cat", "run", "no-such.toml", NO_COLOR="1", FORCE_COLOR="1")
    assert plain.stderr.startswith("error: Cannot read")
    styled = piped("cat", "run", "no-such.toml", NO_COLOR="", FORCE_COLOR="1")
    assert styled.stderr.startswith("\x1b[1;31merror: ")
