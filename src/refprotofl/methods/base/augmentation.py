"""Augmentations (`train.augment`): random changes of a batch's samples before the model sees them.

Each declares the kinds of input that it applies to. Its draws come from a stream of its own, so that batches are the
same with it and without. A sample's change depends on no other sample, so that under [privacy] a sample still changes
one gradient alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import InputError
from refprotofl.experiment import Experiment, Input
from refprotofl.inputs import find_kind

Augment = Callable[[Tensor], Tensor]  # a batch of samples (B, …) -> the same shape

SIDES = 8  # a crop moves by up to this part of a side: 4 of 32 pixels
SPREAD = 0.05  # of jitter, in standard deviations of a channel's values


class Augmentation(ABC):
    """A random change of samples."""

    kinds: ClassVar[tuple[str, ...]]  # of input

    @abstractmethod
    def apply(self, inputs: Tensor, known: Input, draw: np.random.Generator) -> Tensor:
        """Return changed samples (B, …) of the same shape and type; `known` are the facts about the data."""


class Crop(Augmentation):
    """A crop of the image's size, out of the image with a black border of an eighth of its sides."""

    kinds = ("image",)

    def apply(self, inputs: Tensor, known: Input, draw: np.random.Generator) -> Tensor:
        count, _, height, width = inputs.shape
        above, left = max(1, height // SIDES), max(1, width // SIDES)
        padded = functional.pad(inputs, (left, left, above, above))  # (B, channels, H + 2 above, W + 2 left)
        tops, lefts = (torch.from_numpy(draw.integers(0, 2 * one + 1, count)) for one in (above, left))
        rows = (tops[:, None] + torch.arange(height)).to(inputs.device)  # (B, H)
        columns = (lefts[:, None] + torch.arange(width)).to(inputs.device)  # (B, W)
        each = torch.arange(count, device=inputs.device)[:, None, None]
        return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


class Flip(Augmentation):
    """Every other image mirrored, by chance."""

    kinds = ("image",)

    def apply(self, inputs: Tensor, known: Input, draw: np.random.Generator) -> Tensor:
        mirrored = torch.from_numpy(draw.random(len(inputs)) < 0.5).to(inputs.device)  # (B,)
        return torch.where(mirrored.view(-1, *[1] * (inputs.dim() - 1)), inputs.flip(-1), inputs)


class Jitter(Augmentation):
    """Normal noise on each value, in proportion to its channel's spread; missing values stay missing."""

    kinds = ("series",)

    def apply(self, inputs: Tensor, known: Input, draw: np.random.Generator) -> Tensor:
        noise = torch.from_numpy(draw.standard_normal(tuple(inputs.shape), dtype=np.float32)).to(inputs.device)
        deviations = torch.tensor(known.std or (1.0,) * inputs.shape[1], device=inputs.device)
        return inputs + SPREAD * deviations.view(1, -1, 1) * noise  # (B, channels, steps)


AUGMENTATIONS: dict[str, Augmentation] = {"crop": Crop(), "flip": Flip(), "jitter": Jitter()}


def augmenter(experiment: Experiment, streams: Callable[[str], np.random.Generator]) -> Augment | None:
    """Return the changes that [train] names, in their order, with a stream for each; None if it names none."""
    chosen = [(AUGMENTATIONS[name], streams(f"augment/{name}")) for name in experiment.train.augment]
    if not chosen:
        return None

    def augment(inputs: Tensor) -> Tensor:
        for one, draw in chosen if len(inputs) else ():  # a Poisson sample may be empty
            inputs = one.apply(inputs, experiment.known_input, draw)
        return inputs

    return augment


def check_augmentations(experiment: Experiment) -> None:
    """Raise InputError for an augmentation of another kind of input than the data are."""
    for name in experiment.train.augment:
        kinds, kind = AUGMENTATIONS[name].kinds, experiment.known_input.input_kind
        if kind.name not in kinds:
            meant = " and ".join(find_kind(one).plural for one in kinds)
            raise InputError(f"train.augment: {name} is for {meant}, but the data are {kind.plural}: leave it out.")
