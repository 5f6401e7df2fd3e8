"""Labels next to the points of a picture, placed without overlap if there is room."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refprotofl.report.pictures.style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_NEAR, _FAR = 7, 18  # printer's points from a name to its point
_APART = (32, 48, 66, 86)  # with a line between them
_ABOVE = ((0, _NEAR), "center", "bottom")


@dataclass(frozen=True)
class Named:
    x: float
    y: float
    low: float  # the ends of its interval
    high: float
    name: str
    bold: bool = False


def name_points(figure: "Figure", axes: "Axes", points: Sequence[Named]) -> None:
    """Place each label where it is free around its point, else above it. Call it when everything else is drawn."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # computes the layout
    taken: list[Bbox] = []
    for one in points:
        (x, low), (_, high) = axes.transData.transform([(one.x, one.low), (one.x, one.high)])
        _, y = axes.transData.transform((one.x, one.y))
        taken += [Bbox([(x - 1, low), (x + 1, high)]), Bbox([(x - 8, y - 8), (x + 8, y + 8)])]
    for one in sorted(points, key=lambda one: not one.bold):
        taken.append(_name(axes, one, taken))


def _name(axes: "Axes", point: Named, taken: Sequence["Bbox"]) -> "Bbox":
    """Draw a label and return its box."""
    from matplotlib.patheffects import withStroke

    weight = "bold" if point.bold else "normal"
    text = axes.annotate(
        point.name, (point.x, point.y), (0, 0), textcoords="offset points", fontsize=8, color=INK, weight=weight
    )
    text.set_path_effects([withStroke(linewidth=2, foreground="white")])  # readable in front of lines
    text.set_in_layout(False)  # or the axes would make room for it and move
    for offset, across, up in (*_places(), _ABOVE):
        text.xyann = offset
        text.set(ha=across, va=up)
        box = text.get_window_extent()
        if _is_free(box, axes, taken):
            break
    if max(map(abs, text.xyann)) >= _APART[0]:
        line = {"arrowstyle": "-", "color": INK, "linewidth": 0.5, "alpha": 0.6, "shrinkA": 0, "shrinkB": 5}
        axes.annotate("", (point.x, point.y), text.xyann, textcoords="offset points", arrowprops=line)
    return box


def _is_free(box: "Bbox", axes: "Axes", taken: Sequence["Bbox"]) -> bool:
    inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1
    return inside and not any(box.overlaps(other) for other in taken)


def _places() -> Iterator[tuple[tuple[float, float], str, str]]:
    """Yield offsets around a point, from near to far, with the label's alignment."""
    for far in (_NEAR, _FAR, *_APART):
        yield (far, 0), "left", "center"
        yield (-far, 0), "right", "center"
        for sideways in ("center", "left", "right"):
            yield (0, far), sideways, "bottom"
            yield (0, -far), sideways, "top"
        for up, edge in ((far, "bottom"), (-far, "top")):
            yield (far, up), "left", edge
            yield (-far, up), "right", edge
