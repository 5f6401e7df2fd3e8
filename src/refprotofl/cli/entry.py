"""Where a command starts, and where everything that goes wrong becomes a sentence and an exit code."""

import os
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import typer
from click.exceptions import ClickException

from refprotofl.cli import bench, bench_parts, bench_runs, comparing, data, results, running  # noqa: F401 - register
from refprotofl.cli.app import INTERRUPTED, app, complain
from refprotofl.errors import RefProtoFLError, RunError


def main() -> NoReturn:
    """Entry point: what a user can mend is a sentence, never a stack trace."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except RefProtoFLError as problem:
        complain(str(problem))
        sys.exit(problem.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        complain("Interrupted.")
        sys.exit(INTERRUPTED)
    except Exception as problem:
        if os.environ.get("REFPROTOFL_DEBUG"):
            traceback.print_exc()
        complain(
            f"Internal error: {type(problem).__name__}: {problem}. REFPROTOFL_DEBUG=1 shows where; please report it."
        )
        sys.exit(RunError.exit_code)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
