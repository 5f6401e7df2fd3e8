"""The side of an input kind that needs torch: how samples become a backbone's input, and its backbones."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from refprotofl.core.discovery import find_class
from refprotofl.experiment import Input, Model

Backbone = tuple[nn.Module, int]  # with the width of its features
FORWARD_BATCH = 512  # samples per forward pass outside of training


class InputModel(ABC):
    """An input kind's normalisation and backbones, for the data of one experiment."""

    prepared = torch.float32  # type of a backbone's input

    def __init__(self, input: Input) -> None:
        self.input = input

    @abstractmethod
    def constants(self) -> tuple[Tensor, ...]:
        """Return what `prepare` needs in addition to the samples; it is moved with the model."""

    @abstractmethod
    def prepare(self, inputs: Tensor, *constants: Tensor) -> Tensor:
        """Map samples (B, …) to the input of the backbone."""

    @abstractmethod
    def backbones(self, table: Model) -> Mapping[str, Callable[[], Backbone]]:
        """Return functions that build the backbones of this kind, by name."""

    def arguments(self) -> tuple[object, ...]:
        """Return what a user's own function is called with to build a backbone."""
        return (self.input.shape,)

    @property
    def forward_batch(self) -> int:
        """Return the number of samples in a forward pass outside of training."""
        return FORWARD_BATCH

    def blank(self, count: int) -> Tensor:
        """Return a backbone's input of zeros."""
        return torch.zeros(count, *self.input.shape, dtype=self.prepared)


def input_model(input: Input) -> InputModel:
    kind = find_class(input.kind, "refprotofl.models.inputs", f"{__name__}:InputModel", "input.kind")
    made: InputModel = kind(input)
    return made


def no_samples(input: Input) -> tuple[Tensor, Tensor]:
    """Return inputs (0, …) and labels (0,)."""
    return torch.zeros(0, *input.shape, dtype=type_of(input)), torch.zeros(0, dtype=torch.int64)


def type_of(input: Input) -> torch.dtype:
    """Return the type of samples as tensors."""
    found: torch.dtype = getattr(torch, input.dtype)
    return found
