"""What can go wrong, sorted by who can mend it; each kind has its documented exit code."""

from pathlib import Path


class RefProtoFLError(Exception):
    """A problem told in a sentence or two: what is wrong, where, what would be right."""

    exit_code = 4


class InputError(RefProtoFLError):
    """The user's input: an option, a key, a path, a file handed to a command."""

    exit_code = 2


class BudgetError(InputError):
    """Bytes that no message of an experiment's model can keep within, which is known when the model is there."""


class DataError(RefProtoFLError):
    """A data set that is missing, truncated or corrupt."""

    exit_code = 3


class RunError(RefProtoFLError):
    """A run that cannot go on."""

    exit_code = 4


class MachineError(RunError):
    """The machine let a run down: a full disk, a killed worker, too little time; its experiment may be fine."""


class ClientsFailed(RunError):
    """Too few clients are left in a round."""


class DiskFull(MachineError):
    """A disk without room for a file that must be written."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"The disk is full: cannot write {path}. Free some space.")


class GuardError(RunError):
    """Something the experiment promises silently did not happen."""


class PrivacyError(GuardError):
    """Private data were used in a way that nothing accounts for; one client is enough to stop the run."""
