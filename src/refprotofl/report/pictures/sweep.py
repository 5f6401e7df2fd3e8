"""Accuracy by the value of one key, with how far each mean may be off."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.core.units import counted
from refprotofl.report.pictures.style import BLUE, INK, limits, open_figure, plain_axes
from refprotofl.report.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 10  # the largest value over the smallest, from which an axis is logarithmic


def draw_sweep(points: Mapping[float, Estimate], path: Path, key: str, protocol: str, title: str = "") -> str:
    """Draw accuracies by the key's value into a .png, .pdf or .svg; gives a sentence on what was drawn."""
    places = sorted(points)
    means = [100 * points[place].mean for place in places]
    widths = [100 * (points[place].half_width or 0) for place in places]
    with open_figure(path, 4.6, 3.4) as figure:
        axes = figure.subplots()
        axes.errorbar(
            places, means, widths, color=BLUE, linewidth=1.6, elinewidth=0.8, marker="o", markersize=4, capsize=3
        )
        _scale(axes, places)
        ends = [mean + sign * width for mean, width in zip(means, widths, strict=True) for sign in (-1, 1)]
        axes.set_ylim(*limits(ends))
        plain_axes(axes, key, f"accuracy, {protocol} (%)")
        figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=10)
    return f"{path}: {key} at {counted(len(points), 'value')}, mean over seeds, bars are 95 % intervals."


def _scale(axes: "Axes", places: list[float]) -> None:
    """Logarithmic for values that are far apart, with room for 0 where it is one; ticks are the values themselves."""
    above = [place for place in places if place > 0]
    if above and max(above) / min(above) >= WIDE:
        if above == places:
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=min(above))
            axes.set_xlim(left=-0.2 * min(above))
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)
