"""The page's figures for papers, drawn by matplotlib as .png, .pdf or .svg."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refprotofl.core import InputError, for_file_name
from refprotofl.report.page.elements import Cell, Figure, Form, words
from refprotofl.report.pictures.embedding import COLOURS as CLASS_COLOURS
from refprotofl.report.pictures.labels import Named, name_points
from refprotofl.report.pictures.style import BLUE, COLOURS, DASHES, GRID, INK, open_figure, plain_axes, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".pdf", ".svg")
MARKERS = "os^DvP*X<>"
NARROW = 5.0  # inches, below which texts are smaller
MOST_NAMED = 40  # tick labels on an axis


# Widths of a figure in inches: of a column, and of the whole text.
WIDTHS = {"ieee": 3.5, "ieee-text": 7.16, "icml": 3.25, "icml-text": 6.75, "neurips": 5.5, "acm": 3.33, "acm-text": 7.0}


def read_width(text: str) -> float:
    """Return inches: those of a paper's column, or a number."""
    try:
        width = WIDTHS.get(text) or float(text)
    except ValueError:
        width = 0.0
    if not 1 <= width <= 20:
        raise InputError(f"--width {text}: allowed are {', '.join(WIDTHS)}, or 1 to 20 inches.")
    return width


def draw_figures(
    figures: Sequence[Figure], folder: Path, suffixes: Sequence[str] = SUFFIXES, width: float | None = None
) -> list[Path]:
    """Draw figures in every format, of their own width or of this many inches, and return the paths."""
    written = []
    for figure in figures:
        for suffix in suffixes:
            path = folder / f"{for_file_name(figure.name)}{suffix}"
            draw_figure(figure, path, width)
            written.append(path)
    return written


def draw_figure(figure: Figure, path: Path, width: float | None = None) -> None:
    tall = figure.kind in ("heat", "bubbles") or figure.label is not None
    own = (7.6 if figure.kind == "frontier" else 5.6, 4.6 if tall else 3.6)
    wide, high = own if width is None else (width, max(2.2, width * own[1] / own[0]))
    with open_figure(path, wide, high, small=wide < NARROW) as drawn:
        axes = drawn.subplots()
        _DRAW[figure.kind](axes, figure)
        if figure.kind not in ("heat", "bubbles"):
            plain_axes(axes, figure.column(figure.x).title, figure.column(figure.y).title)
            _format(axes.yaxis, figure.column(figure.y).form)
        if figure.kind in ("lines", "dots", "frontier"):
            _format(axes.xaxis, figure.column(figure.x).form)
        if width is None:  # a paper has a caption instead
            drawn.suptitle(figure.title, x=0.01, ha="left", color=INK, fontsize=10)
        handles, names = axes.get_legend_handles_labels()
        if len(names) > 1:
            columns = 4 if wide >= NARROW else 2
            drawn.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
        if figure.kind == "frontier":
            name_points(drawn, axes, _frontier_names(figure))


def _series(figure: Figure) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in figure.records():
        found.setdefault(str(record[figure.colour]) if figure.colour else "", []).append(record)
    return found


def _lines(axes: "Axes", figure: Figure) -> None:
    for place, (name, records) in enumerate(_series(figure).items()):
        x, y = [one[figure.x] for one in records], [one[figure.y] for one in records]
        colour, dashes = COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)]
        marker = MARKERS[place % len(MARKERS)]
        axes.plot(
            x, y, color=colour, linestyle=dashes, linewidth=1.5, marker=marker, markersize=3, label=shortened(name, 30)
        )
        if figure.band:
            low, high = ([one[end] for one in records] for end in figure.band)
            axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    if figure.log:
        axes.set_xscale("log")
    if figure.zero:
        axes.set_ylim(bottom=0)


def _ranked(figure: Figure) -> list[dict[str, Any]]:
    return sorted(figure.records(), key=lambda one: one[figure.size or figure.x] or 0)


def _bars(axes: "Axes", figure: Figure) -> None:
    records = _ranked(figure)
    axes.bar(range(len(records)), [one[figure.y] for one in records], color=BLUE)
    _names(axes.xaxis, [one[figure.x] for one in records])


