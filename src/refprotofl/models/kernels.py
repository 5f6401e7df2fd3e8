"""Kernels (`model.kernel`): ways of computing a model's layers, from a fixed table. A run never measures times."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from refprotofl.experiment import Model

FUSED = True  # optimisers, of both kernels: slower than torch's other ways for no model here, and the same to the bit


@dataclass(frozen=True)
class Kernel:
    """A way of computing the same numbers, up to the order of sums."""

    products: bool = False  # convolutions on the smallest maps as matrix products
    channels_last: bool = False  # torch's memory format of the convolutions


@dataclass(frozen=True)
class Measured:
    """The kernel `fast` of a model, and the time of `plain` divided by its own on one core.

    The smaller figure of 28x28x1 and 32x32x3 images.
    """

    kernel: Kernel
    training: float  # a step with 64 images
    forward: float  # 512 images


PLAIN = Kernel()
PRODUCTS = Kernel(products=True)
PRODUCTS_LAST = Kernel(products=True, channels_last=True)
LAST = Kernel(channels_last=True)

# By name and norm, of resnet18 by stem too. `refprotofl bench kernels` measures these figures again.
# The cifar stem has no map small enough for products in images of 28 pixels; it has in smaller ones.
FAST: dict[tuple[str, ...], Measured] = {
    ("resnet18", "imagenet", "group"): Measured(PRODUCTS, 2.3, 1.7),
    ("resnet18", "imagenet", "batch-local"): Measured(PRODUCTS_LAST, 2.4, 2.3),
    ("resnet18", "imagenet", "none"): Measured(PRODUCTS_LAST, 2.3, 2.2),
    ("resnet18", "cifar", "group"): Measured(PRODUCTS, 1.0, 1.0),
    ("resnet18", "cifar", "batch-local"): Measured(PRODUCTS_LAST, 1.0, 1.2),
    ("resnet18", "cifar", "none"): Measured(PRODUCTS_LAST, 1.1, 1.1),
    ("cnn", "group"): Measured(PLAIN, 1.0, 1.0),
    ("cnn", "batch-local"): Measured(LAST, 1.2, 1.3),
    ("cnn", "none"): Measured(LAST, 1.1, 1.3),
    ("mlp", "group"): Measured(PLAIN, 1.0, 1.0),
    ("mlp", "batch-local"): Measured(PLAIN, 1.0, 1.0),
    ("mlp", "none"): Measured(PLAIN, 1.0, 1.0),
}


def kernel_of(name: str, table: Model) -> Kernel:
    """Return the kernel of a backbone; a user's own stays as it is, except for the layout of `model.layout`."""
    key = (name, table.stem, table.norm) if name == "resnet18" else (name, table.norm)
    kernel = FAST[key].kernel if table.kernel == "fast" and key in FAST else PLAIN
    return replace(kernel, channels_last=True) if table.layout == "channels-last" else kernel


def lay_out(backbone: nn.Module, kernel: Kernel) -> None:
    """Convert weights to the kernel's memory format, which activations follow; shapes and values stay."""
    if kernel.channels_last:
        backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
