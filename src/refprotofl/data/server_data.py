"""Sets that are the user's own: public images that no client had to give, and what a server tests on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from refprotofl.core.errors import InputError
from refprotofl.data.dataset import Dataset, Images
from refprotofl.data.labelled_images import LabelledImages, load_labelled, renumbered
from refprotofl.data.reading import Reading, reading_of
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Input


@dataclass(frozen=True, eq=False)
class Apart:
    """`seen`: what images look like by them; None if there are none."""

    public: LabelledImages | None = None
    test: LabelledImages | None = None
    seen: Input | None = None


def load_apart(experiment: Experiment, data_dir: Path | None, seen_from: Path | None = None) -> Apart:
    """Both under one numbering of classes: those of the public set, then what only the test set has."""
    reading = reading_of(experiment, seen_from)
    public = _load(experiment.public.dataset, "public.dataset", experiment, data_dir, reading)
    test = _load(experiment.test.dataset, "test.dataset", experiment, data_dir, reading)
    if test is not None and test.test is not None:
        test = test.test  # a whole data set lends the split that is made for it
    first = public if public is not None else test
    if first is None:
        return Apart()
    names = tuple(dict.fromkeys([*first.class_names, *(test.class_names if test is not None else ())]))
    seen = Input(class_names=names, shape=first.shape, mean=first.mean, std=first.std)
    return Apart(_renumbered(public, seen, "public"), _renumbered(test, seen, "test"), seen)


def conform(dataset: Dataset, apart: Apart) -> Dataset:
    """The data set under the classes and statistics of the sets apart, with their test set if there is one."""
    if apart.seen is None:
        return dataset
    whole = LabelledImages(dataset.train_images, dataset.train_labels, dataset.class_names, dataset.mean, dataset.std)
    seen = apart.seen
    train = renumbered(whole, seen.class_names, seen.shape, "dataset")
    test = apart.test
    if test is None:
        own = replace(whole, images=dataset.test_images, labels=dataset.test_labels)
        test = renumbered(own, seen.class_names, seen.shape, "dataset")
    return replace(
        dataset,
        train_labels=train.labels,
        test_images=test.images,
        test_labels=test.labels,
        class_names=seen.class_names,
        mean=seen.mean,
        std=seen.std,
        test_owners=dataset.test_owners if apart.test is None else None,
    )


def overlaps(apart: Apart, private: Images | None = None) -> Iterator[str]:
    """A sentence for every two sets that have images in common."""
    sets = {
        "public": None if apart.public is None else _digests(apart.public.images),
        "test": None if apart.test is None else _digests(apart.test.images),
        "training": None if private is None else _digests(private),
    }
    for one, other in (("public", "training"), ("public", "test"), ("test", "training")):
        first, second = sets[one], sets[other]
        common = len(first & second) if first is not None and second is not None else 0
        if common:
            yield f"{common} of the {one} images are among the {other} images too, so what is scored there is not new."


def _load(
    name: str, key: str, experiment: Experiment, data_dir: Path | None, reading: Reading
) -> LabelledImages | None:
    return load_labelled(name, key, data_dir, reading, experiment.seed) if name else None


def _renumbered(found: LabelledImages | None, seen: Input, key: str) -> LabelledImages | None:
    if found is None:
        return None
    if len(found.mean) != len(seen.mean):
        raise InputError(f"{key}.dataset has images with another number of channels than the other set apart.")
    return renumbered(found, seen.class_names, seen.shape, f"{key}.dataset")


def _digests(images: Images) -> set[bytes]:
    return {blake2b(np.ascontiguousarray(image).tobytes(), digest_size=16).digest() for image in images}
