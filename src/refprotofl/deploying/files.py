"""Files that have their mode from the first moment, and replace nothing."""

import os
from pathlib import Path

from refprotofl.errors import MachineError


def write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        path.chmod(mode)  # whatever the umask says
    except OSError as problem:
        raise MachineError(f"Cannot write {path}: {problem.strerror}.") from None
