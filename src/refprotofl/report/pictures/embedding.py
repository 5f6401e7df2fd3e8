"""The picture of embeddings: a t-SNE map for each model, one colour a class, anchors as stars."""

import math
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from refprotofl.core.errors import InputError
from refprotofl.core.units import counted
from refprotofl.data.dataset import Labels
from refprotofl.report.embeddings import Embedded
from refprotofl.report.pictures.style import INK, check_suffix, end_of, open_figure, remove_frame, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Petroff (2021): ten colours that stay apart in all three kinds of colour blindness.
COLOURS = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6"),
    *("#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"),
)
MARKERS = "os^DvP<X>p"  # one for each ten classes, then over again
# Inches: a panel's side, the least width of all, and what a name in the legend gets.
PANEL, LEAST, ENTRY = 2.6, 4.2, 1.35


def draw_embeddings(panels: Mapping[str, Embedded], path: Path, samples: str = "") -> str:
    """Draw models by their titles into a .png, .pdf or .svg; gives a caption that says what is to be seen.

    `samples` says what the images are of.
    """
    check_suffix(path)  # before the maps, which take their time
    first = _same_samples(panels)
    rows = math.ceil(len(panels) / 4)
    columns = math.ceil(len(panels) / rows)
    width = max(PANEL * columns, LEAST)
    entries = len(first.class_names) + any(len(one.anchors) for one in panels.values())
    across = max(1, min(entries, int(width / ENTRY)))
    height = (width / columns + 0.4) * rows + 0.2 * math.ceil(entries / across) + 0.6
    with open_figure(path, width, height) as figure:
        for place, (title, embedded) in enumerate(panels.items(), start=1):
            axes = figure.add_subplot(rows, columns, place)
            _draw_map(axes, embedded)
            _entitle(axes, title, embedded)
        _explain(figure, panels, across, fill(_sentence(first, samples), int(14 * width)))
    return f"{path}: {_sentence(first, samples)}"


def _same_samples(panels: Mapping[str, Embedded]) -> Embedded:
    if len({(one.samples, one.class_names) for one in panels.values()}) != 1:
        raise InputError("Embeddings in one picture must be of the same images, and of one model at least.")
    return next(iter(panels.values()))


def _sentence(embedded: Embedded, samples: str) -> str:
    images, of = counted(len(embedded.labels), "test image"), f" ({samples})" if samples else ""
    return (
        f"t-SNE of the embeddings of {images}{of}, the same for every model. "
        "Silhouettes are of the embeddings (Euclidean), not of the maps."
    )


def _draw_map(axes: "Axes", embedded: Embedded) -> None:
    """In the order of the images, so that no class lies on top of the others."""
    images, anchors = embedded.map
    size = float(np.clip(8000 / len(images), 4, 20))
    for group, marker in enumerate(MARKERS):
        drawn = _groups(embedded.labels) == group
        x, y = images[drawn].T
        axes.scatter(x, y, s=size, c=_colours(embedded.labels[drawn]), marker=marker, linewidths=0, alpha=0.75)
    x, y = anchors.T
    colours = _colours(embedded.anchor_classes)
    axes.scatter(x, y, s=110, c=colours, marker="*", edgecolors=INK, linewidths=0.9, zorder=3)


def _colours(classes: Labels) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in classes]


def _groups(classes: Labels) -> Labels:
    """The markers' numbers."""
    return classes // len(COLOURS) % len(MARKERS)


def _entitle(axes: "Axes", title: str, embedded: Embedded) -> None:
    named = fill(end_of(title, 72), 36)
    told = f"{end_of(embedded.model, 18)}, silhouette {embedded.silhouette:.3f}"
    axes.set_title(f"{named}\n{told}", loc="left", color=INK, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    remove_frame(axes)


def _explain(figure: "Figure", panels: Mapping[str, Embedded], across: int, sentence: str) -> None:
    from matplotlib.lines import Line2D

    def sign(marker: str, colour: str, name: str, **looks: Any) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, color=colour, label=name, **looks)

    names = next(iter(panels.values())).class_names
    classes = np.arange(len(names))
    shapes = [MARKERS[group] for group in _groups(classes)]
    signs = [
        sign(shape, colour, shortened(name), markersize=5)
        for shape, colour, name in zip(shapes, _colours(classes), names, strict=True)
    ]
    if any(len(one.anchors) for one in panels.values()):
        signs.append(sign("*", "white", "anchor (some may overlap)", markersize=10, markeredgecolor=INK))
    figure.legend(
        handles=signs,
        loc="outside lower center",
        ncols=across,
        frameon=False,
        fontsize=8,
        title=sentence,
        title_fontsize=8,
        handletextpad=0.2,
        columnspacing=1.0,
    )
