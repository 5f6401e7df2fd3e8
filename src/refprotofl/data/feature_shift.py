"""Feature shift: the same classes everywhere, but each client's inputs carry noise of their own strength.

This is the noise-based feature skew of Li et al. 2022: of N clients, number i (from 1) gets Gaussian noise of variance
shift * i / N, on the scale of 0..1 for images, and of the feature's own deviation for vectors and series. The test
samples of a client get its noise, too; those without an owner get none.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import InputError, stream
from refprotofl.data.dataset import Dataset, Indices, Inputs
from refprotofl.inputs import IMAGE, find_kind


def noise_deviations(clients: int, shift: float) -> tuple[float, ...]:
    """Return the standard deviation of each client's noise."""
    return tuple(float(np.sqrt(shift * number / clients)) for number in range(1, clients + 1))


def shift_features(
    dataset: Dataset, train: Sequence[Indices], test: Sequence[Indices], deviations: Sequence[float], seed: int
) -> Dataset:
    """Return the data set with the noise of each client on its training rows and on its test rows."""
    kind = find_kind(dataset.kind)
    if not kind.normalised:
        raise InputError(f'partition = "feature-shift" adds noise to numbers, but the samples are {kind.plural}.')
    unit = _unit(dataset)
    return replace(
        dataset,
        train_inputs=_noised(dataset.train_inputs, unit, train, deviations, seed, "feature-shift/train"),
        test_inputs=_noised(dataset.test_inputs, unit, test, deviations, seed, "feature-shift/test"),
    )


def _unit(dataset: Dataset) -> NDArray[np.float64]:
    """Return what a deviation of 1 is, to be multiplied with a sample."""
    kind = find_kind(dataset.kind)
    if dataset.kind == IMAGE:
        return np.array(255.0)
    _, deviation = kind.statistics(dataset.train_inputs)
    return np.array(deviation).reshape(-1, *(1,) * (len(dataset.shape) - 1))


def _noised(
    inputs: Inputs,
    unit: NDArray[np.float64],
    rows: Sequence[Indices],
    deviations: Sequence[float],
    seed: int,
    purpose: str,
) -> Inputs:
    """Return a copy of the inputs (N, …) with noise on each client's rows."""
    noised = inputs.copy()
    for client, (own, deviation) in enumerate(zip(rows, deviations, strict=True)):
        generator = stream(seed, purpose, client=client)
        for row in own:  # one at a time, so that no float copy of a client's images is made
            shifted = inputs[row] + unit * generator.normal(0.0, deviation, inputs.shape[1:])
            noised[row] = np.clip(np.rint(shifted), 0, 255) if inputs.dtype == np.uint8 else shifted
    return noised
