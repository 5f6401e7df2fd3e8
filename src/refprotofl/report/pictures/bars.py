"""Groups of bars: a group for each row of a table, a bar for each of its columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from refprotofl.core.units import counted
from refprotofl.report.pictures.curves import COLOURS
from refprotofl.report.pictures.style import GRID, INK, open_figure, remove_frame, shortened
from refprotofl.report.statistics import Estimate


def draw_bars(
    groups: Sequence[str], bars: Mapping[str, Sequence[Estimate | None]], path: Path, what: str, title: str = ""
) -> str:
    """Draw shares in percent into a .png, .pdf or .svg; one that is None has no bar. Gives a sentence on it."""
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
    return f"{path}: {counted(len(groups), 'group')}, mean over seeds, whiskers are 95 % intervals."
