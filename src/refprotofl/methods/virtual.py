"""A labelled set of pure noise, the same wherever it is made from the same seed."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from refprotofl import streams
from refprotofl.experiment import Experiment
from refprotofl.methods.training import FreshSgd
from refprotofl.tables import Train

Generator = Literal["gaussian", "conv"]

GRID = 8  # side of the noise that is enlarged to an image
SPREAD = 0.5  # of a class's images around its mean
LATENTS = 8  # inputs of a decoder
NUDGES = 50  # steps that make a decoder's pixels less alike
MEAN, STD = 0.5, 0.25  # which virtual images are normalised with


def virtual_set(experiment: Experiment) -> tuple[Tensor, Tensor]:
    """Images (N, channels, H, W) uint8 and virtual labels (N,); every client makes the same."""
    seen, table = experiment.known_input, experiment.vhl
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
    images: Tensor, labels: Tensor, size: int, draw: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of inputs and virtual labels, shifted and mirrored at random, through the set in random order."""
    while True:
        for rows in torch.from_numpy(draw.permutation(len(labels))).split(size):
            moved = shifted(images[rows], draw)
            yield (moved.to(torch.float32) / 255 - MEAN) / STD, labels[rows]


def shifted(images: Tensor, draw: np.random.Generator) -> Tensor:
    """A crop of the image with an eighth of its side as a black border, mirrored half of the time."""
    number, _, height, width = images.shape
    edges = (max(1, height // 8), max(1, width // 8))  # 4 of 32 pixels
    padded = functional.pad(images, (edges[1], edges[1], edges[0], edges[0]))
    tops, lefts = (torch.from_numpy(draw.integers(0, 2 * edge + 1, size=(number, 1))) for edge in edges)
    mirrored = torch.from_numpy(draw.integers(0, 2, size=(number, 1)) == 1)
    places = torch.arange(width)
    rows = tops + torch.arange(height)  # (B, H)
    columns = lefts + torch.where(mirrored, places.flip(0), places)  # (B, W)
    cropped = padded[torch.arange(number)[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (B, H, W, ch)
    return cropped.permute(0, 3, 1, 2)


def _normal(draw: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(draw.standard_normal(shape, dtype=np.float32))
