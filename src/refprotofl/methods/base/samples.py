"""Labelled inputs as rows of a set that is never copied."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """A client's samples: rows of the whole set, which is never copied."""

    sealed: ClassVar[bool] = False  # contents cannot be read, as single samples are protected
    inputs: Tensor  # (N, channels, H, W) uint8, on the device; the rest is on the CPU
    labels: Tensor  # (N,) int64
    rows: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def own_labels(self) -> Tensor:
        return self.labels[self.rows]

    @property
    def own_inputs(self) -> Tensor:
        return self.inputs_of(self.rows)

    def inputs_of(self, rows: Tensor) -> Tensor:
        """Return the inputs of some rows of the whole set, on the device."""
        return self.inputs[rows.to(self.inputs.device)]

    def relabelled(self, own_labels: Tensor) -> "Samples":
        """Return the same samples with other labels (n,)."""
        return Samples(self.inputs, self.labels.index_copy(0, self.rows, own_labels), self.rows)

    def joined(self, inputs: Tensor, labels: Tensor) -> "Samples":
        """Return these samples and more, as a new set."""
        inputs = torch.cat([self.own_inputs, inputs.to(self.inputs.device)])
        labels = torch.cat([self.own_labels, labels])
        return Samples(inputs, labels, torch.arange(len(labels)))
