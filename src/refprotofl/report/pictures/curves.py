"""Accuracy by round and by bytes: a line for each method, and how far its mean may be off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.core.units import counted
from refprotofl.report.pictures.style import INK, limits, open_figure, plain_axes, shortened
from refprotofl.report.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008), without the yellow, which is too pale for a line.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", ":", "-.")  # one for each seven lines
MEGABYTE = 1_000_000
NEGLIGIBLE = 1e-4  # share of the most bytes below which a method has no place on their axis


@dataclass(frozen=True)
class Stop:
    """A point of a curve."""

    round: int
    bytes: float  # of all clients until then, up, down and once; mean over seeds
    accuracy: Estimate


def draw_curves(curves: Mapping[str, Sequence[Stop]], path: Path, protocol: str, title: str = "") -> str:
    """Draw curves by their names into a .png, .pdf or .svg; gives a sentence on what was drawn."""
    most = max(stops[-1].bytes for stops in curves.values())
    with open_figure(path, 9.0, 4.0) as figure:
        by_round, by_bytes = figure.subplots(1, 2, sharey=True)
        for place, stops in enumerate(curves.values()):
            looks = (COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)])
            _draw(by_round, [stop.round for stop in stops], stops, *looks)
            if stops[-1].bytes > NEGLIGIBLE * most:
                _draw(by_bytes, [stop.bytes / MEGABYTE for stop in stops], stops, *looks)
        by_bytes.set_xscale("log")
        by_bytes.xaxis.set_major_formatter(lambda place, _: f"{place:g}")
        by_bytes.xaxis.set_minor_formatter(lambda place, _: "")
        # By the means: the interval of two seeds may be wider than all there is to see.
        by_round.set_ylim(*limits([100 * stop.accuracy.mean for stops in curves.values() for stop in stops]))
        by_round.locator_params(axis="x", integer=True)
        plain_axes(by_round, "round", f"accuracy, {protocol} (%)")
        plain_axes(by_bytes, "megabytes of all clients, both ways and once")
        figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11)
        names = [shortened(name, 30) for name in curves]
        figure.legend(by_round.get_lines(), names, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return f"{path}: {counted(len(curves), 'method')}, mean over seeds, bands are 95 % intervals."


def _draw(axes: "Axes", places: Sequence[float], stops: Sequence[Stop], colour: str, dashes: str) -> None:
    means = [100 * stop.accuracy.mean for stop in stops]
    widths = [100 * (stop.accuracy.half_width or 0) for stop in stops]
    axes.plot(places, means, color=colour, linestyle=dashes, linewidth=1.6, marker="o", markersize=3)
    low, high = ([mean + sign * width for mean, width in zip(means, widths, strict=True)] for sign in (-1, 1))
    axes.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
