"""The prototypes of several clients become one anchor for each class, by the rule that the experiment names."""

import torch
from torch import Tensor

from refprotofl.experiment import Experiment
from refprotofl.methods import erpa
from refprotofl.methods.core.robust import centre


def with_quorum(experiment: Experiment, counts: Tensor) -> Tensor:
    """The counts (clients, C), 0 for a class that fewer clients sent than `min-senders`: it counts as unsent."""
    return counts * ((counts > 0).sum(dim=0) >= experiment.min_senders)


def merge(experiment: Experiment, prototypes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Each class over the clients that sent it, Eq. (15): (clients, C, m), (clients, C) -> (C, m), defined (C,).

    The mean and `clipped` weigh by the counts; for the other rules they only tell who sent a class.
    """
    if experiment.aggregate == "mean":
        return erpa.global_prototypes(prototypes, counts)
    defined = (counts > 0).any(dim=0)
    merged = torch.zeros_like(prototypes[0])
    for label in defined.nonzero().squeeze(1).tolist():
        held = counts[:, label] > 0
        merged[label] = centre(experiment, prototypes[held, label], counts[held, label]).to(merged.dtype)
    return merged, defined


def merge_public(experiment: Experiment, prototypes: Tensor) -> Tensor:
    """Prototypes of what all clients have, every client alike, Eq. (14): (clients, C, m) -> (C, m)."""
    if experiment.aggregate == "mean":
        return erpa.external_prototypes(prototypes)
    return merge(experiment, prototypes, torch.ones(prototypes.shape[:2], dtype=torch.int64))[0]
