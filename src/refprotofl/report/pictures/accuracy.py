"""Pictures of accuracies over seeds: curves by round and bytes, bars, one key's values, epsilon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.core import InputError, counted, three_figures
from refprotofl.report.comparison import OverSeeds
from refprotofl.report.pictures.style import (
    BLUE,
    COLOURS,
    DASHES,
    GRID,
    INK,
    limits,
    open_figure,
    plain_axes,
    remove_frame,
    shortened,
)
from refprotofl.report.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEGABYTE = 1_000_000
NEGLIGIBLE = 1e-4  # share of the largest byte count below which a method is not drawn


@dataclass(frozen=True)
class Stop:
    """A point of a curve."""

    round: int
    bytes: float  # cumulative total of all clients; mean over seeds
    accuracy: Estimate


def draw_curves(curves: Mapping[str, Sequence[Stop]], path: Path, protocol: str, title: str = "") -> str:
    """Draw curves by their names into a .png, .pdf or .svg; return a sentence about it."""
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
        silent = [shortened(name) for name, stops in curves.items() if stops[-1].bytes <= NEGLIGIBLE * most]
        apart = f"\n(without {', '.join(silent)}: almost no traffic)" if silent else ""
        plain_axes(by_bytes, f"total megabytes of all clients{apart}")
        figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11)
        names = [shortened(name, 30) for name in curves]
        figure.legend(by_round.get_lines(), names, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return f"{path}: {counted(len(curves), 'method')}, mean over seeds with 95 % confidence intervals."


def _draw(axes: "Axes", places: Sequence[float], stops: Sequence[Stop], colour: str, dashes: str) -> None:
    means = [100 * stop.accuracy.mean for stop in stops]
    widths = [100 * (stop.accuracy.half_width or 0) for stop in stops]
    axes.plot(places, means, color=colour, linestyle=dashes, linewidth=1.6, marker="o", markersize=3)
    low, high = ([mean + sign * width for mean, width in zip(means, widths, strict=True)] for sign in (-1, 1))
    axes.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)


def draw_bars(
    groups: Sequence[str], bars: Mapping[str, Sequence[Estimate | None]], path: Path, what: str, title: str = ""
) -> str:
    """Draw shares in percent into a .png, .pdf or .svg; one that is None has no bar. Return a sentence about it."""
    thick = 0.8 / len(bars)
    with open_figure(path, max(5.0, 1.1 * len(groups) + 1.5), 4.0) as figure:
        axes = figure.subplots()
        for place, (name, shares) in enumerate(bars.items()):
            spots = [group - 0.4 + (place + 0.5) * thick for group in range(len(groups))]
            means = [100 * one.mean if one else 0.0 for one in shares]
            widths = [100 * (one.half_width or 0.0) if one else 0.0 for one in shares]
            low = [min(width, mean) for width, mean in zip(widths, means, strict=True)]  # no share is below 0
            colour = COLOURS[place % len(COLOURS)]
            axes.bar(spots, means, 0.9 * thick, color=colour, label=shortened(name, 30))
            axes.errorbar(spots, means, (low, widths), fmt="none", ecolor=INK, elinewidth=0.8)
        axes.set_xticks(range(len(groups)), [shortened(name) for name in groups])
        axes.set_ylim(0, 100)
        axes.set_ylabel(what)
        axes.set_axisbelow(True)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        remove_frame(axes)
        figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11)
        figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return f"{path}: {counted(len(groups), 'group')}, mean over seeds with 95 % confidence intervals."


WIDE = 10  # the largest value over the smallest, that makes an axis logarithmic


def draw_sweep(points: Mapping[float, Estimate], path: Path, key: str, protocol: str, title: str = "") -> str:
    """Draw accuracies by the key's value into a .png, .pdf or .svg; return a sentence about it."""
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
    return f"{path}: {key} at {counted(len(points), 'value')}, mean over seeds with 95 % confidence intervals."


def _scale(axes: "Axes", places: list[float]) -> None:
    """Scale the x axis: logarithmic for values that are far apart, symlog if 0 is among them; ticks are the values."""
    above = [place for place in places if place > 0]
    if above and max(above) / min(above) >= WIDE:
        if above == places:
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=min(above))
            axes.set_xlim(left=-0.2 * min(above))
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)


def draw_epsilons(rows: Sequence[OverSeeds], path: Path, protocol: str, title: str = "") -> str:
    """Draw rows of a comparison into a .png, .pdf or .svg; return a sentence about it."""
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
        owner = " (largest of all clients)" if unit == "sample" else ""
        plain_axes(axes, f"epsilon per {unit}{owner}", f"accuracy, {protocol} (%)")
        figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=10)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return f"{path}: {protocol} by epsilon per {unit}."


def _epsilon(row: OverSeeds) -> float | None:
    return None if row.privacy is None else row.privacy["epsilon"]
