"""Precision of a backbone's arithmetic (`train.precision`): float32, or bfloat16 with float32 weights and features."""

from collections.abc import Callable
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from refprotofl.core import InputError, numerics

Precision = Literal["float32", "bf16"]


def check_precision(precision: Precision, mode: numerics.Mode) -> None:
    """Raise InputError where bfloat16 would be emulated: portable kernels do without its instructions."""
    if precision == "bf16" and numerics.resolve(mode) == "portable":
        raise InputError(
            'train.precision = "bf16" needs numerics = "native" (and no limit to AVX2 in the environment): the kernels '
            "of portable numerics have no bfloat16 instructions and take ten times as long as with float32."
        )


def precision_caveat(precision: Precision, device: torch.device) -> str | None:
    """Return a warning for the user if this CPU has no bfloat16 instructions."""
    if precision == "float32" or device.type != "cpu" or computes_bf16():
        return None
    return 'train.precision = "bf16": this CPU has no bfloat16 instructions, so that float32 is faster.'


@cache
def computes_bf16() -> bool:
    """Return whether this CPU multiplies bfloat16 by its own instructions, AVX512-BF16 or AMX."""
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, name, lambda: False)()) for name in probes)


def apply_in(precision: Precision, function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Return `function(inputs)`, computed in this precision, as float32.

    In bfloat16 torch casts weights and inputs of products and convolutions; gradients and the weights are float32.
    """
    if precision == "float32":
        return function(inputs)
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        return function(inputs).float()
