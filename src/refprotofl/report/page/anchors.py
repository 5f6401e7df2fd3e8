"""The server's anchors and, if the data are available, class means of the clients, projected to two dimensions."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from refprotofl.core import RefProtoFLError, one_compute_thread, references, stream
from refprotofl.data import balanced_draw
from refprotofl.experiment import Experiment
from refprotofl.export.trained_model import load_aggregated, load_trained, read_committed
from refprotofl.methods import embed
from refprotofl.records import load_state
from refprotofl.report.page.elements import Cell, Column, Figure, words

Vectors = NDArray[np.float64]

CLIENTS = 8  # at most, with class means
IMAGES = 400
MOST_CLASSES = 100


def prototype_figure(run_folder: Path, data: Path | None = None) -> tuple[Figure | None, str]:
    """Return the figure, if the method keeps anchors, and a note on missing parts.

    Code that the folder names is never imported; such a run is drawn without its clients.
    """
    experiment, manifest = read_committed(run_folder)
    state = load_state(run_folder / "checkpoint" / manifest["server"]["file"], manifest["server"]["digest"])
    anchors, defined = state.get("anchors"), state.get("defined")
    classes = experiment.known_input.num_classes
    if not (isinstance(anchors, torch.Tensor) and isinstance(defined, torch.Tensor)) or classes > MOST_CLASSES:
        return None, ""
    if anchors.ndim != 2 or len(anchors) != classes or defined.shape != (classes,) or not torch.isfinite(anchors).all():
        return None, "The server's anchors do not fit the experiment and are not drawn."
    numbers = defined.nonzero().squeeze(1).tolist()
    if len(numbers) < 3:
        return None, ""
    means, note = _class_means(run_folder, experiment, data)
    return _figure(experiment, anchors[numbers].double().numpy(), numbers, means), note


def _class_means(run_folder: Path, experiment: Experiment, data: Path | None) -> tuple[dict[int, Vectors], str]:
    """Return the mean test embedding of each class, (C, m), for some clients."""
    if references(experiment.plain()):
        return {}, "The run uses its own code, which is not imported: the anchors are drawn without clients."
    try:
        dataset = load_aggregated(run_folder, data).data.dataset
        rows = balanced_draw(dataset.test_labels, dataset.num_classes, IMAGES, stream(0, "page"))
        images, labels = torch.from_numpy(dataset.test_inputs[rows]), dataset.test_labels[rows]
        chosen = range(0, experiment.clients, -(-experiment.clients // CLIENTS))
        found = {}
        with one_compute_thread():
            for client in chosen:
                embeddings = embed(load_trained(run_folder, client).model, images).double().numpy()
                found[client] = np.stack([embeddings[labels == one].mean(axis=0) for one in range(dataset.num_classes)])
    except RefProtoFLError as problem:
        return {}, f"The anchors are drawn without clients: {words(problem)}"
    return {client: means for client, means in found.items() if np.isfinite(means).all()}, ""


def _figure(experiment: Experiment, anchors: Vectors, numbers: list[int], means: dict[int, Vectors]) -> Figure:
    if means and next(iter(means.values())).shape[1] != anchors.shape[1]:
        means = {}  # the method's prototypes are of another kind
    points = np.concatenate([anchors, *(one[numbers] for one in means.values())])
    flat, explained = project(points)
    names = [words(experiment.known_input.class_names[number])[:40] for number in numbers]
    owners = ["anchor", *(f"client {words(experiment.client_name(client))[:24]}" for client in means)]
    rows: list[list[Cell]] = [
        [
            names[place % len(numbers)],
            owners[place // len(numbers)],
            "anchor" if place < len(numbers) else "client",
            round(float(x), 5),
            round(float(y), 5),
        ]
        for place, (x, y) in enumerate(flat)
    ]
    also = f" (diamonds) and mean test embeddings of {len(means)} clients' models (circles)" if means else ""
    return Figure(
        "prototypes",
        "Anchors and class prototypes" if means else "Anchors",
        f"The server's anchor of each class{also}, on the first two principal components, which explain "
        f"{100 * explained:.0f} % of the variance.",
        "dots",
        (
            Column("class", "class", "text"),
            Column("model", "model", "text"),
            Column("kind", "kind", "text"),
            Column("x", "first principal component"),
            Column("y", "second principal component"),
        ),
        rows,
        x="x",
        y="y",
        colour="class",
        label="kind",
    )


def project(points: Vectors) -> tuple[Vectors, float]:
    """Project (n, m) on the first two principal components, (n, 2); return the explained variance as well."""
    centred = points - points.mean(axis=0)
    _, strengths, directions = np.linalg.svd(centred, full_matrices=False)
    first = directions[:2]
    first = first * np.sign(first[np.arange(len(first)), np.abs(first).argmax(axis=1)])[:, None]
    whole = float((strengths**2).sum())
    flat = centred @ first.T
    if flat.shape[1] < 2:
        flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    return flat, float((strengths[:2] ** 2).sum() / whole) if whole else 1.0
