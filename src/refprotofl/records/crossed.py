"""What crossed between nodes and server as a relay counted it: TLS, HTTP and Flower's own messages are in it."""

import json
from pathlib import Path

from pydantic import NonNegativeFloat, NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.errors import DataError
from refprotofl.records.files import write_whole
from refprotofl.records.inside import check_file, open_file

FILE = "wire.json"  # in a run folder
LONGEST = 10_000  # bytes of such a file


class Crossed(TypedDict):
    """`up` is what nodes send, in bytes."""

    up: NonNegativeInt
    down: NonNegativeInt
    connections: NonNegativeInt
    refused: NonNegativeInt
    flipped: NonNegativeInt  # bits that were turned over on purpose
    seconds: NonNegativeFloat


_CROSSED = TypeAdapter(Crossed)


def write_crossed(path: Path, crossed: Crossed) -> None:
    write_whole(path, (json.dumps(crossed) + "\n").encode())


def read_crossed(folder: Path) -> Crossed | None:
    """Of a run folder; None where no relay has counted."""
    path = folder / FILE
    if not check_file(path):
        return None
    try:
        with open_file(path) as file:
            return _CROSSED.validate_json(file.read(LONGEST), strict=True)
    except (OSError, ValidationError):
        raise DataError(f"{path} is not what refprotofl relay writes: put its counts there again.") from None
