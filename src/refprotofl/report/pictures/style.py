"""The style of all pictures, and their files: the suffix chooses the format, the bytes are reproducible."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refprotofl.core import InputError, for_terminal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GRID, BLUE = "#26323f", "#e6e9ed", "#2f6f9f"
# Okabe and Ito (2008), without the yellow, which is too pale for a line.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", ":", "-.")  # one for each seven lines
# The metadata that would date a file, by suffix.
_DATES: dict[str, dict[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


def check_suffix(path: Path) -> None:
    if path.suffix.lower() not in _DATES:
        raise InputError(f"{path}: unknown picture format. The suffix must be one of {', '.join(_DATES)}.")


@contextmanager
def open_figure(path: Path, width: float, height: float, small: bool = False) -> Iterator["Figure"]:
    """Yield a figure of this size in inches, with `small` texts or usual ones; it is written to a file at the end."""
    check_suffix(path)
    # Without pyplot there is no global state and no display is asked for.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    looks: dict[Any, Any] = {"svg.hashsalt": "refprotofl", "font.size": 7 if small else 9}
    looks |= {"text.color": INK, "axes.labelcolor": INK}
    with rc_context({**looks, "text.parse_math": False}):  # a class may be called $x$
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        _save(figure, path)


def _save(figure: "Figure", path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160, metadata=_DATES[path.suffix.lower()])
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from None


def remove_frame(axes: "Axes") -> None:
    """Remove ticks and frame, which add nothing to numbers and grid."""
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)


def plain_axes(axes: "Axes", across: str, up: str = "") -> None:
    """Label the axes and give them a grid instead of ticks and frame."""
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_axisbelow(True)
    axes.grid(color=GRID, linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    remove_frame(axes)


def limits(shown: Sequence[float]) -> tuple[float, float]:
    """Return the limits of an axis of accuracies in percent, with a margin around these."""
    return max(0.0, min(shown) - 5), min(100.0, max(shown) + 5)


def end_of(title: str, most: int) -> str:
    """Return the end of a title that would be wider than the picture: it says most of a long path."""
    shown = for_terminal(title)
    return shown if len(shown) <= most else "…" + shown[1 - most :]


def shortened(name: str, most: int = 18) -> str:
    shown = for_terminal(name)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
