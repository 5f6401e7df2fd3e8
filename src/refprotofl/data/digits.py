"""scikit-learn's embedded digits: 1,797 images of 8 x 8, always at hand."""

import numpy as np

from refprotofl.data.dataset import Dataset, channel_statistics
from refprotofl.data.draws import stratified_split
from refprotofl.streams import stream


def load_digits() -> Dataset:
    # scikit-learn takes a second to import, which no other data set should pay for.
    from sklearn.datasets import load_digits as embedded

    digits = embedded()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]  # (1797, 1, 8, 8)
    labels = digits.target.astype(np.int64)
    # The split belongs to the data set, so it is the same for every seed.
    train, test = stratified_split(labels, 10, 0.2, stream(0, "digits/split"))
    mean, std = channel_statistics(images[train])
    names = tuple(str(digit) for digit in range(10))
    return Dataset(images[train], labels[train], images[test], labels[test], names, mean, std)
