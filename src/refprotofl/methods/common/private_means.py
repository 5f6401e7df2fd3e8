"""Class means of a client's own samples: as they are, or noised where single samples are protected."""

import math

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods import erpa
from refprotofl.methods.core.client import Client

SURE = 3.0  # standard deviations of noise that a class's count must stand out by


def class_means(
    client: Client, round: int, embeddings: Tensor, labels: Tensor, *, without: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(n, m), (n,) -> means (C, m) and counts (C,); `without`: classes that no sample is of, as everybody knows."""
    table = client.experiment.privacy
    if table.unit != "sample":
        return erpa.class_prototypes(embeddings, labels, client.num_classes)
    if without is not None and len(without) == client.num_classes:  # nothing is told, so nothing is spent
        return torch.zeros(client.num_classes, embeddings.shape[1]), torch.zeros(client.num_classes, dtype=torch.int64)
    draw = client.stream("privacy/means", round)
    means, counts = noised_means(embeddings, labels, client.num_classes, table.prototype_clip, table.noise, draw)
    if without is not None:
        counts[without] = 0
    return means * (counts > 0).unsqueeze(1), counts


def noised_means(
    embeddings: Tensor, labels: Tensor, num_classes: int, clip: float, noise: float, draw: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """One Gaussian mechanism over the sums of shortened embeddings and the counts of all classes.

    A count is worth `clip` of an embedding's length, so that a sample moves the whole by clip * sqrt(2) at most. A
    class whose noised count does not stand out counts as absent, but for the largest: somebody must be served.
    """
    short = embeddings * (clip / embeddings.norm(dim=1, keepdim=True).clamp(min=clip))
    sums = torch.zeros(num_classes, embeddings.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels, short.to(torch.float64))
    spread = noise * math.sqrt(2)
    sums += spread * clip * torch.from_numpy(draw.standard_normal(tuple(sums.shape)))
    counts = torch.bincount(labels, minlength=num_classes) + spread * torch.from_numpy(
        draw.standard_normal(num_classes)
    )
    held = counts >= max(1.0, SURE * spread)
    held[counts.argmax()] = True
    means = torch.where(held.unsqueeze(1), sums / counts.clamp(min=1).unsqueeze(1), 0.0)
    return means.to(torch.float32), torch.where(held, counts.round().clamp(min=1), 0).long()
