"""Where a finished run's model puts test images, how well it keeps their classes apart, and a map of it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from refprotofl.core.errors import DataError, InputError
from refprotofl.core.process import one_compute_thread
from refprotofl.core.state import State, digest_value
from refprotofl.core.streams import stream
from refprotofl.data.dataset import Labels
from refprotofl.data.draws import balanced_draw
from refprotofl.export.trained_model import Aggregated, load_aggregated, load_trained
from refprotofl.methods.base.training import embed
from refprotofl.models import SplitModel

Vectors = NDArray[np.float32]

SEED = 0  # of the samples and of the map: neither depends on the run
PERPLEXITY = 30.0


@dataclass(frozen=True, eq=False)
class Embedded:
    """Test images and, where the server has them, the classes' anchors in the space of one model's embeddings."""

    model: str  # whose it is
    embeddings: Vectors  # (n, m)
    labels: Labels  # (n,)
    class_names: tuple[str, ...]
    anchors: Vectors  # (a, m), no rows where the method has none
    anchor_classes: Labels  # (a,)
    samples: str  # a digest of the images: equal where they are the same

    @cached_property
    def silhouette(self) -> float:
        """Of the classes in the embeddings themselves, by Euclidean distance; anchors are left out."""
        from sklearn.metrics import silhouette_score
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            return float(silhouette_score(self.embeddings, self.labels, metric="euclidean"))

    @cached_property
    def map(self) -> tuple[Vectors, Vectors]:
        """Computed once, however many files it is drawn into."""
        return map_of(self)


def embed_run(run_folder: Path, data: Path | None = None, images: int = 2000, trust_code: bool = False) -> Embedded:
    """As many images of the test split, with balanced classes; of one data set the same for every run.

    By the aggregated model where the method has one, else by client 0's.
    """
    served = load_aggregated(run_folder, data, trust_code)
    dataset = served.data.dataset
    rows = balanced_draw(dataset.test_labels, dataset.num_classes, images, stream(SEED, "tsne"))
    labels, shown = dataset.test_labels[rows], torch.from_numpy(dataset.test_images[rows])
    if not 1 < len(np.unique(labels)) < len(labels):
        raise InputError(f"images = {images}: it takes two classes and more images than classes to tell them apart.")
    name, model = _model_of(served, run_folder, trust_code)
    with one_compute_thread():
        embeddings = embed(model, shown).numpy()
    anchors, anchor_classes = _anchors_of(served.state, embeddings, dataset.num_classes)
    if not (np.isfinite(embeddings).all() and np.isfinite(anchors).all()):
        raise DataError(f"The model in {run_folder} gives embeddings or anchors that are not finite.")
    return Embedded(name, embeddings, labels, dataset.class_names, anchors, anchor_classes, digest_value(shown))


def _model_of(served: Aggregated, run_folder: Path, trust_code: bool) -> tuple[str, SplitModel]:
    if served.model is not None:
        return "global model", served.model
    return f"client {served.experiment.client_name(0)}", load_trained(run_folder, 0, trust_code).model


def _anchors_of(state: State, embeddings: Vectors, num_classes: int) -> tuple[Vectors, Labels]:
    """All methods with anchors keep them as `anchors`, and which of them there are as `defined`."""
    width = embeddings.shape[1]
    anchors, defined = state.get("anchors"), state.get("defined")
    if not (isinstance(anchors, torch.Tensor) and isinstance(defined, torch.Tensor)):
        return np.zeros((0, width), np.float32), np.zeros(0, np.int64)
    if anchors.shape != (num_classes, width) or defined.shape != (num_classes,):
        raise DataError(f"The anchors have the shape {tuple(anchors.shape)}, not {(num_classes, width)}.")
    classes = defined.nonzero().squeeze(1).numpy()
    return _at_length(anchors.numpy()[classes], embeddings), classes


def _at_length(anchors: Vectors, embeddings: Vectors) -> Vectors:
    """Anchors of length 1 only tell a direction: they are put as far out as embeddings are on average."""
    if not np.allclose(np.linalg.norm(anchors, axis=1), 1, atol=1e-4):
        return anchors
    return anchors * np.float32(np.linalg.norm(embeddings, axis=1).mean())


def map_of(embedded: Embedded) -> tuple[Vectors, Vectors]:
    """t-SNE of images and anchors together: (n, 2), (a, 2). The same for the same embeddings, bit by bit."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    points = np.concatenate([embedded.embeddings, embedded.anchors])
    if np.ptp(points, axis=0).max() == 0:  # a model that has died; t-SNE would divide by the spread
        flat = np.zeros((len(points), 2), np.float32)
    else:
        perplexity = min(PERPLEXITY, (len(points) - 1) / 3)
        with threadpool_limits(1):  # how many threads there are changes the sums
            flat = TSNE(init="pca", random_state=SEED, perplexity=perplexity).fit_transform(points)
    return flat[: len(embedded.labels)], flat[len(embedded.labels) :]
