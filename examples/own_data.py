"""RefProtoFL on data and a backbone of your own, from this folder: `python own_data.py`.

The same from the command line: `refprotofl run --set dataset=own_data:load --set model.name=own_data:backbone`.
"""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn


def load() -> dict[str, np.ndarray]:
    """uint8 images (N, H, W), or with channels before or behind; labels of any kind."""
    digits = load_digits()
    images = (digits.images * 15).astype(np.uint8)
    names = np.array([f"digit {label}" for label in digits.target])
    return {"x_train": images[:1400], "y_train": names[:1400], "x_test": images[1400:], "y_test": names[1400:]}


def backbone(shape: tuple[int, int, int]) -> nn.Module:
    """Anything from (B, *shape) to (B, width); it stays private to each client."""
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 64), nn.Tanh())


if __name__ == "__main__":
    from refprotofl import Experiment, run

    keys = {
        "dataset": "own_data:load",
        "clients": 5,
        "rounds": 10,
        "min-size": 20,
        "train": {"batch-size": 16},
        "model": {"name": "own_data:backbone", "embedding": 32},
        "public": {"per-class": 5},
        "refprotofl": {"uplink-budget": "6 kB"},
    }
    finished = run(Experiment.parse(keys))
    print(finished.summary["accuracy"])
    print(finished.folder)
