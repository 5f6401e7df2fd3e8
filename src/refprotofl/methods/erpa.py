"""External-Referenced Prototype Alignment: class prototypes, anchors and the alignment loss."""

import torch
from torch import Tensor


def class_prototypes(embeddings: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean embedding and the sample count of every class, Eqs. (10), (11).

    (B, m), (B,) -> (C, m), (C,); an absent class has a zero row and count 0.
    """
    sums = torch.zeros(num_classes, embeddings.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels, embeddings.to(torch.float64))
    counts = torch.bincount(labels, minlength=num_classes)  # (C,)
    means = sums / counts.clamp(min=1).unsqueeze(1)
    return means.to(embeddings.dtype), counts


def external_prototypes(public_prototypes: Tensor) -> Tensor:
    """Return the uniform mean over the clients, Eq. (14): (clients, C, m) -> (C, m)."""
    return public_prototypes.to(torch.float64).mean(dim=0).to(public_prototypes.dtype)


def global_prototypes(prototypes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over the clients that hold the class, weighted by their sample counts, Eq. (15).

    (clients, C, m), (clients, C) -> (C, m), defined (C,); rows of clients without the class are not read.
    """
    weights = counts.to(torch.float64).unsqueeze(2)  # (clients, C, 1)
    held = torch.where(weights > 0, prototypes.to(torch.float64), 0.0)
    total = weights.sum(dim=0)  # (C, 1)
    means = (weights * held).sum(dim=0) / total.clamp(min=1)
    return means.to(prototypes.dtype), (total > 0).squeeze(1)


def alignment_loss(embeddings: Tensor, labels: Tensor, anchors: Tensor, defined: Tensor) -> Tensor:
    """Return the batch mean of the squared distance to the own class's anchor, Eq. (17).

    A sample whose class has no anchor contributes 0. Anchors are chosen, not multiplied by 0: they may be NaN.
    """
    known = torch.where(defined.unsqueeze(1), anchors, 0.0)  # (C, m)
    distances = (embeddings - known[labels]).square().sum(dim=1)  # (B,)
    return torch.where(defined[labels], distances, 0.0).mean()
