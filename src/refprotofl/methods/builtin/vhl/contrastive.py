"""The supervised contrastive loss (Khosla et al. 2020)."""

import torch
from torch import Tensor

FAR = -1e9  # the similarity of a row to itself: exp makes it 0, while its gradient stays finite


def supcon(rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Mean over the rows of how unlikely their positives are among all other rows.

    `rows` (N, m) have length 1; the positives of a row are the other rows of its label. A row without any counts 0.
    """
    own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    similar = (rows @ rows.T / temperature).masked_fill(own, FAR)  # (N, N)
    log_shares = similar - similar.logsumexp(dim=1, keepdim=True)
    positive = (labels.unsqueeze(1) == labels) & ~own  # (N, N)
    each = log_shares.masked_fill(~positive, 0).sum(dim=1) / positive.sum(dim=1).clamp(min=1)  # (N,)
    return -each.mean()
