"""One data set as a federation sees it: a public set, clients' private shares, and test data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refprotofl.basics.streams import stream
from refprotofl.data.dataset import Dataset, Images, Indices, Labels
from refprotofl.data.draws import balanced_draw
from refprotofl.data.own_tests import split_like_training
from refprotofl.data.partitions import PartitionNotes, partition
from refprotofl.data.public_set import covered_classes, draw_public
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment


@dataclass(frozen=True, eq=False)
class FederatedData:
    dataset: Dataset
    public_indices: Indices  # of the training split, held by no client
    public_classes: tuple[int, ...]
    client_indices: list[Indices]
    test_indices: Indices  # the evaluated part of the test split
    own_test_indices: list[Indices]
    partition_notes: PartitionNotes

    @property
    def num_clients(self) -> int:
        return len(self.client_indices)

    @property
    def public_images(self) -> Images:
        return self.dataset.train_images[self.public_indices]

    @property
    def public_labels(self) -> Labels:
        return self.dataset.train_labels[self.public_indices]

    @property
    def test_images(self) -> Images:
        return self.dataset.test_images[self.test_indices]

    @property
    def test_labels(self) -> Labels:
        return self.dataset.test_labels[self.test_indices]

    def class_counts(self) -> NDArray[np.int64]:
        """(clients, C) training samples."""
        return count_classes(self.dataset.train_labels, self.client_indices, self.dataset.num_classes)


def federate(experiment: Experiment, dataset: Dataset) -> FederatedData:
    """Limit the splits, hold the public set out, deal the rest to the clients, all by the seed."""
    seed, public = experiment.seed, experiment.public
    if 0 < experiment.train_limit < dataset.num_classes:
        raise InputError(
            f"train-limit = {experiment.train_limit}: with {dataset.num_classes} classes it must be "
            f"{dataset.num_classes} at least, or 0 for all."
        )
    pool = _limited(dataset.train_labels, dataset.num_classes, experiment.train_limit, seed, "train-limit")
    test = _limited(dataset.test_labels, dataset.num_classes, experiment.evaluate.test_limit, seed, "test-limit")

    classes = covered_classes(dataset.num_classes, public.coverage, public.classes, seed)
    in_public = draw_public(dataset.train_labels[pool], dataset.class_names, public.per_class, classes, seed)
    private = np.delete(pool, in_public)

    shares, notes = partition(
        experiment.partition,
        dataset.train_labels[private],
        experiment.clients,
        experiment.alpha,
        experiment.min_size,
        seed,
    )
    client_indices = [private[share] for share in shares]
    counts = count_classes(dataset.train_labels, client_indices, dataset.num_classes)
    own_tests = split_like_training(dataset.test_labels[test], counts, seed)
    return FederatedData(
        dataset=dataset,
        public_indices=pool[in_public],
        public_classes=classes if len(in_public) else (),
        client_indices=client_indices,
        test_indices=test,
        own_test_indices=[test[share] for share in own_tests],
        partition_notes=notes,
    )


def count_classes(labels: Labels, client_indices: list[Indices], num_classes: int) -> NDArray[np.int64]:
    """(clients, C) samples; one count over all of them, so that many clients stay cheap."""
    clients = len(client_indices)
    owners = np.repeat(np.arange(clients), [len(indices) for indices in client_indices])
    cells = owners * num_classes + labels[np.concatenate(client_indices)]
    return np.bincount(cells, minlength=clients * num_classes).reshape(clients, num_classes)


def _limited(labels: Labels, num_classes: int, limit: int, seed: int, purpose: str) -> Indices:
    return balanced_draw(labels, num_classes, limit or len(labels), stream(seed, purpose))
