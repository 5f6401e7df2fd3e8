"""The picture of partitions, side by side: clients across, classes up, as many samples as the bubble is large."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import InputError, counted
from refprotofl.data import load_federated
from refprotofl.experiment import Experiment
from refprotofl.report.pictures.style import BLUE, GRID, INK, end_of, open_figure, remove_frame, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BUBBLE_CLIENTS, MOST_BUBBLE_CLASSES = 50, 100
MOST_NAMED_CLIENTS = 50  # more names would overlap
_NOISE_HEIGHT = 1.0  # inches
FAINTEST = 1.5  # square points below which a bubble could not be seen


@dataclass(frozen=True, eq=False)
class Panel:
    """One partition."""

    counts: NDArray[np.int64]  # (clients, C) samples
    class_names: Sequence[str]
    title: str = ""
    client_names: Sequence[str] = ()
    shift: Sequence[float] = ()  # standard deviation of the noise on each client's inputs


@dataclass(frozen=True)
class _Scale:
    """The scale that all panels of a picture share."""

    clients: int  # of the largest panel
    classes: int
    most: int  # samples of a client and class

    @property
    def as_bubbles(self) -> bool:
        return self.clients <= MOST_BUBBLE_CLIENTS and self.classes <= MOST_BUBBLE_CLASSES

    @property
    def cell_points(self) -> float:
        return 72 * math.sqrt(_cell(self.clients) * _cell(self.classes))

    @property
    def area(self) -> float:
        """The area of one sample in square points."""
        return (0.95 * self.cell_points) ** 2 / self.most


def partition_panel(experiment: Experiment, data: Path | None = None) -> Panel:
    """Return the partition that a run of the experiment would have. `data`: the folder searched first for data sets."""
    federated = load_federated(experiment, data)
    degree = experiment.partition_degree
    title = experiment.partition if degree is None else f"{degree[0]} = {degree[1]:g}"
    shift = federated.partition_notes.shift
    return Panel(federated.class_counts(), federated.dataset.class_names, title, federated.client_names, shift)


def draw_partition(
    counts: NDArray[np.int64],
    class_names: Sequence[str],
    path: Path,
    title: str = "",
    client_names: Sequence[str] = (),
) -> str:
    """Draw `counts` (clients, C) into a .png, .pdf or .svg; return a sentence about it."""
    return draw_partitions([Panel(counts, class_names, title, client_names)], path)


def draw_partitions(panels: Sequence[Panel], path: Path) -> str:
    """Draw partitions of the same classes side by side, on one scale; return a sentence about it."""
    scale = _common_scale(panels)
    widths = [_panel_width(len(panel.counts), scale) for panel in panels]
    width = 2.3 + sum(widths) + 0.3 * len(panels)
    shifted = any(panel.shift for panel in panels)
    heights = [_height(scale), *([_NOISE_HEIGHT] if shifted else [])]
    with open_figure(path, width, sum(heights)) as figure:
        row, *below = figure.subplots(
            len(heights), len(panels), squeeze=False, width_ratios=widths, height_ratios=heights
        )
        for axes, noise, panel in zip(row, below[0] if below else row, panels, strict=True):
            (_draw_bubbles if scale.as_bubbles else _draw_heat_map)(axes, panel.counts, scale)
            _label(axes, panel, scale, named=axes is row[0])
            title = end_of(panel.title, int(8 * width / len(panels)))
            axes.set_title(title, loc="left", color=INK, fontsize=11, pad=12)
            if shifted:
                _draw_shift(noise, panel)
        if scale.as_bubbles:
            _explain_sizes(row[-1], scale)
        else:
            _explain_colours(row)
    clients = " and ".join(dict.fromkeys(counted(len(panel.counts), "client") for panel in panels))
    drawn = f"{clients} by {counted(scale.classes, 'class')}"
    if scale.as_bubbles:
        return f"{path}: {drawn}."
    return f"{path}: a heat map, because {drawn} are too many for bubbles."


def _common_scale(panels: Sequence[Panel]) -> _Scale:
    if len({tuple(panel.class_names) for panel in panels}) != 1:
        raise InputError("Partitions in one picture must have the same classes, and there must be at least one.")
    most = max(1, *(int(panel.counts.max()) for panel in panels))
    return _Scale(max(len(panel.counts) for panel in panels), panels[0].counts.shape[1], most)


def _panel_width(clients: int, scale: _Scale) -> float:
    """Return the width of a panel in inches."""
    return _cell(scale.clients) * clients if scale.as_bubbles else 6.4


def _height(scale: _Scale) -> float:
    if not scale.as_bubbles:
        return float(np.clip(0.16 * scale.classes + 1.5, 3.5, 12))
    return 1.3 + _cell(scale.classes) * scale.classes


def _cell(count: int) -> float:
    """Return the inches per client or class: wide for ten, narrow for a hundred."""
    return 0.42 if count <= 12 else 0.30 if count <= 25 else 0.19


def _draw_bubbles(axes: "Axes", counts: NDArray[np.int64], scale: _Scale) -> None:
    x, y = np.nonzero(counts)
    axes.set_axisbelow(True)
    axes.grid(color=GRID, linewidth=0.8)
    sizes = np.maximum(scale.area * counts[x, y], FAINTEST)
    axes.scatter(x, y, s=sizes, color=BLUE, alpha=0.85, linewidths=0, zorder=2)


def _draw_shift(axes: "Axes", panel: Panel) -> None:
    """Draw the noise on each client's inputs as bars below the classes."""
    if panel.shift:
        axes.bar(range(len(panel.shift)), panel.shift, width=0.7, color=BLUE)
    axes.set_xlim(-0.6, len(panel.counts) - 0.4)
    axes.set_xticks([])
    axes.set_ylabel("noise")
    remove_frame(axes)


