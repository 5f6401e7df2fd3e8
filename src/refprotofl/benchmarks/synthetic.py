"""Images to measure on: shaped like Fashion-MNIST, made on the spot, so that no benchmark waits for a download."""

import numpy as np

from refprotofl.basics.streams import stream
from refprotofl.data.dataset import Dataset, Images, Labels, channel_statistics

CLASSES = 10
SIDE = 28
TESTS = 1000
SAMPLES, MANY_SAMPLES = 6500, 110_000

IMAGES = f"{__name__}:images"  # as in dataset = …
MANY_IMAGES = f"{__name__}:many_images"


def images() -> Dataset:
    return make_images(SAMPLES)


def many_images() -> Dataset:
    return make_images(MANY_SAMPLES)


def make_images(samples: int, tests: int = TESTS) -> Dataset:
    """A coarse pattern for each class under noise: a model learns it, and its losses stay finite."""
    generator = stream(0, "synthetic-images")
    coarse = generator.integers(0, 128, (CLASSES, 1, 7, 7), dtype=np.uint8)
    patterns = coarse.repeat(SIDE // 7, axis=2).repeat(SIDE // 7, axis=3)  # (C, 1, 28, 28)

    def split(count: int) -> tuple[Images, Labels]:
        labels = np.arange(count, dtype=np.int64) % CLASSES
        drawn = generator.integers(0, 128, (count, 1, SIDE, SIDE), dtype=np.uint8)
        drawn += patterns[labels]
        return drawn, labels

    train, test = split(samples), split(tests)
    names = tuple(str(number) for number in range(CLASSES))
    return Dataset(*train, *test, names, *channel_statistics(train[0]))
