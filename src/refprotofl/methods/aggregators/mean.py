"""The weighted mean of the papers: Eq. (7) for changes, Eqs. (14) and (15) for prototypes."""

from collections.abc import Iterable

import torch
from torch import Tensor

from refprotofl.methods import erpa
from refprotofl.methods.base.aggregation import Aggregator, Upload


class Mean(Aggregator):
    """The weighted mean, summed up as the uploads come. It bounds nothing: one client may move the vector anywhere.

    A coordinate that not all sent is averaged over its `senders`, or over all `participants`, so that what few send
    moves little. Where changes are divided by the clients' progress, the mean is scaled back by the mean progress.
    """

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        summed, senders = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
        total = effective = everywhere = 0.0  # sums of w_k, of w_k * progress_k, of w_k of those who sent all
        for upload in uploads:
            change = upload.weight / upload.progress * upload.change
            if upload.indices is None:
                summed += change
                everywhere += upload.weight
            else:
                summed.index_add_(0, upload.indices, change)
                senders.index_add_(0, upload.indices, torch.full_like(change, upload.weight))
            total += upload.weight
            effective += upload.weight * upload.progress
        if not total:
            return torch.full_like(summed, -0.0)
        if everywhere == total:
            return effective / total * summed / total
        senders += everywhere
        weights = senders if self.normalise == "senders" else torch.full_like(senders, total)
        mean = effective / total * summed / weights.clamp(min=torch.finfo(torch.float64).tiny)
        return torch.where(senders > 0, mean, -0.0)

    def merge(self, prototypes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        return erpa.global_prototypes(prototypes, counts)  # Eq. (15)

    def merge_public(self, prototypes: Tensor) -> Tensor:
        return erpa.external_prototypes(prototypes)  # Eq. (14)
