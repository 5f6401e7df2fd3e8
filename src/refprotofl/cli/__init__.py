"""The command line: commands, options, error messages, exit codes."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """The command; who interrupts it while it is being imported sees no stack trace either."""
    try:
        from refprotofl.cli.entry import main
    except KeyboardInterrupt:
        print("error: Interrupted before anything began; nothing was kept.", file=sys.stderr)
        sys.exit(130)
    main()


__all__ = ["main"]
