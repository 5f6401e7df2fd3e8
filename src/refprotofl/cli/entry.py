"""The entry point: registers all commands and turns errors into a message and an exit code."""

import os
import signal
import sys
import traceback
from types import FrameType
from typing import Annotated, NoReturn

import typer
from click.exceptions import ClickException
from typer.models import CommandInfo

from refprotofl.cli import (  # noqa: F401 - register
    attack,
    audit,
    bench,
    compare,
    data,
    deploy,
    deploy_status,
    frontier,
    methods,
    node,
    partition,
    predict,
    relay,
    report,
    reproduce,
    run,
    tune,
    verify,
)
from refprotofl.cli.app import INTERRUPTED, app
from refprotofl.cli.output import complain, emit, flush, take_any_character
from refprotofl.core import RefProtoFLError, RunError, blame, for_terminal

__all__ = ["app", "main"]

ORDER = (  # of the commands in --help
    *("run", "compare", "report", "watch", "methods", "partition", "predict", "export", "verify", "tune", "frontier"),
    *("reproduce", "attack", "audit", "export-log", "node", "relay"),
)


def _place(command: CommandInfo) -> int:
    name = command.name or getattr(command.callback, "__name__", "")
    return ORDER.index(name) if name in ORDER else len(ORDER)


app.registered_commands.sort(key=_place)


def _print_version(asked: bool) -> None:
    if asked:
        from refprotofl import __version__

        emit(f"refprotofl {__version__}\n")
        raise typer.Exit


@app.callback()
def every_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Federated learning over thin links: private backbones, a shared adapter, prototypes as anchors."""


def main() -> NoReturn:
    """Run a command; errors are one sentence, never a stack trace."""
    signal.signal(signal.SIGTERM, _terminate)
    take_any_character()
    _hold_back_styles()
    try:
        code = _run()
        flush()
    except BrokenPipeError:  # the reader has closed the pipe
        code = 0
        flush()
    sys.exit(code)


def _run() -> int:
    try:
        code = app(standalone_mode=False)
        return code if isinstance(code, int) else 0
    except ClickException as problem:
        problem.message = for_terminal(problem.message)  # type: ignore[misc]
        problem.show()
        return problem.exit_code
    except RefProtoFLError as problem:
        complain(str(problem))
        return problem.exit_code
    except (KeyboardInterrupt, typer.Abort):
        complain("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as problem:
        complain(_unexpected(problem))
        return RunError.exit_code


def _unexpected(problem: Exception) -> str:
    """Return a message for an unexpected error, in the user's own code or in ours."""
    if os.environ.get("REFPROTOFL_DEBUG"):
        traceback.print_exc()
    what, theirs = f"{type(problem).__name__}: {problem}".rstrip(".: "), blame(problem)
    if theirs is not None:
        place = f"{theirs.filename}, line {theirs.lineno}, in {theirs.name}"
        return f"Your own code failed with {what} ({place}). Set REFPROTOFL_DEBUG=1 for the stack trace."
    return f"Internal error: {what}. Set REFPROTOFL_DEBUG=1 for the stack trace, and please report it."


def _hold_back_styles() -> None:
    if os.environ.get("NO_COLOR"):
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
