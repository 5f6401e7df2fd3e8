"""The data set that every source yields: two splits of uint8 images in memory, with their labels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]  # (N, channels, height, width)
Labels = NDArray[np.int64]  # (N,), 0..C-1
Indices = NDArray[np.int64]  # sorted positions in a split
Owners = NDArray[np.int64]  # (N,) the client of every sample


@dataclass(frozen=True, eq=False)
class Dataset:
    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, on the 0..1 scale
    std: tuple[float, ...]
    # Where the source assigns samples to clients:
    client_names: tuple[str, ...] = ()
    train_owners: Owners | None = None
    test_owners: Owners | None = None
    notes: tuple[str, ...] = ()  # changes to the data while they were read, for people

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return channels, height and width of one image."""
        _, channels, height, width = self.train_images.shape
        return channels, height, width


def channel_statistics(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel on the 0..1 scale."""
    means, stds = [], []
    for channel in range(images.shape[1]):
        # Counting the 256 values is exact and needs no float copy; in parts, because numpy counts in 8 bytes a value.
        parts = np.array_split(images[:, channel], 1 + len(images) // 4096)
        counts = np.sum([np.bincount(part.ravel(), minlength=256) for part in parts], axis=0)
        values = np.arange(256) / 255
        mean = float(counts @ values / counts.sum())
        variance = float(counts @ (values - mean) ** 2 / counts.sum())
        means.append(mean)
        # A constant channel has no deviation; 1 keeps it finite when it is divided by.
        stds.append(variance**0.5 if variance > 1e-12 else 1.0)
    return tuple(means), tuple(stds)
