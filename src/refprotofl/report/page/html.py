"""The page as one HTML file. Its contents are embedded as JSON, which no browser takes for markup or code."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from refprotofl.core import InputError
from refprotofl.records import make_folders, write_whole
from refprotofl.report.page.curves import thinned
from refprotofl.report.page.elements import MOST_ROWS, Cell, Figure, Page, Part, Section, Table, shown, words
from refprotofl.report.page.vega import spec_of

MOST_BYTES = 3_000_000  # of a file that can be mailed
WIDE = {"frontier", "bubbles"}


def plain(page: Page) -> dict[str, Any]:
    """Return the page as JSON values."""
    return {
        "title": words(page.title),
        "subtitle": words(page.subtitle),
        "tiles": [{name: words(value) for name, value in vars(tile).items()} for tile in page.tiles],
        "notes": [words(note) for note in page.notes],
        "progress": None if page.progress is None else dict(page.progress),
        "sections": [_section(section) for section in page.sections],
    }


def _section(section: Section) -> dict[str, Any]:
    parts = [_part(part) for part in section.parts]
    _widen_single(parts)
    short = section.title if section.short is None else section.short
    return {"name": section.name, "title": words(section.title), "short": words(short), "parts": parts}


def _widen_single(parts: list[dict[str, Any]]) -> None:
    """Widen each card that would be alone in its row of two."""
    alone: dict[str, Any] | None = None
    for part in [*parts, {"wide": True}]:
        if part["wide"]:
            if alone is not None:
                alone["wide"] = True
            alone = None
        else:
            alone = part if alone is None else None


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Figure):
        return {
            "kind": "figure",
            "name": part.name,
            "title": words(part.title),
            "caption": words(part.caption),
            "wide": part.kind in WIDE,
            "columns": [vars(column) for column in part.columns],
            "rows": [[_short(value) for value in row] for row in part.rows[:MOST_ROWS]],
            "spec": spec_of(part),
        }
    if isinstance(part, Table):
        rows = [[words(value) for value in row] for row in part.rows]
        heads = {"title": words(part.title), "headings": [words(one) for one in part.headings], "rows": rows}
        return {
            "kind": "table",
            "wide": True,
            **heads,
            "notes": [words(note) for note in part.notes],
            "left": part.left,
        }
    pairs = [[words(name), words(value)] for name, value in part.pairs.items()]
    return {"kind": "facts", "wide": part.folded, "title": words(part.title), "pairs": pairs, "folded": part.folded}


def _short(value: object) -> object:
    """Round a number to six digits, more than a chart can show."""
    safe = shown(value)
    return float(f"{safe:.6g}") if isinstance(safe, float) else safe


def as_file(page: Page) -> str:
    """Return a self-contained file with the hashes of the scripts that it may run."""
    style, charts, script = (asset(name) for name in ("page.css", "charts.js", "page.js"))
    scripts = " ".join(f"'sha256-{_hash(code)}'" for code in (charts, script))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'sha256-{_hash(_lined(style))}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
    return _fill(page, live=False, policy=meta, mark="")


def as_live(page: Page, nonce: str) -> str:
    """Return the live page; the server sends its policy, with this nonce."""
    return _fill(page, live=True, policy="", mark=f' nonce="{escape(nonce)}"')


def live_policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _fill(page: Page, *, live: bool, policy: str, mark: str) -> str:
    data = plain(page)
    return Template(asset("page.html")).substitute(
        live="yes" if live else "no",
        policy=policy,
        title=escape(data["title"]),
        style=asset("page.css").strip(),
        style_mark=mark,
        charts=asset("charts.js"),
        charts_mark=mark,
        script=asset("page.js"),
        script_mark=mark,
        data=embedded(data),
        footer=escape(f"refprotofl {version('refprotofl')}. Charts by Vega-Lite."),
    )


def embedded(value: object) -> str:
    """Return JSON for a script element: no character in it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    return (files("refprotofl.report.page") / "assets" / name).read_text(encoding="utf-8")


def _lined(style: str) -> str:
    """Return the style element's contents as the template has them."""
    return f"\n{style.strip()}\n"


def _hash(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


FEW_POINTS = 12  # of a curve
FEW_ROWS = 1500  # of any figure
FIRST_CURVES = ("accuracy-by-round", "accuracy-by-both")


def shrink_to_fit(page: Page) -> Iterator[Page]:
    """Yield the page, then smaller versions of it with a note on what is left out; tables are kept."""
    yield page
    steps: list[tuple[str, Callable[[Figure], Figure | None]]] = [
        (f"curves have at most {FEW_POINTS} points", _with_few_points),
        (f"charts have at most {FEW_ROWS:,} points", _with_few_rows),
        ("only curves by round and by total bytes are kept", lambda one: one if _is_first(one) else None),
        ("curves are left out", lambda one: None if one.kind == "lines" else one),
    ]
    for number, (_, change) in enumerate(steps, 1):
        sections = [replace(one, parts=_changed(one.parts, change)) for one in page.sections]
        page = replace(page, sections=[one for one in sections if one.parts])
        said = "; ".join(words for words, _ in steps[:number])
        yield replace(page, notes=[*page.notes, f"To keep the file small, {said}."])


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


def page_path(places: Sequence[Path], asked: Path | None) -> Path:
    """Return the path of a page: the one asked for, else report.html in the folder, or here for several."""
    path = asked or (places[0] / "report.html" if len(places) == 1 and places[0].is_dir() else Path("report.html"))
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {path}: the report is an HTML page. Name a .html file.")
    return path


def write_page(page: Page, path: Path) -> None:
    """Write the page atomically, shrunk to the size limit if needed."""
    data = b""
    for one in shrink_to_fit(page):
        data = as_file(one).encode()
        if len(data) <= MOST_BYTES:
            break
    else:
        raise InputError(
            f"The page takes {len(data) / 1e6:.1f} MB even without curves; the limit is "
            f"{MOST_BYTES / 1e6:g} MB. Name fewer runs."
        )
    make_folders(path.absolute().parent)
    write_whole(path, data)
