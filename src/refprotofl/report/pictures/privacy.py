"""Accuracy by epsilon with 95 % intervals over seeds: a line for each method, and where that is without noise."""

from collections.abc import Sequence
from pathlib import Path

from refprotofl.core.errors import InputError
from refprotofl.core.units import three_figures
from refprotofl.report.comparison import OverSeeds
from refprotofl.report.pictures.curves import COLOURS
from refprotofl.report.pictures.style import INK, limits, open_figure, plain_axes, shortened


def draw_epsilons(rows: Sequence[OverSeeds], path: Path, protocol: str, title: str = "") -> str:
    """Draw rows of a comparison into a .png, .pdf or .svg; gives a sentence on what was drawn."""
    known = [row for row in rows if protocol in row.accuracy]
    units = {row.privacy["unit"] for row in known if row.privacy is not None and row.privacy["epsilon"] is not None}
    if len(units) != 1:
        raise InputError("A figure of epsilon needs rows with the same [privacy] unit and with noise above 0.")
    (unit,) = units
    methods = list(dict.fromkeys(row.method for row in known))
    with open_figure(path, 6.0, 4.0) as figure:
        axes = figure.subplots()
        for method, colour in zip(methods, COLOURS, strict=False):
            own = [row for row in known if row.method == method]
            points = sorted(
                (epsilon, 100 * row.accuracy[protocol].mean, 100 * (row.accuracy[protocol].half_width or 0.0))
                for row in own
                if (epsilon := _epsilon(row))
            )
            if points:
                x, y, ends = zip(*points, strict=True)
                axes.errorbar(x, y, yerr=ends, color=colour, marker="o", capsize=3, label=shortened(method, 30))
            for row in own:
                if row.privacy is None:
                    without = f"{shortened(method, 30)}, without noise"
                    axes.axhline(100 * row.accuracy[protocol].mean, color=colour, linestyle="--", label=without)
        axes.set_xscale("log")
        found = [row.accuracy[protocol] for row in known]
        axes.set_ylim(*limits([100 * (one.mean + end * (one.half_width or 0.0)) for one in found for end in (-1, 1)]))
        places = sorted({epsilon for row in known if (epsilon := _epsilon(row))})
        axes.set_xticks(places, list(map(three_figures, places)))
        axes.set_xticks([], minor=True)
        whose = ", of the client with the largest" if unit == "sample" else ""
        plain_axes(axes, f"epsilon by {unit}{whose}", f"accuracy, {protocol} (%)")
        figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=10)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return f"{path}: {protocol} by epsilon, unit {unit}."


def _epsilon(row: OverSeeds) -> float | None:
    return None if row.privacy is None else row.privacy["epsilon"]
