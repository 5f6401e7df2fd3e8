"""Data sets of the server: separate public samples, and separate test samples."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from refprotofl.core import InputError
from refprotofl.core.inputs import Facts, fill_gaps
from refprotofl.data.dataset import Dataset, Inputs
from refprotofl.data.labelled_samples import LabelledSamples, load_labelled, renumbered
from refprotofl.data.reading import Reading, reading_of
from refprotofl.experiment import Experiment, Input
from refprotofl.inputs import find_kind


@dataclass(frozen=True, eq=False)
class ServerData:
    """The separate sets of an experiment; `input` describes their samples, None if there are none."""

    public: LabelledSamples | None = None
    test: LabelledSamples | None = None
    input: Input | None = None


def load_server_data(experiment: Experiment, data_dir: Path | None, seen_from: Path | None = None) -> ServerData:
    """Load both sets with common class numbers: the classes of the public set, then those of the test set alone."""
    reading = reading_of(experiment, seen_from)
    public = _load(experiment.public.dataset, "public.dataset", experiment, data_dir, reading)
    test = _load(experiment.test.dataset, "test.dataset", experiment, data_dir, reading)
    if test is not None and test.test is not None:
        test = test.test  # of a whole data set, its test split
    first = public if public is not None else test
    if first is None:
        return ServerData()
    names = tuple(dict.fromkeys([*first.class_names, *(test.class_names if test is not None else ())]))
    kind, most = find_kind(first.kind), experiment.data.vocabulary
    facts = Facts(first.mean, first.std, first.vocabulary)
    if len(first.vocabulary) > most:
        facts = kind.agree([kind.summarise(first.inputs, first.vocabulary, most)], first.shape, most)
    input = Input(
        class_names=names,
        shape=first.shape,
        mean=facts.mean,
        std=facts.std,
        kind=first.kind,
        normalisation="" if kind.published else "public set",
        vocabulary=facts.vocabulary,
        feature_names=first.feature_names,
    )
    return ServerData(_renumbered(public, input, "public"), _renumbered(test, input, "test"), input)


def conform(dataset: Dataset, server: ServerData) -> Dataset:
    """Return the data set with the classes and statistics of the server's sets, and its test set if there is one."""
    if server.input is None:
        return dataset
    whole = LabelledSamples(
        dataset.train_inputs,
        dataset.train_labels,
        dataset.class_names,
        dataset.mean,
        dataset.std,
        kind=dataset.kind,
        vocabulary=dataset.vocabulary,
        feature_names=dataset.feature_names,
    )
    input = server.input
    train = renumbered(whole, input, "dataset")
    test = server.test
    if test is None:
        own = replace(whole, inputs=dataset.test_inputs, labels=dataset.test_labels)
        test = renumbered(own, input, "dataset")
    return replace(
        dataset,
        train_inputs=train.inputs,
        train_labels=train.labels,
        test_inputs=test.inputs,
        test_labels=test.labels,
        class_names=input.class_names,
        mean=input.mean,
        std=input.std,
        vocabulary=input.vocabulary,
        test_owners=dataset.test_owners if server.test is None else None,
    )


def overlaps(server: ServerData, private: Inputs | None = None) -> Iterator[str]:
    """Yield a sentence for every two sets that have samples in common."""
    plural = server.input.input_kind.plural if server.input is not None else ""
    sets = {
        "public": None if server.public is None else _digests(server.public.inputs),
        "test": None if server.test is None else _digests(server.test.inputs),
        "training": None if private is None else _digests(private),
    }
    for one, other in (("public", "training"), ("public", "test"), ("test", "training")):
        first, second = sets[one], sets[other]
        common = len(first & second) if first is not None and second is not None else 0
        if common:
            yield f"{common} of the {one} {plural} are also {other} {plural}, so scores on them are not on unseen data."


def _load(
    name: str, key: str, experiment: Experiment, data_dir: Path | None, reading: Reading
) -> LabelledSamples | None:
    return load_labelled(name, key, data_dir, reading, experiment.seed) if name else None


def _renumbered(found: LabelledSamples | None, input: Input, key: str) -> LabelledSamples | None:
    if found is None:
        return None
    if found.kind == input.kind and len(found.mean) != len(input.mean):
        raise InputError(f"{key}.dataset: its samples have another number of features than those of the other set.")
    numbered = renumbered(found, input, f"{key}.dataset")
    return replace(numbered, inputs=fill_gaps(numbered.inputs, input.mean))


def _digests(inputs: Inputs) -> set[bytes]:
    return {blake2b(np.ascontiguousarray(one).tobytes(), digest_size=16).digest() for one in inputs}
