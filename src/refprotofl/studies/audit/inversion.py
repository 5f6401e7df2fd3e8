"""Prototype inversion: reconstruct an image whose embedding is the class prototype that a client sends.

The attacker has the client's model and starts from the class's mean test image. A prototype of one sample leads
towards that sample, one of many samples towards none of them.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import stream
from refprotofl.methods import Samples, embed
from refprotofl.models import SplitModel
from refprotofl.privacy import Mechanism

SIZES = (1, 4, 16)  # samples behind a prototype
STEPS, RATE = 300, 0.05  # of the search, by Adam
SMOOTH = 1e-3  # weight of differences between neighbouring pixels
CLASSES = 3  # of a client that are attacked


@dataclass(frozen=True)
class Rebuilt:
    """The similarity of a reconstructed image to the samples behind its prototype, on average."""

    samples: int  # behind the prototype
    correlation: float
    psnr: float  # decibels
    guessed: float  # correlation of the class's mean test image, which needs no prototype
    beyond: float  # correlation of the differences to that image; 0 if nothing was learned


@dataclass(frozen=True)
class _Target:
    size: int
    label: int
    images: Tensor  # (size, channels, H, W) in 0..1


def rebuild(model: SplitModel, samples: Samples, guesses: Tensor, privacy: Mechanism) -> list[Rebuilt]:
    """Reconstruct images from one client's prototypes, as it would send them; `guesses` (C, channels, H, W)."""
    targets = list(_targets(samples))
    if not targets:
        return []
    prototypes = torch.stack([_sent(model, one, privacy) for one in targets])
    found = search(model, prototypes, guesses[[one.label for one in targets]])
    return [_score(one, image, guesses[one.label]) for one, image in zip(targets, found, strict=True)]


def _targets(samples: Samples) -> Iterator[_Target]:
    """Yield targets of the client's largest classes, so that prototypes of all sizes have the same classes."""
    labels = samples.own_labels
    held = labels.bincount()
    for label in held.argsort(descending=True, stable=True)[:CLASSES].tolist():
        rows = samples.rows[labels == label]
        for size in SIZES:
            if size <= len(rows):
                yield _Target(size, label, samples.inputs_of(rows[:size]).cpu().to(torch.float32) / 255)


def _sent(model: SplitModel, target: _Target, privacy: Mechanism) -> Tensor:
    """Return the prototype (m,), with noise if the run protects samples."""
    embeddings = embed(model, (target.images * 255).round().to(torch.uint8))
    seed = privacy.experiment.seed
    noise = privacy.sample_noise(lambda _, size: stream(seed, "audit/noise", client=target.label, round=size))
    if noise is None:
        return embeddings.mean(dim=0)
    noise.begin("audit", target.size)
    return noise.class_means(embeddings, torch.zeros(target.size, dtype=torch.int64), 1)[0][0]


def search(model: SplitModel, prototypes: Tensor, begin: Tensor) -> Tensor:
    """Return images (n, channels, H, W) in 0..1 with embeddings near the prototypes (n, m), starting from `begin`."""
    model.eval()
    wanted = prototypes.to(model.device)
    scale = wanted.square().sum(dim=1).clamp(min=1e-6)  # (n,)
    images = begin.to(model.device)
    first, second = torch.zeros_like(images), torch.zeros_like(images)
    for step in range(1, STEPS + 1):
        images.requires_grad_(True)
        away = (model.embed(model.prepare(images * 255)) - wanted).square().sum(dim=1) / scale
        rough = images.diff(dim=2).abs().mean(dim=(1, 2, 3)) + images.diff(dim=3).abs().mean(dim=(1, 2, 3))
        (slope,) = torch.autograd.grad((away + SMOOTH * rough).sum(), images)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope.square()
        move = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        images = (images.detach() - RATE * move).clamp(0, 1)
    return images.cpu()


def _score(target: _Target, image: Tensor, guess: Tensor) -> Rebuilt:
    errors = (target.images - image).square().flatten(1).mean(dim=1).clamp(min=1e-10)  # (size,)
    return Rebuilt(
        samples=target.size,
        correlation=fmean(correlation(image, one) for one in target.images),
        psnr=fmean((-10 * errors.log10()).tolist()),
        guessed=fmean(correlation(guess, one) for one in target.images),
        beyond=fmean(correlation(image - guess, one - guess) for one in target.images),
    )


def correlation(one: Tensor, other: Tensor) -> float:
    """Return Pearson's correlation over the pixels; 0 if an image has one colour."""
    left, right = (image.flatten().to(torch.float64).numpy() for image in (one, other))
    spread = left.std() * right.std()
    return float(((left - left.mean()) * (right - right.mean())).mean() / spread) if spread > 0 else 0.0


def mean_images(images: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return the mean image of each class, (C, channels, H, W) in 0..1; of a class without images, the overall mean."""
    wide = images.cpu().to(torch.float32) / 255
    whole = [wide[labels == label] if bool((labels == label).any()) else wide for label in range(num_classes)]
    return torch.stack([some.mean(dim=0) for some in whole])


def summed_up(rebuilt: Sequence[Rebuilt]) -> dict[int, Rebuilt]:
    """Return means by the number of samples behind a prototype."""
    by_size = {size: [one for one in rebuilt if one.samples == size] for size in SIZES}
    return {
        size: Rebuilt(size, *np.mean([dataclasses.astuple(one)[1:] for one in some], axis=0).tolist())
        for size, some in by_size.items()
        if some
    }
