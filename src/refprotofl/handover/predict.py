"""What a client's model says about images."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from refprotofl.basics.escapes import for_csv
from refprotofl.compute.process import one_compute_thread
from refprotofl.data.dataset import Images, Labels
from refprotofl.errors import InputError
from refprotofl.evaluation.scoring import backbone_features
from refprotofl.handover.sources import read_source
from refprotofl.handover.trained import Trained
from refprotofl.models import SplitModel
from refprotofl.records.files import write_whole

TableFormat = Literal["csv", "json"]


@dataclass(frozen=True, eq=False)
class Predictions:
    names: Sequence[str | int]  # file names, or positions in an array
    class_names: tuple[str, ...]
    predicted: Labels  # (N,)
    probabilities: NDArray[np.float32]  # (N, C)
    labels: Labels | None  # (N,), where the source tells them

    @property
    def accuracy(self) -> float | None:
        """Correct ones out of all; None where the right answers are not known."""
        if self.labels is None:
            return None
        return int((self.predicted == self.labels).sum()) / len(self.labels)

    def rows(self) -> list[dict[str, Any]]:
        """One a sample: name, class, probability of that class, and the probabilities of all by class."""
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


def predict(trained: Trained, source: str | Path, data_dir: Path | None = None) -> Predictions:
    """The model's answers on a .npz or .npy file, an image, a folder of images, or a data set's test split."""
    read = read_source(source, trained.experiment, data_dir)
    with one_compute_thread():
        predicted, probabilities = classify(trained.model, read.images)
    return Predictions(read.names, trained.class_names, predicted, probabilities, read.labels)


@torch.no_grad()
def classify(model: SplitModel, images: Images) -> tuple[Labels, NDArray[np.float32]]:
    """Classes (N,) and probabilities (N, C), computed as evaluation does, so that they agree to the bit."""
    features = backbone_features(model, torch.from_numpy(images))  # (N, width), in batches
    logits = model.head(model.embed_features(features))  # (N, C)
    return logits.argmax(dim=1).numpy(), logits.softmax(dim=1).numpy()


def write_predictions(predictions: Predictions, format: TableFormat, path: Path | None = None) -> str:
    """The table as text; also in `path`, whole or not at all."""
    if format not in ("csv", "json"):
        raise InputError(f"There is no table format {format!r}; it is csv or json.")
    text = _csv(predictions) if format == "csv" else _json(predictions)
    if path is not None:
        if not path.absolute().parent.is_dir():
            raise InputError(f"Cannot write {path}: there is no folder {path.absolute().parent}.")
        if path.is_dir():
            raise InputError(f"Cannot write {path}: it is a folder.")
        write_whole(path, text.encode())
    return text


def _csv(predictions: Predictions) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "class", "probability", *(for_csv(f"p({name})") for name in predictions.class_names)])
    for row in predictions.rows():
        told = (for_csv(row["name"]), for_csv(row["class"]))
        writer.writerow([*told, row["probability"], *row["probabilities"].values()])
    return text.getvalue()


def _json(predictions: Predictions) -> str:
    return json.dumps({"accuracy": predictions.accuracy, "rows": predictions.rows()}, indent=1) + "\n"