def _explain_sizes(axes: "Axes", scale: _Scale) -> None:
    shown = sorted({round_down(max(1, scale.most // part)) for part in (1, 4, 16)})
    handles = [axes.scatter([], [], s=scale.area * count, color=BLUE, alpha=0.85, linewidths=0) for count in shown]
    axes.legend(
        handles,
        [f"{count:,}" for count in shown],
        title="samples",
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        frameon=False,
        labelspacing=max(1.2, scale.cell_points / 15),
        handletextpad=1.4,
        borderpad=1.4,
    )


def round_down(count: int) -> int:
    """Round down to one significant digit, for a legend."""
    digit = int(10 ** (len(str(count)) - 1))
    return count // digit * digit


def _draw_heat_map(axes: "Axes", counts: NDArray[np.int64], scale: _Scale) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    # The root brings small shares out, and the palest blue is still not the white of nothing at all.
    colours = LinearSegmentedColormap.from_list("samples", ["#cfe2f1", BLUE, "#0b2540"])
    norm = PowerNorm(0.5, vmin=0, vmax=scale.most)
    shown = np.ma.masked_equal(counts.T, 0)
    axes.imshow(shown, aspect="auto", interpolation="nearest", cmap=colours, norm=norm, origin="lower")


def _explain_colours(row: "Sequence[Axes]") -> None:
    bar = row[-1].figure.colorbar(row[-1].images[0], ax=list(row), fraction=0.03, pad=0.02, format="{x:,.0f}")
    bar.set_label("samples")
    bar.outline.set_visible(False)


def _label(axes: "Axes", panel: Panel, scale: _Scale, named: bool) -> None:
    clients, classes = panel.counts.shape
    axes.set_xlabel("client")
    axes.set_xlim(-0.6, clients - 0.4)
    axes.set_ylim(-0.6, classes - 0.4)
    step = 1 if clients <= 25 else 5 if clients <= 100 else max(1, round_down(clients // 10))
    axes.set_xticks(range(0, clients, step))
    if panel.client_names and clients <= MOST_NAMED_CLIENTS:
        axes.set_xticks(range(clients), [shortened(name) for name in panel.client_names], rotation=90)
    every = 1 if scale.as_bubbles or classes <= 60 else max(1, classes // 50)
    numbers = range(0, classes, every)
    small = 9 if classes <= 25 else 6.5
    axes.set_yticks(numbers, [shortened(panel.class_names[number]) for number in numbers], fontsize=small)
    axes.tick_params(axis="y", labelleft=named)
    axes.set_ylabel("class" if named else "")
    remove_frame(axes)
