"""The errors, each with its documented exit code."""

from pathlib import Path


class RefProtoFLError(Exception):
    """A problem described in a sentence or two: what is wrong, where, and what to do."""

    exit_code = 4


class InputError(RefProtoFLError):
    """Invalid input from the user: an option, a key, a path, a file."""

    exit_code = 2


class BudgetError(InputError):
    """A byte budget that is too small for any message of the experiment's model."""


class DataError(RefProtoFLError):
    """A data set that is missing, truncated or corrupt."""

    exit_code = 3


class RunError(RefProtoFLError):
    """A run that cannot continue."""

    exit_code = 4


class MachineError(RunError):
    """A failure of the machine: a full disk, a killed worker, too little time. The experiment may be fine."""


class ClientsFailed(RunError):
    """Too few clients are left in a round."""


class DiskFull(MachineError):
    """A disk without space for a file that must be written."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"The disk is full: cannot write {path}. Free some space.")


class GuardError(RunError):
    """A silent failure of something that the experiment promises."""


class PrivacyError(GuardError):
    """A use of private data that is not accounted for; one client is enough to stop the run."""
