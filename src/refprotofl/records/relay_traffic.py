"""wire.json: bytes between nodes and server as a relay counted them, in a run folder."""

import json
from pathlib import Path

from pydantic import NonNegativeFloat, NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core import DataError
from refprotofl.records.atomic_files import write_whole
from refprotofl.records.safe_io import check_file, open_file

FILE = "wire.json"  # in a run folder
LONGEST = 10_000  # bytes


class Crossed(TypedDict):
    """Bytes between nodes and server as a relay counted them, with TLS, HTTP and Flower's own messages."""

    up: NonNegativeInt  # sent by nodes
    down: NonNegativeInt
    connections: NonNegativeInt
    refused: NonNegativeInt
    flipped: NonNegativeInt  # bits that were flipped on purpose
    seconds: NonNegativeFloat


_CROSSED = TypeAdapter(Crossed)


def write_crossed(path: Path, crossed: Crossed) -> None:
    """Write the counts of a relay."""
    write_whole(path, (json.dumps(crossed) + "\n").encode())


def read_crossed(folder: Path) -> Crossed | None:
    """Return the relay's counts in a run folder; None where there are none."""
    path = folder / FILE
    if not check_file(path):
        return None
    try:
        with open_file(path) as file:
            return _CROSSED.validate_json(file.read(LONGEST), strict=True)
    except (OSError, ValidationError):
        raise DataError(f"{path} is not a file of refprotofl relay: copy its counts there again.") from None
