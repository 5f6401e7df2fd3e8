"""The embeddings of a finished run's model: test images, anchors, silhouette, and the picture of their t-SNE map."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from refprotofl.core import DataError, InputError, State, counted, digest_value, one_compute_thread, stream
from refprotofl.data import balanced_draw
from refprotofl.data.dataset import Labels
from refprotofl.export.trained_model import AggregatedModel, load_aggregated, load_trained
from refprotofl.methods import embed
from refprotofl.models import SplitModel
from refprotofl.report.pictures.style import INK, check_suffix, end_of, open_figure, remove_frame, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Vectors = NDArray[np.float32]

SEED = 0  # of the samples and of the map: neither depends on the run
PERPLEXITY = 30.0


@dataclass(frozen=True, eq=False)
class Embedded:
    """Test samples and, where the server has them, the classes' anchors in the space of one model's embeddings."""

    model: str  # "global model" or a client
    embeddings: Vectors  # (n, m)
    labels: Labels  # (n,)
    class_names: tuple[str, ...]
    anchors: Vectors  # (a, m), no rows where the method has none
    anchor_classes: Labels  # (a,)
    samples: str  # a digest of the inputs

    @cached_property
    def silhouette(self) -> float:
        """The silhouette of the classes in the embeddings (Euclidean), without anchors."""
        from sklearn.metrics import silhouette_score
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            return float(silhouette_score(self.embeddings, self.labels, metric="euclidean"))

    @cached_property
    def map(self) -> tuple[Vectors, Vectors]:
        """The t-SNE map of images and anchors, computed once."""
        return map_of(self)


def embed_run(run_folder: Path, data: Path | None = None, images: int = 2000, trust_code: bool = False) -> Embedded:
    """Embed test samples, balanced by class and the same for every run of a data set.

    The model is the aggregated one if the method has one, else that of client 0.
    """
    served = load_aggregated(run_folder, data, trust_code)
    dataset = served.data.dataset
    rows = balanced_draw(dataset.test_labels, dataset.num_classes, images, stream(SEED, "tsne"))
    labels, shown = dataset.test_labels[rows], torch.from_numpy(dataset.test_inputs[rows])
    if not 1 < len(np.unique(labels)) < len(labels):
        raise InputError(f"images = {images}: a silhouette needs two classes and more images than classes.")
    name, model = _model_of(served, run_folder, trust_code)
    with one_compute_thread():
        embeddings = embed(model, shown).numpy()
    anchors, anchor_classes = _anchors_of(served.state, embeddings, dataset.num_classes)
    if not (np.isfinite(embeddings).all() and np.isfinite(anchors).all()):
        raise DataError(f"The model in {run_folder} gives embeddings or anchors that are not finite.")
    return Embedded(name, embeddings, labels, dataset.class_names, anchors, anchor_classes, digest_value(shown))


def _model_of(served: AggregatedModel, run_folder: Path, trust_code: bool) -> tuple[str, SplitModel]:
    if served.model is not None:
        return "global model", served.model
    return f"client {served.experiment.client_name(0)}", load_trained(run_folder, 0, trust_code).model


def _anchors_of(state: State, embeddings: Vectors, num_classes: int) -> tuple[Vectors, Labels]:
    """Return anchors and their classes. All methods keep them as `anchors` and `defined` in the server state."""
    width = embeddings.shape[1]
    anchors, defined = state.get("anchors"), state.get("defined")
    if not (isinstance(anchors, torch.Tensor) and isinstance(defined, torch.Tensor)):
        return np.zeros((0, width), np.float32), np.zeros(0, np.int64)
    if anchors.shape != (num_classes, width) or defined.shape != (num_classes,):
        raise DataError(f"The anchors have the shape {tuple(anchors.shape)}, not {(num_classes, width)}.")
    classes = defined.nonzero().squeeze(1).numpy()
    return _at_length(anchors.numpy()[classes], embeddings), classes


def _at_length(anchors: Vectors, embeddings: Vectors) -> Vectors:
    """Scale anchors of length 1, which are directions only, to the mean length of embeddings."""
    if not np.allclose(np.linalg.norm(anchors, axis=1), 1, atol=1e-4):
        return anchors
    return anchors * np.float32(np.linalg.norm(embeddings, axis=1).mean())


def map_of(embedded: Embedded) -> tuple[Vectors, Vectors]:
    """Return the t-SNE map of images (n, 2) and anchors (a, 2), reproducible bit by bit."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    points = np.concatenate([embedded.embeddings, embedded.anchors])
    if np.ptp(points, axis=0).max() == 0:  # a collapsed model; t-SNE would divide by the spread
        flat = np.zeros((len(points), 2), np.float32)
    else:
        perplexity = min(PERPLEXITY, (len(points) - 1) / 3)
        with threadpool_limits(1):  # the number of threads changes the sums
            flat = TSNE(init="pca", random_state=SEED, perplexity=perplexity).fit_transform(points)
    return flat[: len(embedded.labels)], flat[len(embedded.labels) :]


# Petroff (2021): ten colours that stay apart in all three kinds of colour blindness.
COLOURS = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6"),
    *("#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"),
)
MARKERS = "os^DvP<X>p"  # one for each ten classes, then over again
# Inches: the side of a panel, the least width of a figure, the width of a legend entry.
PANEL, LEAST, ENTRY = 2.6, 4.2, 1.35


def draw_embeddings(panels: Mapping[str, Embedded], path: Path, samples: str = "") -> str:
    """Draw models by their titles into a .png, .pdf or .svg; return a caption.

    `samples` names the source of the images.
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
        raise InputError("Embeddings in one picture must be of the same samples, and of one model at least.")
    return next(iter(panels.values()))


def _sentence(embedded: Embedded, samples: str) -> str:
    images, of = counted(len(embedded.labels), "test sample"), f" ({samples})" if samples else ""
    return (
        f"t-SNE of the embeddings of {images}{of}, the same for every model. "
        "Silhouettes are of the embeddings (Euclidean), not of the maps."
    )


def _draw_map(axes: "Axes", embedded: Embedded) -> None:
    """Draw the images in their own order, so that no class covers the others."""
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
    """Return the marker of each class, as an index."""
    return classes // len(COLOURS) % len(MARKERS)


def _entitle(axes: "Axes", title: str, embedded: Embedded) -> None:
    named = fill(end_of(title, 72), 36)
    quality = f"{end_of(embedded.model, 18)}, silhouette {embedded.silhouette:.3f}"
    axes.set_title(f"{named}\n{quality}", loc="left", color=INK, fontsize=9)
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
