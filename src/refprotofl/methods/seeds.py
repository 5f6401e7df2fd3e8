"""The samples that are labelled by hand: how many of which class at which client, and how they are sent."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.data.draws import level
from refprotofl.methods.base import Refused, class_ids
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


def read_seeds(message: Message, quotas: Tensor, width: int | None) -> tuple[Tensor, Tensor]:
    """Embeddings (n, width) and labels (n,) of exactly the classes that the quotas (C,) ask for."""
    rows, labels = message["embeddings"], message["labels"]
    if not isinstance(rows, Tensor) or rows.dtype != torch.float32 or rows.dim() != 2:
        raise Refused("embeddings is not a float32 matrix")
    if not torch.isfinite(rows).all() or width not in (None, rows.shape[1]):
        raise Refused("embeddings are not finite, or not as wide as those of others")
    asked = torch.arange(len(quotas)).repeat_interleave(quotas)
    if not isinstance(labels, Tensor) or len(rows) != len(asked) or not labels.long().sort().values.equal(asked):
        raise Refused("the labels are not of the classes that were asked for")
    return rows, labels.long()


def read_counts(message: Message, num_classes: int) -> Tensor:
    """Samples of each class, (C,)."""
    counts = message["counts"]
    if not isinstance(counts, Tensor) or counts.dtype != torch.int32 or counts.shape != (num_classes,):
        raise Refused(f"counts is not a vector of {num_classes} whole numbers")
    if bool((counts < 0).any()) or not counts.any():
        raise Refused("counts are below 0, or all of them are 0")
    return counts.long()
