"""The page as one HTML file: what it shows is data within it, which no browser takes for markup or for code."""

import base64
import hashlib
import json
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import Any

from refprotofl.report.page.elements import MOST_ROWS, Figure, Page, Part, Section, Table, shown, words
from refprotofl.report.page.vega import spec_of

MOST_BYTES = 3_000_000  # of a file that can be mailed
WIDE = {"frontier", "bubbles"}


def plain(page: Page) -> dict[str, Any]:
    """The page as JSON."""
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
    """Cards stand two in a row; one that has no other beside it gets all of the row."""
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
        told = {"title": words(part.title), "headings": [words(one) for one in part.headings], "rows": rows}
        return {"kind": "table", "wide": True, **told, "notes": [words(note) for note in part.notes], "left": part.left}
    pairs = [[words(name), words(value)] for name, value in part.pairs.items()]
    return {"kind": "facts", "wide": part.folded, "title": words(part.title), "pairs": pairs, "folded": part.folded}


def _short(value: object) -> object:
    """Six digits say all that a chart can show."""
    safe = shown(value)
    return float(f"{safe:.6g}") if isinstance(safe, float) else safe


def as_file(page: Page) -> str:
    """A file that needs nothing else, with hashes of the scripts that it may run."""
    style, charts, script = (asset(name) for name in ("page.css", "charts.js", "page.js"))
    scripts = " ".join(f"'sha256-{_hash(code)}'" for code in (charts, script))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'sha256-{_hash(_lined(style))}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
    return _fill(page, live=False, policy=meta, mark="")


def as_live(page: Page, nonce: str) -> str:
    """The same page, which follows a run; its policy is the server's to send, with this nonce."""
    return _fill(page, live=True, policy="", mark=f' nonce="{escape(nonce)}"')


def live_policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _fill(page: Page, *, live: bool, policy: str, mark: str) -> str:
    told = plain(page)
    return Template(asset("page.html")).substitute(
        live="yes" if live else "no",
        policy=policy,
        title=escape(told["title"]),
        style=asset("page.css").strip(),
        style_mark=mark,
        charts=asset("charts.js"),
        charts_mark=mark,
        script=asset("page.js"),
        script_mark=mark,
        data=embedded(told),
        footer=escape(f"refprotofl {version('refprotofl')}. Charts by Vega-Lite."),
    )


def embedded(value: object) -> str:
    """JSON within a script element: no sign in it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    return (files("refprotofl.report.page") / "assets" / name).read_text(encoding="utf-8")


def _lined(style: str) -> str:
    """The style element's contents, as the template sets them."""
    return f"\n{style.strip()}\n"


def _hash(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
