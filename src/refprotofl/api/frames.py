"""Results as data frames, and as HTML for notebooks."""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from refprotofl.core import InputError

if TYPE_CHECKING:
    import pandas

Record = Mapping[str, object]


def as_frame(records: Sequence[Record]) -> "pandas.DataFrame":
    """Return a data frame with a row for each record."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise InputError("to_frame needs the package pandas: install it with pip install pandas.") from None
    return pandas.DataFrame.from_records([dict(one) for one in records])


def as_html(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> str:
    """Return a table for a notebook; all texts are escaped."""
    head = "".join(f"<th>{_cell(one)}</th>" for one in headings)
    body = "".join("<tr>" + "".join(f"<td>{_cell(one)}</td>" for one in row) + "</tr>" for row in rows)
    below = "".join(f"<div><small>{_cell(note)}</small></div>" for note in notes)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><strong>{_cell(title)}</strong>{table}{below}</div>"


def _cell(value: Any) -> str:
    return html.escape(str(value))


WIDTH, HEIGHT = 260, 70  # of a curve, in pixels


def as_curve(points: Sequence[tuple[float, float]], label: str) -> str:
    """Return a small line chart of shares by round as SVG."""
    if len(points) < 2:
        return ""
    first, last = points[0][0], points[-1][0]
    low, high = min(y for _, y in points), max(y for _, y in points)
    across, up = (last - first) or 1, (high - low) or 1
    line = " ".join(
        f"{4 + (WIDTH - 8) * (x - first) / across:.1f},{HEIGHT - 4 - (HEIGHT - 8) * (y - low) / up:.1f}"
        for x, y in points
    )
    shown = f"{label}: {100 * points[0][1]:.1f} % to {100 * points[-1][1]:.1f} %, rounds {first:g} to {last:g}"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{_cell(shown)}"><title>{_cell(shown)}</title>'
        f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="2"/></svg>'
    )
