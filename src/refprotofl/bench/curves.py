"""The picture of `bench scale`: both curves over the number of clients."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.bench.measuring import Row
from refprotofl.report.pictures.style import BLUE, GRID, INK, open_figure, remove_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The axis' label, and what is drawn: the key, its name, its colour.
CURVES = (
    ("seconds per round", (("round_s", "wall clock", BLUE), ("round_cpu_s", "CPU", INK))),
    ("MB", (("memory_mb", "private memory", BLUE),)),
)


def draw_scale(rows: Sequence[Row], path: Path, title: str) -> str:
    """Draws the rows into a .png, .pdf or .svg; gives a sentence on what was drawn."""
    with open_figure(path, 8, 3.2) as figure:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        for axes, (label, curves) in zip(figure.subplots(1, len(CURVES)), CURVES, strict=True):
            for key, name, colour in curves:
                known = [row for row in rows if row[key] is not None]
                axes.plot(
                    [row["clients"] for row in known], [row[key] for row in known], "o-", color=colour, label=name
                )
            _finish(axes, label)
    return f"{path}: {len(rows)} points."


def _finish(axes: "Axes", label: str) -> None:
    axes.set_xlabel("clients")
    axes.set_ylabel(label)
    _, right, _, top = axes.axis()
    axes.set_xlim(0, right)
    axes.set_ylim(0, 1.2 * top)
    axes.grid(color=GRID, linewidth=0.8)
    remove_frame(axes)
    axes.legend(frameon=False, loc="lower right")
