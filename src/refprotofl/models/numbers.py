"""Normalisation of numbers by feature."""

import torch
from torch import Tensor

from refprotofl.experiment import Input


def by_feature(input: Input, axes: int) -> tuple[Tensor, Tensor]:
    """Return means and factors as (1, features, 1, …) for samples of `axes` axes."""
    view = (1, -1, *(1,) * (axes - 1))
    mean, std = (torch.tensor(values, dtype=torch.float64) for values in (input.mean, input.std))
    return mean.to(torch.float32).view(view), (1 / std).to(torch.float32).view(view)


def normalised(inputs: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """Map float32 (B, features, …) to mean 0 and deviation 1; a missing value (NaN) becomes 0, which is the mean."""
    return inputs.sub(mean).mul_(factor).nan_to_num_(0.0)
