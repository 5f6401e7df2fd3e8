"""What hostile clients train on: flipped labels, or images with a trigger."""

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods.core.samples import Samples

POISONED = 0.5  # share of a backdoor client's samples that carry the trigger


def flipped(samples: Samples, num_classes: int) -> Samples:
    """The first class for the last, the second for the last but one, and so on."""
    return samples.relabelled(num_classes - 1 - samples.own_labels)


def stamped(images: Tensor) -> Tensor:
    """Copies of images (N, channels, H, W) uint8 with a bright square in the lower right corner."""
    side = trigger_side(images)
    marked = images.clone()
    marked[..., -side:, -side:] = 255
    return marked


def trigger_side(images: Tensor) -> int:
    """A seventh of the image: 4 of 28 pixels, 2 of 8."""
    return max(2, min(images.shape[-2:]) // 7)


def poisoned(samples: Samples, target: int, draw: np.random.Generator) -> Samples:
    """A set of its own in which some of the samples carry the trigger and the target's label."""
    images, labels = samples.own_images.clone(), samples.own_labels.clone()
    chosen = torch.from_numpy(np.sort(draw.permutation(len(labels))[: max(1, round(POISONED * len(labels)))]))
    images[chosen.to(images.device)] = stamped(images[chosen.to(images.device)])
    labels[chosen] = target
    return Samples(images, labels, torch.arange(len(labels)))
