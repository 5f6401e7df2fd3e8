"""How much of a folder that somebody sent is read: enough for any run of ours, and no more."""

from pathlib import Path

from refprotofl.errors import DataError
from refprotofl.records.inside import check_file

MEGABYTE = 1_000_000
LONGEST_LINE = 64 * MEGABYTE  # a round of some 10,000 clients has about 10
_MOST = {"experiment.json": 64, "summary.json": 256, "checkpoint/manifest.json": 1024}  # megabytes


def check_sizes(folder: Path) -> None:
    """DataError where a file is larger than any of ours, before it is read."""
    for name, most in _MOST.items():
        path = folder / name
        if check_file(path) and path.lstat().st_size > most * MEGABYTE:
            raise DataError(f"{path} is larger than {most} MB: it is none of ours.")
