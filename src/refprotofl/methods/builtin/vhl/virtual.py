"""A labelled set of pure noise, the same wherever it is made from the same seed."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from refprotofl.basics import streams
from refprotofl.compute.devices import CPU
from refprotofl.experiment import Experiment
from refprotofl.experiment.tables import Train
from refprotofl.methods.builtin.vhl import Options
from refprotofl.methods.core.training import FreshSgd

Generator = Literal["gaussian", "conv"]

GRID = 8  # side of the noise that is enlarged to an image
SPREAD = 0.5  # of a class's images around its mean
LATENTS = 8  # inputs of a decoder
NUDGES = 50  # steps that make a decoder's pixels less alike
MEAN, STD = 0.5, 0.25  # which virtual images are normalised with


def virtual_set(experiment: Experiment, table: Options) -> tuple[Tensor, Tensor]:
    """Images (N, channels, H, W) uint8 and virtual labels (N,); every client makes the same."""
    seen = experiment.known_input
    per_class = table.per_class or (200 if seen.num_classes <= 10 else 50)
    return _virtual_set(experiment.seed, table.generator, seen.num_classes, per_class, seen.shape)


@lru_cache(maxsize=2)
def _virtual_set(
    seed: int, generator: Generator, num_classes: int, per_class: int, shape: tuple[int, int, int]
) -> tuple[Tensor, Tensor]:
    draw = streams.stream(seed, "virtual-set")
    make = {"gaussian": _gaussian, "conv": _decoded}[generator]
    images = torch.cat([make(draw, per_class, shape) for _ in range(num_classes)])
    # As saving them as pictures would do: cut to [0, 1], 8 bits a pixel.
    return images.clamp(0, 1).mul(255).round().to(torch.uint8), torch.arange(num_classes).repeat_interleave(per_class)


def _gaussian(draw: np.random.Generator, number: int, shape: tuple[int, int, int]) -> Tensor:
    """Coarse noise around a mean of the class's own, enlarged."""
    mean = _normal(draw, (shape[0], GRID, GRID))
    coarse = mean + SPREAD * _normal(draw, (number, shape[0], GRID, GRID))
    return functional.interpolate(coarse, shape[1:], mode="bilinear", align_corners=False)


def _decoded(draw: np.random.Generator, number: int, shape: tuple[int, int, int]) -> Tensor:
    """What a random convolutional decoder of the class's own makes of noise."""
    channels, height, width = shape
    decoder = nn.Sequential(
        nn.Linear(LATENTS, 32 * 16),
        nn.Unflatten(1, (32, 4, 4)),
        nn.LeakyReLU(0.2),
        nn.Upsample(size=(-(-height // 2), -(-width // 2))),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.LeakyReLU(0.2),
        nn.Upsample(size=(height, width)),
        nn.Conv2d(16, channels, 3, padding=1),
        nn.Sigmoid(),
    )
    parameters = list(decoder.parameters())
    with torch.no_grad():
        for parameter in parameters:
            inputs = parameter[0].numel() if parameter.dim() > 1 else 1
            parameter.copy_(_normal(draw, tuple(parameter.shape)) * inputs**-0.5)
    optimiser = FreshSgd(parameters, Train(lr=0.01, momentum=0.9, weight_decay=0.0))
    for _ in range(NUDGES):
        optimiser.step(likeness(decoder(_normal(draw, (64, LATENTS)))))
    with torch.no_grad():
        images: Tensor = decoder(_normal(draw, (number, LATENTS)))
    return images


def likeness(images: Tensor) -> Tensor:
    """Mean squared covariance between different pixels, over a batch (B, channels, H, W)."""
    pixels = images.flatten(1)
    pixels = (pixels - pixels.mean(dim=0)) / len(pixels) ** 0.5  # (B, D)
    # The squares of the (D, D) covariance sum to those of the far smaller (B, B) products.
    everything, diagonal = (pixels @ pixels.T).square().sum(), pixels.square().sum(dim=0).square().sum()
    between: Tensor = (everything - diagonal) / pixels.shape[1] ** 2
    return between


def virtual_batches(
    images: Tensor, labels: Tensor, size: int, draw: np.random.Generator, device: torch.device = CPU
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of inputs and virtual labels, shifted and mirrored at random, through the set in random order."""
    images, labels = images.to(device), labels.to(device)
    while True:
        order = torch.from_numpy(draw.permutation(len(labels))).split(size)
        shifts = torch.cat([draw_shifts(len(rows), images.shape[2:], draw) for rows in order])  # at once for all
        for rows, places in zip(torch.cat(order).to(device).split(size), shifts.to(device).split(size), strict=True):
            moved = shifted(images[rows], places)
            yield (moved.to(torch.float32) / 255 - MEAN) / STD, labels[rows]


def draw_shifts(number: int, sides: tuple[int, ...], draw: np.random.Generator) -> Tensor:
    """Where each crop begins in the bordered image, top and left, and whether it is mirrored: (number, 3)."""
    limits = [*(2 * edge + 1 for edge in _edges(sides)), 2]
    return torch.from_numpy(np.stack([draw.integers(0, limit, size=number) for limit in limits], axis=1))


def shifted(images: Tensor, shifts: Tensor) -> Tensor:
    """A crop of each image with an eighth of its side as a black border; `shifts` as `draw_shifts` draws them."""
    number, _, height, width = images.shape
    above, beside = _edges((height, width))
    padded = functional.pad(images, (beside, beside, above, above))
    tops, lefts, mirrored = shifts.split(1, dim=1)  # (B, 1) each
    places = torch.arange(width, device=images.device)
    rows = tops + torch.arange(height, device=images.device)  # (B, H)
    columns = lefts + torch.where(mirrored == 1, places.flip(0), places)  # (B, W)
    each = torch.arange(number, device=images.device)[:, None, None]
    cropped = padded[each, :, rows[:, :, None], columns[:, None, :]]  # (B, H, W, channels)
    return cropped.permute(0, 3, 1, 2)


def _edges(sides: tuple[int, ...]) -> tuple[int, int]:
    """How wide the border is above and beside an image: 4 of 32 pixels."""
    height, width = sides
    return max(1, height // 8), max(1, width // 8)


def _normal(draw: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(draw.standard_normal(shape, dtype=np.float32))
