"""Facts about the data that all models of a run need, and where they come from: means, deviations, a vocabulary.

In the first exchange each client sends sums of its own samples, and is sent the facts that follow from all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refprotofl.core import InputError, counted
from refprotofl.core.inputs import Facts, InputKind, Shape, Summary
from refprotofl.data import FederatedData
from refprotofl.data.loading import NAMES
from refprotofl.experiment import Experiment, Input
from refprotofl.inputs import find_kind
from refprotofl.privacy import create_mechanism

PHASE = "statistics"
RULES = {"clients": "clients' sums", "public": "public set", "none": "none"}


@dataclass(frozen=True)
class Exchanged:
    """The messages of one client in the first exchange, as they crossed."""

    client: int
    up: bytes
    down: bytes


@dataclass(frozen=True)
class DataFacts:
    """The facts, the rule that they follow, and the messages that it took."""

    facts: Facts
    rule: str
    exchanged: tuple[Exchanged, ...] = ()
    notes: tuple[str, ...] = ()  # for people


def find_facts(experiment: Experiment, data: FederatedData) -> DataFacts:
    kind, shape, most = find_kind(data.dataset.kind), data.dataset.shape, experiment.data.vocabulary
    if kind.published:
        return _published(experiment, data)
    source = source_of(experiment, data)
    if source == "clients":
        return first_exchange(experiment, data)
    if source == "public" and data.own_public is not None and kind.normalised:
        # Of the whole set, as in a deployment, not of the samples drawn from it.
        return DataFacts(Facts(data.dataset.mean, data.dataset.std), RULES[source])
    if source == "public":
        summary = kind.summarise(data.public_inputs, data.dataset.vocabulary, most)
        return DataFacts(kind.agree([summary], shape, most), RULES[source])
    features = kind.features(shape)
    note = f"The {kind.plural} are not normalised: without a public set there are only clients' sums, unprotected."
    notes = (note,) if experiment.data.statistics == "auto" else ()
    return DataFacts(Facts((0.0,) * features, (1.0,) * features), RULES[source], notes=notes)


def stored_facts(seen: Input) -> DataFacts:
    """Return the facts of a resolved experiment, which need not be found again."""
    return DataFacts(Facts(seen.mean, seen.std, seen.vocabulary), seen.normalisation)


def _published(experiment: Experiment, data: FederatedData) -> DataFacts:
    """Return the mean and standard deviation of each channel.

    Those of a named data set are published. Of a user's own images they are an exact statistic of the clients' samples:
    under [privacy] the public images' take their place, or without any the middle of the range.
    """
    dataset = data.dataset
    if create_mechanism(experiment).exact_statistics or experiment.dataset in NAMES:
        return DataFacts(Facts(dataset.mean, dataset.std), "data set")
    if data.public_size:
        return DataFacts(Facts(*find_kind(dataset.kind).statistics(data.public_inputs)), RULES["public"])
    return DataFacts(Facts((0.5,) * len(dataset.mean), (0.5,) * len(dataset.std)), "middle of the range")


def source_of(experiment: Experiment, data: FederatedData) -> str:
    """Return the source of the facts: clients, public or none; raise InputError if it cannot be had."""
    wanted, exact = experiment.data.statistics, create_mechanism(experiment).exact_statistics
    kind = find_kind(data.dataset.kind)
    if wanted == "auto" and kind.exchanges and exact and data.own_public is None:
        return "clients"
    if wanted == "auto" and (data.public_size or kind.normalised):
        return "public" if data.public_size else "none"
    if wanted == "clients" and not exact:
        raise InputError(
            'data.statistics = "clients": clients would send exact sums of their samples, which [privacy] does not '
            'protect. Use data.statistics = "public" or "none".'
        )
    if wanted == "public" and not data.public_size:
        raise InputError('data.statistics = "public": there is no public set; set public.per-class or public.dataset.')
    if wanted in ("auto", "none") and not kind.normalised:
        raise InputError(
            f'data.statistics = "{wanted}": {kind.plural} need a vocabulary. Take it from a public set '
            '(public.per-class above 0), or from what clients report in a first exchange: data.statistics = "clients".'
        )
    return wanted


def first_exchange(experiment: Experiment, data: FederatedData) -> DataFacts:
    """Let every client send its sums; those that cannot be right or are out of proportion do not count."""
    kind, shape, most = find_kind(data.dataset.kind), data.dataset.shape, experiment.data.vocabulary
    largest = experiment.max_samples or max(map(len, data.client_indices))
    sent = [_encode_summary(one) for one in _summaries(kind, data, most)]
    kept, notes = screened(kind, [_decode_summary(one) for one in sent], shape, largest, experiment.max_step)
    facts = kind.agree(kept, shape, most)
    down = _encode_summary(_facts_summary(facts))
    exchanged = tuple(Exchanged(client, up, down) for client, up in enumerate(sent))
    return DataFacts(facts, RULES["clients"], exchanged, notes)


def screened(
    kind: InputKind, summaries: Sequence[Summary], shape: Shape, largest: int, limit: float
) -> tuple[list[Summary], tuple[str, ...]]:
    """Return the clients' summaries that count, in their order, and a note on the others."""
    reasons: dict[int, str] = {}
    for client, summary in enumerate(summaries):
        try:
            kind.check_summary(summary, shape, largest)
        except ValueError as problem:
            reasons[client] = str(problem)
    sound = [client for client in range(len(summaries)) if client not in reasons]
    for position in kind.outliers([summaries[client] for client in sound], limit):
        reasons[sound[position]] = "out of proportion to the others"
    kept = [summary for client, summary in enumerate(summaries) if client not in reasons]
    if not kept:
        raise InputError(f"No client's sums of its samples count: {next(iter(reasons.values()))}.")
    first = [f"client {client}: {reason}" for client, reason in list(reasons.items())[:5]]
    note = f"The statistics leave out {counted(len(reasons), 'client')} ({'; '.join(first)})."
    return kept, (note,) if reasons else ()


def _summaries(kind: InputKind, data: FederatedData, most: int) -> Iterator[Summary]:
    """Yield each client's summary; one client's samples are copied at a time."""
    for rows in data.client_indices:
        yield kind.summarise(data.dataset.train_inputs[rows], data.dataset.vocabulary, most)


def _facts_summary(facts: Facts) -> Summary:
    """Return the facts as the clients are sent them."""
    if facts.vocabulary:
        return {"vocabulary": "\n".join(facts.vocabulary)}
    return {"mean": np.array(facts.mean), "std": np.array(facts.std)}


# torch is imported where messages are made: listing methods and drawing partitions get by without it.


def _encode_summary(summary: Summary) -> bytes:
    import torch

    from refprotofl.wire import encode

    return encode({name: one if isinstance(one, str) else torch.from_numpy(one) for name, one in summary.items()})


def _decode_summary(payload: bytes) -> Summary:
    import torch

    from refprotofl.wire import decode

    found: dict[str, Any] = {
        name: one.numpy() if isinstance(one, torch.Tensor) else one for name, one in decode(payload).items()
    }
    return found
