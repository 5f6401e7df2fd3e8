"""The command line: commands, options, error messages, exit codes."""

from refprotofl.cli.entry import main

__all__ = ["main"]
