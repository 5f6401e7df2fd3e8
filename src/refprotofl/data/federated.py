"""The data of a federation: a public set, the private shares of clients, and test data.

The test data include a part with each client's own class mix, for the protocol `own`.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import InputError, stream
from refprotofl.data.dataset import Dataset, Indices, Inputs, Labels
from refprotofl.data.draws import balanced_draw, covered_classes, draw_from_own, draw_public, shuffled_classes
from refprotofl.data.feature_shift import noise_deviations, shift_features
from refprotofl.data.labelled_samples import LabelledSamples
from refprotofl.data.loading import load_dataset
from refprotofl.data.partitions import PartitionNotes, group, keep_owners, left_out_note, own_tests, partition
from refprotofl.data.reading import reading_of
from refprotofl.data.server_data import conform, load_server_data, overlaps
from refprotofl.data.unsplit import held_out_rows
from refprotofl.experiment import Experiment, Input


def split_like_training(test_labels: Labels, class_counts: NDArray[np.int64], seed: int) -> list[Indices]:
    """Return the sorted positions in `test_labels` of every client.

    Each class is divided among the clients in proportion to their training samples of it, `class_counts` (clients, C).
    A test sample of a class that any client holds has one owner, those of other classes have none.
    """
    clients, num_classes = class_counts.shape
    no_owner = clients
    owners = np.full(len(test_labels), no_owner, np.int64)
    members = shuffled_classes(test_labels, num_classes, stream(seed, "own-tests"))
    for number, positions in enumerate(members):
        if class_counts[:, number].any():
            shares = largest_remainder(class_counts[:, number], len(positions))
            owners[positions] = np.repeat(np.arange(clients), shares)
    return group(owners, clients + 1)[:clients]


def largest_remainder(weights: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Return whole shares of `total` in proportion to the weights; equal remainders favour the lower index."""
    exact = weights * total  # integers throughout, so that no rounding decides
    shares = exact // weights.sum()
    remainders = exact % weights.sum()
    first = np.argsort(-remainders, kind="stable")
    shares[first[: total - int(shares.sum())]] += 1
    return np.asarray(shares)


MOST_COUNTS = 20_000  # clients times classes, in a run's first event


@dataclass(frozen=True, eq=False)
class FederatedData:
    """One data set, divided between the public set, the clients and the tests."""

    dataset: Dataset
    public_indices: Indices  # of the training split, held by no client
    public_classes: tuple[int, ...]
    client_indices: list[Indices]
    test_indices: Indices  # in the test split, or in the training split if clients hold samples out
    own_test_indices: list[Indices]
    partition_notes: PartitionNotes
    client_names: tuple[str, ...] = ()  # of natural clients
    notes: tuple[str, ...] = ()  # for people: changes to the data, clients that were left out
    own_public: tuple[Inputs, Labels] | None = None  # a separate public set; else it is held out by `public_indices`
    validates: bool = False  # scores are on samples that clients hold out of training, never on the test split

    @property
    def num_clients(self) -> int:
        return len(self.client_indices)

    @property
    def public_size(self) -> int:
        return len(self.public_labels)

    @property
    def public_inputs(self) -> Inputs:
        if self.own_public is not None:
            return self.own_public[0]
        return self.dataset.train_inputs[self.public_indices]

    @property
    def public_labels(self) -> Labels:
        if self.own_public is not None:
            return self.own_public[1]
        return self.dataset.train_labels[self.public_indices]

    @property
    def test_inputs(self) -> Inputs:
        return (self.dataset.train_inputs if self.validates else self.dataset.test_inputs)[self.test_indices]

    @property
    def test_labels(self) -> Labels:
        return (self.dataset.train_labels if self.validates else self.dataset.test_labels)[self.test_indices]

    def class_counts(self) -> NDArray[np.int64]:
        """Return the numbers of training samples, (clients, C)."""
        return count_classes(self.dataset.train_labels, self.client_indices, self.dataset.num_classes)

    def partition_record(self) -> dict[str, Any]:
        """Return the notes on the partition and, unless they are too many, the class counts of each client."""
        record = {name: value for name, value in vars(self.partition_notes).items() if name != "shift" or value}
        if self.num_clients * self.dataset.num_classes > MOST_COUNTS:
            return record
        return {**record, "class_counts": self.class_counts().tolist()}


