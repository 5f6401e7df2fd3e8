"""The page and its figures as files."""

from pathlib import Path

from refprotofl.errors import InputError
from refprotofl.records.files import make_folders, write_whole
from refprotofl.report.page.html import MOST_BYTES, as_file
from refprotofl.report.page.lessening import lessened
from refprotofl.report.page.parts import Page


def write_page(page: Page, path: Path) -> None:
    """Whole or not at all, with as much in it as can be mailed."""
    data = b""
    for one in lessened(page):
        data = as_file(one).encode()
        if len(data) <= MOST_BYTES:
            break
    else:
        raise InputError(
            f"The page would have {len(data) / 1e6:.1f} MB even without curves, more than 3: name fewer runs."
        )
    make_folders(path.absolute().parent)
    write_whole(path, data)
