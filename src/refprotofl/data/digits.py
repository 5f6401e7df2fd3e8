"""scikit-learn's embedded digits: 1,797 images of 8 x 8, always at hand."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refprotofl.core.streams import stream
from refprotofl.data.dataset import Dataset, channel_statistics
from refprotofl.data.sampling import stratified_split


def load_digits() -> Dataset:
    pixels, labels = read_embedded()
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    # The split belongs to the data set, so it is the same for every seed.
    train, test = stratified_split(labels, 10, 0.2, stream(0, "digits/split"))
    mean, std = channel_statistics(images[train])
    names = tuple(str(digit) for digit in range(10))
    return Dataset(images[train], labels[train], images[test], labels[test], names, mean, std)


def read_embedded() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pixels (1797, 64) in 0..16 and labels (1797,), from scikit-learn's file: to import it would take seconds."""
    package = find_spec("sklearn")
    for place in (package and package.submodule_search_locations) or ():
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits as embedded

    digits = embedded()
    return digits.data, digits.target.astype(np.int64)
