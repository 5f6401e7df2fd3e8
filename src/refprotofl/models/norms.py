"""Normalisation layers, by the experiment's `model.norm`."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

Norm = Literal["group", "batch-local", "none"]


class LocalBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics never leave the client; one single value has no statistics of its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and inputs.numel() == inputs.shape[1]:
            statistics = (self.running_mean, self.running_var)
            return functional.batch_norm(inputs, *statistics, self.weight, self.bias, eps=self.eps)
        return super().forward(inputs)

    def _check_input_dim(self, input: Tensor) -> None:
        """(B, channels) of a fully connected layer is fine too."""


def norm_layer(norm: Norm, channels: int) -> nn.Module:
    if norm == "group":
        groups = max(count for count in range(1, 33) if channels % count == 0)
        return nn.GroupNorm(groups, channels)
    if norm == "batch-local":
        return LocalBatchNorm(channels)
    return nn.Identity()
