"""The page and its figures as files."""

from pathlib import Path

from refprotofl.errors import InputError
from refprotofl.records.files import make_folders, write_whole
from refprotofl.report.page.html import MOST_BYTES, as_file
from refprotofl.report.page.parts import Page


def write_page(page: Page, path: Path) -> None:
    """Whole or not at all; a page that cannot be mailed any more is refused."""
    data = as_file(page).encode()
    if len(data) > MOST_BYTES:
        raise InputError(f"The page would have {len(data) / 1e6:.1f} MB, more than 3: name fewer runs.")
    make_folders(path.absolute().parent)
    write_whole(path, data)
