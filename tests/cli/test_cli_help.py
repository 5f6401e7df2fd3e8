"""Every command explains itself with an example."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import pytest
import typer.main

from refprotofl.cli.entry import app

if TYPE_CHECKING:
    from tests.cli.conftest import Command


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


ALL = [path for path in commands(typer.main.get_command(app)) if path]


def test_the_commands_of_the_contract_that_exist_are_found() -> None:
    assert {("run",), ("partition",), ("verify",), ("data", "list"), ("data", "fetch"), ("data", "check")} <= set(ALL)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_shows_an_example(refprotofl: "Command", path: tuple[str, ...]) -> None:
    outcome = refprotofl(*path, "--help")
    assert outcome.code == 0
    assert f"Example: refprotofl {path[0]}" in outcome.out
    assert outcome.err == ""


def test_the_programs_help_reports_the_exit_codes(refprotofl: "Command") -> None:
    outcome = refprotofl("--help")
    assert outcome.code == 0
    assert "Exit codes: 0 success, 2 invalid input, 3 missing" in outcome.out
    for path in ALL:
        assert path[0] in outcome.out


@pytest.mark.parametrize("path", [path for path in ALL if len(path) == 1], ids=" ".join)
def test_a_command_that_lacks_what_it_needs_does_not_pretend_to_succeed(
    refprotofl: "Command", path: tuple[str, ...]
) -> None:
    outcome = refprotofl(*path, "--no-such-option")
    assert outcome.code == 2
    assert "--no-such-option" in outcome.err


@pytest.mark.parametrize("path", [("comparee",), ("deploy", "statuss"), ("data", "descirbe"), ("bench", "starts")])
def test_a_misspelt_command_is_suggested_once(refprotofl: "Command", path: tuple[str, ...]) -> None:
    outcome = refprotofl(*path)
    assert outcome.code == 2
    assert outcome.err.count("Did you mean") == 1


def test_compare_says_where_several_experiments_are_kept(refprotofl: "Command") -> None:
    shown = " ".join(refprotofl("compare", "--help").out.split())
    assert "its runs are in a folder of its name below --out" in shown
