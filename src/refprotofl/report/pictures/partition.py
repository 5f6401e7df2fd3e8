"""The picture of a partition: clients across, classes up, as many samples as the bubble is large."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from refprotofl.basics.escapes import for_terminal
from refprotofl.basics.units import counted
from refprotofl.report.pictures.style import BLUE, GRID, INK, open_figure, remove_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BUBBLE_CLIENTS, MOST_BUBBLE_CLASSES = 50, 100
MOST_NAMED_CLIENTS = 50  # beyond, their names would overlap
FAINTEST = 1.5  # square points below which a bubble could not be seen


def draw_partition(
    counts: NDArray[np.int64],
    class_names: Sequence[str],
    path: Path,
    title: str = "",
    client_names: Sequence[str] = (),
) -> str:
    """Draw `counts` (clients, C) into a .png, .pdf or .svg; gives a sentence on what was drawn."""
    clients, classes = counts.shape
    as_bubbles = clients <= MOST_BUBBLE_CLIENTS and classes <= MOST_BUBBLE_CLASSES
    width, height = _figure_size(clients, classes, as_bubbles)
    with open_figure(path, width, height) as figure:
        axes = figure.add_subplot()
        (_draw_bubbles if as_bubbles else _draw_heat_map)(axes, counts)
        _label(axes, counts, class_names, as_bubbles)
        if client_names and clients <= MOST_NAMED_CLIENTS:
            axes.set_xticks(range(clients), [_shortened(name) for name in client_names], rotation=90)
        axes.set_title(_end_of(title, int(8 * width)), loc="left", color=INK, fontsize=11, pad=12)
    if as_bubbles:
        return f"{path}: {counted(clients, 'client')} by {counted(classes, 'class')}."
    return f"{path}: a heat map, because {clients} clients by {classes} classes are too many for bubbles."


def _figure_size(clients: int, classes: int, as_bubbles: bool) -> tuple[float, float]:
    if not as_bubbles:
        return 9.0, float(np.clip(0.16 * classes + 1.5, 3.5, 12))
    across, up = _cell(clients), _cell(classes)
    return 2.6 + across * clients, 1.3 + up * classes


def _cell(count: int) -> float:
    """Inches a client or class gets: ample for ten, tight for a hundred."""
    return 0.42 if count <= 12 else 0.30 if count <= 25 else 0.19


def _draw_bubbles(axes: "Axes", counts: NDArray[np.int64]) -> None:
    clients, classes = counts.shape
    cell_points = 72 * (_cell(clients) * _cell(classes)) ** 0.5
    most = max(1, int(counts.max()))
    area = (0.95 * cell_points) ** 2 / most  # of one sample, in square points
    x, y = np.nonzero(counts)
    axes.set_axisbelow(True)
    axes.grid(color=GRID, linewidth=0.8)
    sizes = np.maximum(area * counts[x, y], FAINTEST)
    axes.scatter(x, y, s=sizes, color=BLUE, alpha=0.85, linewidths=0, zorder=2)
    _explain_sizes(axes, most, area, cell_points)


def _explain_sizes(axes: "Axes", most: int, area: float, cell_points: float) -> None:
    shown = sorted({round_down(max(1, most // part)) for part in (1, 4, 16)})
    handles = [axes.scatter([], [], s=area * count, color=BLUE, alpha=0.85, linewidths=0) for count in shown]
    axes.legend(
        handles,
        [f"{count:,}" for count in shown],
        title="samples",
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        frameon=False,
        labelspacing=max(1.2, cell_points / 15),
        handletextpad=1.4,
        borderpad=1.4,
    )


def round_down(count: int) -> int:
    """A number with one digit that is not 0, for a legend."""
    digit = int(10 ** (len(str(count)) - 1))
    return count // digit * digit


def _draw_heat_map(axes: "Axes", counts: NDArray[np.int64]) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    # The root brings small shares out, and the palest blue is still not the white of nothing at all.
    colours = LinearSegmentedColormap.from_list("samples", ["#cfe2f1", BLUE, "#0b2540"])
    norm = PowerNorm(0.5, vmin=0, vmax=max(1, int(counts.max())))
    shown = np.ma.masked_equal(counts.T, 0)
    image = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap=colours, norm=norm, origin="lower")
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02, format="{x:,.0f}")
    bar.set_label("samples")
    bar.outline.set_visible(False)


def _label(axes: "Axes", counts: NDArray[np.int64], class_names: Sequence[str], as_bubbles: bool) -> None:
    clients, classes = counts.shape
    axes.set_xlabel("client")
    axes.set_ylabel("class")
    axes.set_xlim(-0.6, clients - 0.4)
    axes.set_ylim(-0.6, classes - 0.4)
    step = 1 if clients <= 25 else 5 if clients <= 100 else max(1, round_down(clients // 10))
    axes.set_xticks(range(0, clients, step))
    every = 1 if as_bubbles or classes <= 60 else max(1, classes // 50)
    numbers = range(0, classes, every)
    small = 9 if classes <= 25 else 6.5
    axes.set_yticks(numbers, [_shortened(class_names[number]) for number in numbers], fontsize=small)
    remove_frame(axes)


def _end_of(title: str, most: int) -> str:
    """A title that is wider than the picture would leave it no room; of a long path the end says most."""
    shown = for_terminal(title)
    return shown if len(shown) <= most else "…" + shown[1 - most :]


def _shortened(name: str) -> str:
    shown = for_terminal(name)
    return shown if len(shown) <= 18 else shown[:17] + "…"
