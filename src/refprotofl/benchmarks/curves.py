"""The picture of `bench scale`: both curves over the number of clients."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.benchmarks.measuring import Row
from refprotofl.data.picture import BUBBLE, GRID, INK, SUFFIXES
from refprotofl.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The axis' label, and what is drawn: the key, its name, its colour.
CURVES = (
    ("seconds per round", (("round_s", "wall clock", BUBBLE), ("round_cpu_s", "CPU", INK))),
    ("MB", (("memory_mb", "private memory", BUBBLE),)),
)


def check_suffix(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: a picture is written as {', '.join(SUFFIXES)}, chosen by the file's suffix.")


def draw_scale(rows: Sequence[Row], path: Path, title: str) -> str:
    """Draws the rows into a .png, .pdf or .svg; gives a sentence on what was drawn."""
    check_suffix(path)
    # Without pyplot there is no global state and no display is asked for.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "refprotofl", "font.size": 9, "text.color": INK, "axes.labelcolor": INK}):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        for axes, (label, curves) in zip(figure.subplots(1, len(CURVES)), CURVES, strict=True):
            for key, name, colour in curves:
                known = [row for row in rows if row[key] is not None]
                axes.plot(
                    [row["clients"] for row in known], [row[key] for row in known], "o-", color=colour, label=name
                )
            _finish(axes, label)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=160)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}.") from None
    return f"{path}: {len(rows)} points."


def _finish(axes: "Axes", label: str) -> None:
    axes.set_xlabel("clients")
    axes.set_ylabel(label)
    _, right, _, top = axes.axis()
    axes.set_xlim(0, right)
    axes.set_ylim(0, 1.2 * top)
    axes.grid(color=GRID, linewidth=0.8)
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
