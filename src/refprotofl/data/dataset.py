"""The data set that every source yields: two splits of samples of one kind in memory, with their labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.inputs import IMAGE

Inputs = NDArray[Any]  # (N, …), of the type and axes of their kind
Images = NDArray[np.uint8]  # (N, channels, height, width)
Labels = NDArray[np.int64]  # (N,), 0..C-1
Indices = NDArray[np.int64]  # sorted positions in a split
Owners = NDArray[np.int64]  # (N,) the client of every sample


@dataclass(frozen=True, eq=False)
class Dataset:
    train_inputs: Inputs
    train_labels: Labels
    test_inputs: Inputs
    test_labels: Labels
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # per channel of images, on the 0..1 scale; those of other kinds are the federation's
    std: tuple[float, ...]
    # Where the source assigns samples to clients:
    client_names: tuple[str, ...] = ()
    train_owners: Owners | None = None
    test_owners: Owners | None = None
    notes: tuple[str, ...] = ()  # changes to the data while they were read, for people
    kind: str = IMAGE
    vocabulary: tuple[str, ...] = ()  # of tokens, as the source numbers them
    feature_names: tuple[str, ...] = ()  # of a table's columns
    train_groups: NDArray[np.int64] | None = None  # (N,) samples of one group stay on one side of a split
    train_order: NDArray[np.float64] | None = None  # (N,) the latest samples are held out
    test_rows: NDArray[np.int64] | None = None  # (T,) positions in a source that had no split

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample."""
        return self.train_inputs.shape[1:]