def _stacked(axes: "Axes", figure: Figure) -> None:
    rounds = sorted({one[figure.x] for one in figure.records()})
    place = {number: at for at, number in enumerate(rounds)}
    bottoms = np.zeros(len(rounds))
    names = list(
        dict.fromkeys((one[figure.colour or ""], one[figure.size] if figure.size else 0) for one in figure.records())
    )
    for at, (name, _) in enumerate(sorted(names, key=lambda pair: pair[1]) if figure.size else names):
        heights = np.zeros(len(rounds))
        for one in figure.records():
            if one[figure.colour or ""] == name:
                heights[place[one[figure.x]]] = one[figure.y] or 0
        axes.bar(
            range(len(rounds)),
            heights,
            bottom=bottoms,
            color=CLASS_COLOURS[at % len(CLASS_COLOURS)],
            label=shortened(str(name), 30),
        )
        bottoms += heights
    step = max(1, len(rounds) // 10)
    axes.set_xticks(range(0, len(rounds), step), [str(one) for one in rounds[::step]])


def _heat(axes: "Axes", figure: Figure) -> None:
    shades = np.zeros((len(figure.upwards), len(figure.across)))
    for one in figure.records():
        shades[figure.upwards.index(one[figure.y]), figure.across.index(one[figure.x])] = one[figure.colour or ""] or 0
    axes.imshow(shades, cmap="Blues", vmin=0, aspect="auto")
    axes.set_xlabel(figure.column(figure.x).title)
    axes.set_ylabel(figure.column(figure.y).title)
    _names(axes.xaxis, figure.across)
    _names(axes.yaxis, figure.upwards, turned=False)
    axes.figure.colorbar(axes.images[0], ax=axes, label=figure.column(figure.colour or "").title, fraction=0.045)


def _bubbles(axes: "Axes", figure: Figure) -> None:
    sizes = np.array([one[figure.size or ""] or 0 for one in figure.records()], float)
    scale = 260 / max(1.0, sizes.max(initial=1)) * min(1.0, 14 / max(1, len(figure.across)))
    places = [(figure.across.index(one[figure.x]), figure.upwards.index(one[figure.y])) for one in figure.records()]
    x, y = zip(*places, strict=True) if places else ((), ())
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.scatter(x, y, s=sizes * scale, color=BLUE, alpha=0.85, linewidths=0)
    axes.set_xlabel(figure.column(figure.x).title)
    axes.set_ylabel(figure.column(figure.y).title)
    _names(axes.xaxis, figure.across)
    _names(axes.yaxis, figure.upwards, turned=False)
    axes.invert_yaxis()


def _dots(axes: "Axes", figure: Figure) -> None:
    for place, (name, records) in enumerate(_series(figure).items()):
        colour = CLASS_COLOURS[place % len(CLASS_COLOURS)]
        for kind, marker, size in (("anchor", "D", 60), ("client", "o", 14), (None, "o", 14)):
            own = [one for one in records if (one.get(figure.label) if figure.label else None) == kind]
            if own:
                x, y = [one[figure.x] for one in own], [one[figure.y] for one in own]
                label = shortened(name, 20) if kind != "client" else None
                axes.scatter(x, y, s=size, color=colour, marker=marker, linewidths=0, alpha=0.8, label=label)


def _frontier(axes: "Axes", figure: Figure) -> None:
    low, high = figure.band or (figure.y, figure.y)
    for place, one in enumerate(figure.records()):
        x, y = float(one[figure.x] or 0), float(one[figure.y] or 0)
        off = [[y - float(one[low] or 0)], [float(one[high] or 0) - y]]
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        axes.errorbar([x], [y], off, color=colour, marker=marker, markersize=6, linewidth=1, capsize=2, linestyle="")
    front = [one for one in figure.records() if one["front"] == "yes"]
    axes.step(
        [one[figure.x] for one in front],
        [one[figure.y] for one in front],
        where="post",
        color="#888888",
        linestyle="--",
        linewidth=1,
    )
    axes.set_xscale("log")
    axes.margins(x=0.12, y=0.1)
    for name, level in figure.levels:
        axes.axhline(level, color="#888888", linestyle=":", linewidth=1)
        axes.annotate(
            f"{shortened(name, 30)}, almost no traffic",
            (0.005, level),
            (0, 2),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            fontsize=7,
            color="#666666",
        )


def _frontier_names(figure: Figure) -> list[Named]:
    low, high = figure.band or (figure.y, figure.y)
    points = []
    for one in figure.records():
        x, y, begin, end = (float(one[key] or 0) for key in (figure.x, figure.y, low, high))
        name = shortened(words(one[figure.label or ""]), 40)
        points.append(Named(x, y, begin, end, name, bold=one["front"] == "yes"))
    return points


_DRAW: dict[str, Callable[["Axes", Figure], None]] = {
    "lines": _lines,
    "bars": _bars,
    "stacked": _stacked,
    "heat": _heat,
    "bubbles": _bubbles,
    "dots": _dots,
    "frontier": _frontier,
}


def _names(axis: Any, names: Sequence[Cell], turned: bool = True) -> None:
    step = max(1, -(-len(names) // MOST_NAMED))
    shown = [shortened(str(name)) for name in names][::step]
    axis.set_ticks(range(0, len(names), step), shown, rotation=90 if turned and len(names) > 12 else 0, fontsize=7)


def _format(axis: Any, form: Form) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator, NullFormatter, PercentFormatter

    if form == "share":
        axis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    elif form == "bytes":
        axis.set_major_formatter(EngFormatter(unit="B"))
        axis.set_minor_formatter(NullFormatter())
    elif form == "whole":
        axis.set_major_locator(MaxNLocator(integer=True))