def load_federated(
    experiment: Experiment, data_dir: Path | None = None, seen_from: Path | None = None
) -> FederatedData:
    """Load the data of an experiment, with its separate public and test sets if it names such."""
    dataset = load_dataset(experiment.dataset, data_dir, experiment.seed, reading_of(experiment, seen_from))
    server = load_server_data(experiment, data_dir, seen_from)
    data = federate(experiment, conform(dataset, server), server.public)
    private = dataset.train_inputs[np.concatenate(data.client_indices)] if server.input is not None else None
    return replace(data, notes=(*data.notes, *overlaps(server, private)))


def under(data: FederatedData, seen: Input) -> FederatedData:
    """Return the data in the form of a resolved experiment: the tokens of its vocabulary."""
    dataset = under_input(data.dataset, seen)
    if data.own_public is None:
        return replace(data, dataset=dataset)
    inputs, labels = data.own_public
    fitted = seen.input_kind.fit(inputs, data.dataset.vocabulary, seen.shape, seen.vocabulary)
    return replace(data, dataset=dataset, own_public=(fitted, labels))


def under_input(dataset: Dataset, seen: Input) -> Dataset:
    """Return a data set in the form of a resolved experiment, whose kind and shape it has."""
    fit = partial(seen.input_kind.fit, vocabulary=dataset.vocabulary, shape=seen.shape, known=seen.vocabulary)
    train, test = fit(dataset.train_inputs), fit(dataset.test_inputs)
    return replace(dataset, train_inputs=train, test_inputs=test, vocabulary=seen.vocabulary)


def federate(experiment: Experiment, dataset: Dataset, own_public: LabelledSamples | None = None) -> FederatedData:
    """Limit the splits, hold out the public set, and partition the rest among clients or leave it with its owners.

    With a separate public set nothing is held out.
    """
    seed, public = experiment.seed, experiment.public
    if 0 < experiment.train_limit < dataset.num_classes:
        raise InputError(
            f"train-limit = {experiment.train_limit}: with {dataset.num_classes} classes it must be at least "
            f"{dataset.num_classes}, or 0 for all."
        )
    pool = limited(dataset.train_labels, dataset.num_classes, experiment.train_limit, seed, "train-limit")
    test = limited(dataset.test_labels, dataset.num_classes, experiment.evaluate.test_limit, seed, "test-limit")

    classes = covered_classes(dataset.num_classes, public.coverage, public.classes, seed)
    divide = _keep_natural if experiment.partition == "natural" else _draw_partition
    if own_public is not None:
        chosen, covered = draw_from_own(own_public.labels, dataset.class_names, public.per_class, classes, seed)
        data = replace(
            divide(experiment, dataset, pool, test),
            own_public=(own_public.inputs[chosen], own_public.labels[chosen]),
            public_classes=covered,
        )
    else:
        in_public = draw_public(dataset.train_labels[pool], dataset.class_names, public.per_class, classes, seed)
        data = replace(
            divide(experiment, dataset, np.delete(pool, in_public), test),
            public_indices=pool[in_public],
            public_classes=classes if len(in_public) else (),
        )
    return hold_out(data, experiment.validation, seed) if experiment.validation else data


def _draw_partition(experiment: Experiment, dataset: Dataset, private: Indices, test: Indices) -> FederatedData:
    """Return clients with shares drawn at random."""
    kind, seed = experiment.partition, experiment.seed
    assert kind != "natural"
    labels = dataset.train_labels[private]
    shares, notes = partition(
        kind, labels, experiment.clients, experiment.alpha, experiment.min_size, seed, experiment.classes_per_client
    )
    data = _without_public(experiment, dataset, [private[share] for share in shares], test, notes)
    return _shifted(data, experiment.shift, seed) if kind == "feature-shift" else data


