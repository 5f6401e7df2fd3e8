"""Kernels (`model.kernel`): ways of computing a model's layers, from a fixed table. A run never measures times."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from refprotofl.experiment import Model

Layout = Literal["auto", "as-is", "channels-last"]

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
    """Return the kernel of a backbone; of a user's own only the layout is chosen, when it is built."""
    key = (name, table.stem, table.norm) if name == "resnet18" else (name, table.norm)
    kernel = FAST[key].kernel if table.kernel == "fast" and key in FAST else PLAIN
    return replace(kernel, channels_last=True) if table.layout == "channels-last" else kernel


def lay_out(backbone: nn.Module, kernel: Kernel) -> None:
    """Convert weights to the kernel's memory format, which activations follow; shapes and values stay."""
    if kernel.channels_last:
        backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def lay_out_own(backbone: nn.Module, layout: Layout, blank: Tensor) -> None:
    """Convert the weights of a user's backbone to the layout that the experiment names.

    "auto" goes by the modules, not by times, so that it is the same on every machine: channels-last where there are
    convolutions or max-pooling over images and no group norm, which is slow in it. A backbone that fails on it, as with
    `view` in place of `flatten`, stays as it is.
    """
    if layout == "as-is" or (layout == "auto" and not suits_channels_last(backbone)):
        return
    lay_out(backbone, LAST)
    if layout == "auto" and not _computes(backbone, blank):
        backbone.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def suits_channels_last(backbone: nn.Module) -> bool:
    modules = list(backbone.modules())
    over_maps = any(isinstance(one, nn.Conv2d | nn.MaxPool2d) for one in modules)
    return over_maps and not any(isinstance(one, nn.GroupNorm) for one in modules)


def _computes(backbone: nn.Module, blank: Tensor) -> bool:
    try:
        with torch.no_grad():
            backbone.eval()(blank)
    except RuntimeError:
        return False
    return True


def layout_of(backbone: nn.Module) -> Literal["as-is", "channels-last"]:
    """Return the layout of a backbone's convolutions, for the record of a run."""
    kernels = [one.weight for one in backbone.modules() if isinstance(one, nn.Conv2d)]
    laid_out = any(one.is_contiguous(memory_format=torch.channels_last) and not one.is_contiguous() for one in kernels)
    return "channels-last" if laid_out else "as-is"
