"""A page in less: what is left out, step by step, until a file of it can be mailed.

The page and its figures as files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from refprotofl.core.errors import InputError
from refprotofl.records.atomic_files import make_folders, write_whole
from refprotofl.report.page.curves import thinned
from refprotofl.report.page.elements import Cell, Figure, Page, Part
from refprotofl.report.page.html import MOST_BYTES, as_file

FEW_POINTS = 12  # of a curve
FEW_ROWS = 1500  # of any figure
FIRST_CURVES = ("accuracy-by-round", "accuracy-by-both")


def shrink_to_fit(page: Page) -> Iterator[Page]:
    """The page itself, then with less and less in it and a note that says so; tables are left as they are."""
    yield page
    steps: list[tuple[str, Callable[[Figure], Figure | None]]] = [
        (f"curves have {FEW_POINTS} points at most", _with_few_points),
        (f"no chart has more than its first {FEW_ROWS:,} numbers", _with_few_rows),
        ("curves are by round and by all bytes alone", lambda one: one if _is_first(one) else None),
        ("curves are left out", lambda one: None if one.kind == "lines" else one),
    ]
    for number, (_, change) in enumerate(steps, 1):
        sections = [replace(one, parts=_changed(one.parts, change)) for one in page.sections]
        page = replace(page, sections=[one for one in sections if one.parts])
        said = "; ".join(words for words, _ in steps[:number])
        yield replace(page, notes=[*page.notes, f"To stay small enough to be mailed, {said}."])


def _changed(parts: Sequence[Part], change: Callable[[Figure], Figure | None]) -> list[Part]:
    changed = [change(part) if isinstance(part, Figure) else part for part in parts]
    return [part for part in changed if part is not None]


def _with_few_points(figure: Figure) -> Figure:
    if figure.kind != "lines":
        return figure
    curves: dict[object, list[Sequence[Cell]]] = {}
    for name, row in zip(figure.values(figure.colour or figure.x), figure.rows, strict=True):
        curves.setdefault(name if figure.colour else "", []).append(row)
    return replace(figure, rows=[row for curve in curves.values() for row in thinned(curve, FEW_POINTS)])


def _with_few_rows(figure: Figure) -> Figure:
    return replace(figure, rows=figure.rows[:FEW_ROWS])


def _is_first(figure: Figure) -> bool:
    return figure.kind != "lines" or figure.name.startswith(FIRST_CURVES)


def write_page(page: Page, path: Path) -> None:
    """Whole or not at all, with as much in it as can be mailed."""
    data = b""
    for one in shrink_to_fit(page):
        data = as_file(one).encode()
        if len(data) <= MOST_BYTES:
            break
    else:
        raise InputError(
            f"The page would have {len(data) / 1e6:.1f} MB even without curves, more than 3: name fewer runs."
        )
    make_folders(path.absolute().parent)
    write_whole(path, data)