def _shifted(data: FederatedData, shift: float, seed: int) -> FederatedData:
    """Return the same partition with each client's noise on its training and test samples."""
    deviations = noise_deviations(data.num_clients, shift)
    dataset = shift_features(data.dataset, data.client_indices, data.own_test_indices, deviations, seed)
    return replace(data, dataset=dataset, partition_notes=replace(data.partition_notes, shift=deviations))


def _keep_natural(experiment: Experiment, dataset: Dataset, private: Indices, test: Indices) -> FederatedData:
    """Return clients with the shares that the data set assigns to them."""
    least = experiment.least_samples
    kept, client_indices, notes = keep_owners(dataset, private, *least)
    data = _without_public(experiment, dataset, client_indices, test, notes)
    return replace(
        data,
        own_test_indices=data.own_test_indices if dataset.test_owners is None else own_tests(dataset, kept, test),
        client_names=tuple(dataset.client_names[number] for number in kept),
        notes=(*dataset.notes, *left_out_note(notes, *least)),
    )


def hold_out(data: FederatedData, share: float, seed: int) -> FederatedData:
    """Hold out a share of each client's samples for scoring; at least one, if another remains to train on."""
    kept, held = [], []
    for client, rows in enumerate(data.client_indices):
        chosen = _validation_rows(data.dataset, rows, share, stream(seed, "validation", client=client))
        held.append(np.sort(rows[chosen]))
        kept.append(np.sort(np.delete(rows, chosen)))
    scored = np.sort(np.concatenate(held))
    return replace(data, client_indices=kept, test_indices=scored, own_test_indices=held, validates=True)


def _validation_rows(dataset: Dataset, rows: Indices, share: float, draw: np.random.Generator) -> Indices:
    """Return the positions in a client's rows that it holds out: whole groups or the latest ones, if data have such."""
    groups, order = dataset.train_groups, dataset.train_order
    if groups is None and order is None:
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        return np.asarray(draw.permutation(len(rows))[:count])
    held = held_out_rows(
        dataset.train_labels[rows],
        np.zeros(len(rows), np.int64),  # all are this client's
        None if groups is None else groups[rows],
        None if order is None else order[rows],
        share,
        draw,
        "validation",
    )
    return np.flatnonzero(held)


def _without_public(
    experiment: Experiment, dataset: Dataset, client_indices: list[Indices], test: Indices, notes: PartitionNotes
) -> FederatedData:
    counts = count_classes(dataset.train_labels, client_indices, dataset.num_classes)
    own = split_like_training(dataset.test_labels[test], counts, experiment.seed)
    return FederatedData(
        dataset=dataset,
        public_indices=np.empty(0, np.int64),
        public_classes=(),
        client_indices=client_indices,
        test_indices=test,
        own_test_indices=[test[share] for share in own],
        partition_notes=notes,
        notes=dataset.notes,
    )


def count_classes(labels: Labels, client_indices: list[Indices], num_classes: int) -> NDArray[np.int64]:
    """Return the numbers of samples, (clients, C), in one count over all clients, so that many clients stay cheap."""
    clients = len(client_indices)
    owners = np.repeat(np.arange(clients), [len(indices) for indices in client_indices])
    cells = owners * num_classes + labels[np.concatenate(client_indices)]
    return np.bincount(cells, minlength=clients * num_classes).reshape(clients, num_classes)


def limited(labels: Labels, num_classes: int, limit: int, seed: int, purpose: str) -> Indices:
    """Return a class-balanced draw of `limit` positions, 0 for all."""
    return balanced_draw(labels, num_classes, limit or len(labels), stream(seed, purpose))
