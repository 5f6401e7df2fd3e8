"""Feature shift: the same classes everywhere, but each client's inputs carry noise of their own strength.

This is the noise-based feature skew of Li et al. 2022: of N clients, number i (from 1) gets Gaussian noise of variance
shift * i / N, on the scale of 0..1. The test samples of a client get its noise, too; those without an owner get none.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from refprotofl.core import stream
from refprotofl.data.dataset import Dataset, Images, Indices


def noise_deviations(clients: int, shift: float) -> tuple[float, ...]:
    """Return the standard deviation of each client's noise."""
    return tuple(float(np.sqrt(shift * number / clients)) for number in range(1, clients + 1))


def shift_features(
    dataset: Dataset, train: Sequence[Indices], test: Sequence[Indices], deviations: Sequence[float], seed: int
) -> Dataset:
    """Return the data set with the noise of each client on its training rows and on its test rows."""
    return replace(
        dataset,
        train_inputs=_noised(dataset.train_inputs, train, deviations, seed, "feature-shift/train"),
        test_inputs=_noised(dataset.test_inputs, test, deviations, seed, "feature-shift/test"),
    )


def _noised(images: Images, rows: Sequence[Indices], deviations: Sequence[float], seed: int, purpose: str) -> Images:
    """Return a copy of the images (N, channels, height, width) with noise on each client's rows."""
    noised = images.copy()
    for client, (own, deviation) in enumerate(zip(rows, deviations, strict=True)):
        generator = stream(seed, purpose, client=client)
        for row in own:  # one at a time, so that no float copy of a client's images is made
            noise = generator.normal(0.0, 255 * deviation, images.shape[1:])
            noised[row] = np.clip(np.rint(images[row] + noise), 0, 255).astype(np.uint8)
    return noised
