"""VHL, virtual homogeneity learning (Tang et al. 2022): FedAvg with a set of noise that all clients have in common.

The server is FedAvg's. Each natural class is paired with a virtual one, a labelled set of noise that follows from the
seed, and the features of both are drawn together by the supervised contrastive loss (Khosla et al. 2020).
"""

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from refprotofl.core import CPU, streams
from refprotofl.experiment import Experiment, Train
from refprotofl.methods import Client, Loss, Samples, ValidatedMessage, minimise
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.vhl import Options
from refprotofl.methods.common import weights
from refprotofl.models import SplitModel
from refprotofl.wire import Message

FAR = -1e9  # the similarity of a row to itself: exp makes it 0, while its gradient stays finite


def supcon(rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss: the mean negative log share of a row's positives among all other rows.

    `rows` (N, m) have length 1; the positives of a row are the other rows of its label. A row without any counts 0.
    """
    own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    similar = (rows @ rows.T / temperature).masked_fill(own, FAR)  # (N, N)
    log_shares = similar - similar.logsumexp(dim=1, keepdim=True)
    positive = (labels.unsqueeze(1) == labels) & ~own  # (N, N)
    each = log_shares.masked_fill(~positive, 0).sum(dim=1) / positive.sum(dim=1).clamp(min=1)  # (N,)
    return -each.mean()


Generator = Literal["gaussian", "conv"]

GRID = 8  # side of the noise that is enlarged to an image
SPREAD = 0.5  # of a class's images around its mean
LATENTS = 8  # inputs of a decoder
NUDGES = 50  # steps that make a decoder's pixels less alike
MEAN, STD = 0.5, 0.25  # which virtual images are normalised with


def virtual_set(experiment: Experiment, table: Options) -> tuple[Tensor, Tensor]:
    """Return images (N, channels, H, W) uint8 and virtual labels (N,), the same at every client."""
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
    """Return coarse noise around a mean of the class's own, enlarged."""
    mean = _normal(draw, (shape[0], GRID, GRID))
    coarse = mean + SPREAD * _normal(draw, (number, shape[0], GRID, GRID))
    return functional.interpolate(coarse, shape[1:], mode="bilinear", align_corners=False)


def _decoded(draw: np.random.Generator, number: int, shape: tuple[int, int, int]) -> Tensor:
    """Return noise decoded by a random convolutional decoder of the class's own."""
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
    settings = Train(lr=0.01, momentum=0.9, weight_decay=0.0, local_epochs=NUDGES, batch_size=1)
    minimise(parameters, lambda row: likeness(decoder(_normal(draw, (64, LATENTS)))), 1, settings)
    with torch.no_grad():
        images: Tensor = decoder(_normal(draw, (number, LATENTS)))
    return images


def likeness(images: Tensor) -> Tensor:
    """Return the mean squared covariance between different pixels, over a batch (B, channels, H, W)."""
    pixels = images.flatten(1)
    pixels = (pixels - pixels.mean(dim=0)) / len(pixels) ** 0.5  # (B, D)
    # The squares of the (D, D) covariance sum to those of the far smaller (B, B) products.
    everything, diagonal = (pixels @ pixels.T).square().sum(), pixels.square().sum(dim=0).square().sum()
    between: Tensor = (everything - diagonal) / pixels.shape[1] ** 2
    return between


def virtual_batches(
    images: Tensor, labels: Tensor, size: int, draw: np.random.Generator, device: torch.device = CPU
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield endless batches of inputs and virtual labels, randomly shifted and mirrored, in random order."""
    images, labels = images.to(device), labels.to(device)
    while True:
        order = torch.from_numpy(draw.permutation(len(labels))).split(size)
        shifts = torch.cat([draw_shifts(len(rows), images.shape[2:], draw) for rows in order])  # at once for all
        for rows, crops in zip(torch.cat(order).to(device).split(size), shifts.to(device).split(size), strict=True):
            moved = shifted(images[rows], crops)
            yield (moved.to(torch.float32) / 255 - MEAN) / STD, labels[rows]


def draw_shifts(number: int, sides: tuple[int, ...], draw: np.random.Generator) -> Tensor:
    """Return where each crop begins in the bordered image, top and left, and whether it is mirrored: (number, 3)."""
    limits = [*(2 * edge + 1 for edge in _edges(sides)), 2]
    return torch.from_numpy(np.stack([draw.integers(0, limit, size=number) for limit in limits], axis=1))


def shifted(images: Tensor, shifts: Tensor) -> Tensor:
    """Return a crop of each image with an eighth of its side as a black border; `shifts` are those of `draw_shifts`."""
    number, _, height, width = images.shape
    above, left = _edges((height, width))
    padded = functional.pad(images, (left, left, above, above))
    tops, lefts, mirrored = shifts.split(1, dim=1)  # (B, 1) each
    across = torch.arange(width, device=images.device)
    rows = tops + torch.arange(height, device=images.device)  # (B, H)
    columns = lefts + torch.where(mirrored == 1, across.flip(0), across)  # (B, W)
    each = torch.arange(number, device=images.device)[:, None, None]
    cropped = padded[each, :, rows[:, :, None], columns[:, None, :]]  # (B, H, W, channels)
    return cropped.permute(0, 3, 1, 2)


def _edges(sides: tuple[int, ...]) -> tuple[int, int]:
    """Return the border's height and width: 4 of 32 pixels."""
    height, width = sides
    return max(1, height // 8), max(1, width // 8)


def _normal(draw: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(draw.standard_normal(shape, dtype=np.float32))


TEMPERATURE = 0.07


def virtual_loss(
    model: SplitModel,
    table: Options,
    batches: Iterator[tuple[Tensor, Tensor]],
    num_classes: int,
    aligned_steps: int,
) -> Loss:
    """Return the loss of a natural batch with the next virtual one; alignment ends after `aligned_steps` batches."""
    steps = itertools.count()

    def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        virtual, paired = next(batches)  # (V, channels, H, W), (V,)
        embeddings = model.embed(torch.cat([inputs, virtual]))  # (B + V, m), in one pass
        logits = model.head(embeddings)  # (B + V, C + C)
        natural = functional.cross_entropy(logits[: len(labels)], labels)
        extra = table.alpha * functional.cross_entropy(logits[len(labels) :], num_classes + paired)
        if next(steps) < aligned_steps:
            rows = functional.normalize(embeddings)
            fixed = torch.cat([rows[: len(labels)], rows[len(labels) :].detach()])  # natural ones move, virtual stay
            extra = extra + table.w_align * supcon(fixed, torch.cat([labels, paired]), TEMPERATURE)
            extra = extra + table.w_virtual * supcon(rows[len(labels) :], paired, TEMPERATURE)
        return natural + extra, extra

    return loss


class VHLClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        samples = self.training_samples()
        trained = self.fit(round, samples=samples, loss=self.loss(round, samples))
        table = self.options
        guards.virtual_terms_counted(trained.penalty, table.alpha + table.w_align + table.w_virtual)
        return weights.write_update(self, round, received, self.keep_trained(round))

    def loss(self, round: int, samples: Samples) -> Loss:
        table, size = self.options, self.experiment.train.batch_size
        draw = self.stream("virtual-batches", round)
        batches = virtual_batches(*virtual_set(self.experiment, table), size, draw, self.model.device)
        aligned_steps = table.align_epochs * self.experiment.train.steps_per_epoch(len(samples))
        return virtual_loss(self.model, table, batches, self.num_classes, aligned_steps)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
