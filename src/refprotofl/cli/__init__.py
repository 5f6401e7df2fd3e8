"""The command line: commands, options, error messages, exit codes."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; an interrupt during imports shows no stack trace either."""
    try:
        from refprotofl.cli.entry import main
    except KeyboardInterrupt:
        print("error: Interrupted before the command started; nothing was written.", file=sys.stderr)
        sys.exit(130)
    main()


__all__ = ["main"]
