"""Means and deviations by feature that all models of a run normalise with, and where they come from."""

from dataclasses import dataclass

import numpy as np

from refprotofl.core import InputError
from refprotofl.core.inputs import Statistics
from refprotofl.core.moments import Moments, moments, pooled
from refprotofl.data import FederatedData
from refprotofl.data.loading import NAMES
from refprotofl.experiment import Experiment
from refprotofl.inputs import find_kind
from refprotofl.privacy.mechanisms import create_mechanism


@dataclass(frozen=True)
class Normalisation:
    """Means and deviations, and the rule that they follow; the rule is empty for a kind that has always one."""

    statistics: Statistics
    rule: str = ""


def find_normalisation(experiment: Experiment, data: FederatedData) -> Normalisation:
    kind = find_kind(data.dataset.kind)
    if kind.published:
        return Normalisation(_published(experiment, data))
    if not kind.normalised:
        return Normalisation(((), ()))
    source = source_of(experiment, data)
    if source == "clients":
        found = pooled(map(_sums, client_inputs(data)), kind.features(data.dataset.shape))
        return Normalisation(found.statistics(), "clients' sums")
    if source == "public":
        return Normalisation(kind.statistics(data.public_inputs), "public set")
    features = kind.features(data.dataset.shape)
    return Normalisation(((0.0,) * features, (1.0,) * features), "none")


def _published(experiment: Experiment, data: FederatedData) -> Statistics:
    """Return the mean and standard deviation of each channel.

    Those of a named data set are published. Of a user's own images they are an exact statistic of the clients' samples:
    under [privacy] the public images' take their place, or without any the middle of the range.
    """
    dataset = data.dataset
    if create_mechanism(experiment).exact_statistics or experiment.dataset in NAMES:
        return dataset.mean, dataset.std
    if data.public_size:
        return find_kind(dataset.kind).statistics(data.public_inputs)
    return (0.5,) * len(dataset.mean), (0.5,) * len(dataset.std)


def source_of(experiment: Experiment, data: FederatedData) -> str:
    """Return the source of statistics: clients, public or none; raise InputError if it cannot be had."""
    wanted, exact = experiment.data.statistics, create_mechanism(experiment).exact_statistics
    kind = find_kind(data.dataset.kind)
    if wanted == "auto":
        if kind.exchanges and exact and data.own_public is None:
            return "clients"
        return "public" if data.public_size else "none"
    if wanted == "clients" and not exact:
        raise InputError(
            'data.statistics = "clients": the clients would send exact sums of their samples, which [privacy] does not '
            'protect. Use data.statistics = "public" or "none".'
        )
    if wanted == "public" and not data.public_size:
        raise InputError(
            'data.statistics = "public": there is no public set; set public.per-class or public.dataset, or use '
            "another source."
        )
    return wanted


def client_inputs(data: FederatedData) -> list[np.ndarray]:
    """Return each client's training samples."""
    return [data.dataset.train_inputs[rows] for rows in data.client_indices]


def _sums(inputs: np.ndarray) -> Moments:
    return moments(inputs)
