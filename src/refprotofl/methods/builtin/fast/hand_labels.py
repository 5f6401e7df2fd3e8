"""The samples that are labelled by hand: how many of which class at which client, and how they are sent."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.data.draws import level
from refprotofl.methods.core.fields import Dense, Fields, Received, whole_numbers
from refprotofl.methods.core.messages import class_ids
from refprotofl.methods.core.refusal import Refused
from refprotofl.wire import Message

LEAST_SEEDS = 5  # hand-labelled samples of a class, where it has that many


def seed_quotas(
    counts: NDArray[np.int64], share: float, held: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """How many samples of each class each client labels by hand, (clients, C), of those it has, `counts`.

    Over all clients `share` of the samples, the classes as equal as they can be, with what is `held` (C,) already
    LEAST_SEEDS of each at least. A class's quota falls on the clients as if drawn from all its samples at random.
    """
    totals = counts.sum(axis=0)
    by_class = level(totals, round(share * int(totals.sum())), generator.permutation(len(totals)))
    by_class = np.minimum(totals, np.maximum(by_class, LEAST_SEEDS - held))
    drawn = [generator.multivariate_hypergeometric(*one) for one in zip(counts.T, by_class, strict=True)]
    return np.stack(drawn, axis=1)


def own_quotas(labels: Tensor, share: float, num_classes: int, generator: np.random.Generator) -> Tensor:
    """The quotas (C,) of a client that labels for itself alone."""
    counts = labels.bincount(minlength=num_classes).numpy()
    return torch.from_numpy(seed_quotas(counts[None], share, np.zeros_like(counts), generator)[0])


def draw_seeds(labels: Tensor, quotas: Tensor, generator: np.random.Generator) -> Tensor:
    """Positions of a client's hand-labelled samples, sorted: of each class its quota, at random."""
    order = torch.from_numpy(generator.permutation(len(labels)))
    chosen = [order[labels[order] == number][:quota] for number, quota in enumerate(quotas.tolist())]
    return torch.cat(chosen).sort().values


def write_seeds(embeddings: Tensor, labels: Tensor, num_classes: int) -> Message:
    return {"embeddings": embeddings, "labels": class_ids(labels, num_classes)}


def seed_fields(num_classes: int) -> Fields:
    """What `write_seeds` writes; nothing from who was asked for none."""
    labels = whole_numbers(None, low=0, high=num_classes - 1, optional=True)
    return {"embeddings": Dense((None, None), optional=True), "labels": labels}


def read_seeds(message: Received, quotas: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Embeddings (n, width) and labels (n,) of exactly the classes that the quotas (C,) ask for."""
    rows, labels = message.tensor("embeddings"), message.tensor("labels").long()
    if rows.shape[1] != width:
        raise Refused(f"embeddings are {rows.shape[1]} wide, not {width}")
    asked = torch.arange(len(quotas)).repeat_interleave(quotas)
    if len(rows) != len(asked) or not labels.sort().values.equal(asked):
        raise Refused("the labels are not of the classes that were asked for")
    return rows, labels


def read_counts(message: Received) -> Tensor:
    """Samples of each class, (C,)."""
    counts = message.tensor("counts").long()
    if not 0 < int(counts.sum()) <= message.whole("samples"):
        raise Refused("the counts do not add up to the samples")
    return counts
