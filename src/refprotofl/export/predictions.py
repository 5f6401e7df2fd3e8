"""Predictions of clients' models for images, and their tables."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from refprotofl.core import InputError, for_csv, one_compute_thread
from refprotofl.data.dataset import Inputs, Labels
from refprotofl.evaluation import Confusion, backbone_features, confusion, per_class_accuracy
from refprotofl.export.sources import Source, read_samples, read_source
from refprotofl.export.trained_model import TrainedModel, load_trained
from refprotofl.models import SplitModel
from refprotofl.records import seen_from, write_whole

TableFormat = Literal["csv", "json"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of one model."""

    names: Sequence[str | int]  # file names, or positions in an array
    class_names: tuple[str, ...]
    predicted: Labels  # (N,)
    probabilities: NDArray[np.float32]  # (N, C)
    labels: Labels | None  # (N,), where the source has them
    client: str = ""  # the owner of the model
    notes: tuple[str, ...] = ()  # changes to the data while they were read

    @property
    def confusion(self) -> Confusion | None:
        """Return the confusion matrix; None where the labels are unknown."""
        return None if self.labels is None else confusion(self.predicted, self.labels, len(self.class_names))

    @property
    def accuracy(self) -> float | None:
        """Return the accuracy; None where the labels are unknown."""
        if self.labels is None:
            return None
        return int((self.predicted == self.labels).sum()) / len(self.labels)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per sample: name, class, probability of that class, and the probabilities of all by class."""
        rows = []
        for name, predicted, row in zip(self.names, self.predicted, self.probabilities, strict=True):
            # As the shortest text that reads back as the same float32.
            shares = [float(str(share)) for share in row]
            by_class = dict(zip(self.class_names, shares, strict=True))
            rows.append(
                {
                    "name": name,
                    "class": self.class_names[predicted],
                    "probability": shares[predicted],
                    "probabilities": by_class,
                }
            )
        return rows


def predict(
    trained: TrainedModel, source: str | Path | NDArray[np.generic], data_dir: Path | None = None
) -> Predictions:
    """Predict for samples, a .npz or .npy file, an image, a folder of images, or a data set's test split."""
    if isinstance(source, np.ndarray):
        return _predict(trained, read_samples(source, trained.experiment))
    return _predict(trained, read_source(source, trained.experiment, data_dir, seen_from(trained.folder)))


def predict_each(
    run_folder: Path,
    clients: Sequence[int],
    source: str | Path,
    data_dir: Path | None = None,
    trust_code: bool = False,
) -> list[Predictions]:
    """Predict with several clients' models; the source is read once, and one model is in memory at a time."""
    trained = load_trained(run_folder, clients[0], trust_code)  # first, so that the folder is checked before all else
    read = read_source(source, trained.experiment, data_dir, seen_from(run_folder))
    others = (load_trained(run_folder, client, trust_code) for client in clients[1:])
    return [_predict(one, read) for one in chain([trained], others)]


def _predict(trained: TrainedModel, read: Source) -> Predictions:
    with one_compute_thread():
        predicted, probabilities = classify(trained.model, read.inputs)
    return Predictions(
        read.names, trained.class_names, predicted, probabilities, read.labels, trained.client_name, read.notes
    )


@torch.no_grad()
def classify(model: SplitModel, inputs: Inputs) -> tuple[Labels, NDArray[np.float32]]:
    """Return classes (N,) and probabilities (N, C), computed as in evaluation, so that they agree to the bit."""
    features = backbone_features(model, torch.from_numpy(inputs))  # (N, width), in batches
    logits = model.head(model.embed_features(features))  # (N, C)
    return logits.argmax(dim=1).numpy(), logits.softmax(dim=1).numpy()


def write_predictions(
    predictions: Predictions | Sequence[Predictions], format: TableFormat, path: Path | None = None
) -> str:
    """Return the table as text, and write it to `path`; for several models each row names its client."""
    if format not in ("csv", "json"):
        raise InputError(f"Unknown table format {format!r}. Use csv or json.")
    text = _csv(predictions) if format == "csv" else _json(predictions)
    if path is not None:
        if not path.absolute().parent.is_dir():
            raise InputError(f"Cannot write {path}: folder {path.absolute().parent} not found.")
        if path.is_dir():
            raise InputError(f"Cannot write {path}: it is a folder.")
        write_whole(path, text.encode())
    return text


def _csv(predictions: Predictions | Sequence[Predictions]) -> str:
    several = not isinstance(predictions, Predictions)
    made = [predictions] if isinstance(predictions, Predictions) else list(predictions)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    shares = [for_csv(f"p({name})") for name in made[0].class_names]
    writer.writerow([*(["client"] if several else []), "name", "class", "probability", *shares])
    for one in made:
        for row in one.rows():
            texts = (*([one.client] if several else []), row["name"], row["class"])
            writer.writerow([*map(for_csv, texts), row["probability"], *row["probabilities"].values()])
    return text.getvalue()


def _json(predictions: Predictions | Sequence[Predictions]) -> str:
    if isinstance(predictions, Predictions):
        table = {"accuracy": predictions.accuracy, **_by_class([predictions]), "rows": predictions.rows()}
    else:
        table = {
            "accuracy": mean_accuracy(predictions),
            "accuracy_per_client": {one.client: one.accuracy for one in predictions},
            **_by_class(predictions),
            "rows": [{"client": one.client, **row} for one in predictions for row in one.rows()],
        }
    return json.dumps(table, indent=1) + "\n"


def mean_accuracy(predictions: Sequence[Predictions]) -> float | None:
    """Return the mean over models, all on the same images."""
    known = [one.accuracy for one in predictions if one.accuracy is not None]
    return sum(known) / len(known) if known else None


def summed_confusion(predictions: Sequence[Predictions]) -> Confusion | None:
    known = [one.confusion for one in predictions if one.confusion is not None]
    return np.sum(known, axis=0) if known else None


def _by_class(predictions: Sequence[Predictions]) -> dict[str, Any]:
    """Return the accuracy of each class and the confusion matrix: labels in rows, predicted classes in columns."""
    counts, names = summed_confusion(predictions), predictions[0].class_names
    if counts is None:
        return {"accuracy_per_class": None, "confusion": None}
    return {
        "accuracy_per_class": dict(zip(names, per_class_accuracy(counts), strict=True)),
        "confusion": counts.tolist(),
    }
