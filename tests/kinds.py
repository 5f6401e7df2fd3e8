"""A tiny data set and experiment of each input kind; the classes differ enough to be learned in a few rounds."""

from pathlib import Path
from typing import Any

import numpy as np

from refprotofl import Experiment

CLASSES, TRAIN, TEST = 3, 120, 30
MODELS = {"image": "mlp", "vector": "mlp", "series": "cnn", "tokens": "transformer"}
KINDS = tuple(MODELS)
WORDS = ("rain and wind", "sun and sea", "ice on stone")


def samples(kind: str, labels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    if kind == "image":
        return (60 * labels[:, None, None] + draw.integers(0, 60, (len(labels), 6, 6))).astype(np.uint8)
    if kind == "tokens":
        return np.array([" ".join(draw.permutation(WORDS[label].split())) for label in labels])
    shape = (5,) if kind == "vector" else (2, 12)
    levels = 10 * labels.reshape(-1, *(1,) * len(shape))
    values: np.ndarray = 100 + levels + 4 * draw.standard_normal((len(labels), *shape))
    return values


def arrays(kind: str, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    train, test = np.arange(TRAIN) % CLASSES, np.arange(TEST) % CLASSES
    return {
        "x_train": samples(kind, train, draw),
        "y_train": train,
        "x_test": samples(kind, test, draw),
        "y_test": test,
    }


def tiny_keys(kind: str, folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the keys of a tiny experiment on a data set of this kind, which is written to the folder."""
    path = folder / f"{kind}.npz"
    if not path.exists():
        np.savez(path, **arrays(kind))  # type: ignore[arg-type]
    keys: dict[str, Any] = {
        "dataset": str(path),
        "clients": 3,
        "rounds": 2,
        "min-size": 10,
        "alpha": 5.0,
        "public": {"per-class": 3},
        "data": {"kind": kind},
        "train": {"batch-size": 16},
        "model": {"name": MODELS[kind], "norm": "none", "embedding": 8},
        "evaluate": {"every": 2},
    }
    return keys | {key.replace("_", "-"): value for key, value in changes.items()}


def tiny_experiment(kind: str, folder: Path, **changes: Any) -> Experiment:
    return Experiment.parse(tiny_keys(kind, folder, **changes))
