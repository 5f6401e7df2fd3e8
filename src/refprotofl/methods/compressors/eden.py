"""EDEN (Vargaftik et al. 2022): all values, rotated at random and quantised for a Gaussian, with an unbiased scale."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods import Compressor, Dense, Draw, ErrorFeedback, Fields, ValidatedMessage
from refprotofl.methods.common.rotated_quantiser import (
    from_bits,
    levels,
    number_of_blocks,
    of_values,
    quantised,
    rotated,
    to_bits,
    unrotated,
    widths,
)
from refprotofl.wire import Counted, Message


class Eden(Compressor):
    """Sends every rotated value in 1 to 8 bits and a scale per block; with 1 bit it is DRIVE."""

    reveals: ClassVar[str] = ""
    notes: ClassVar[tuple[str, ...]] = (
        "EDEN is unbiased under a uniformly random rotation; here, as in its authors' experiments, random signs and a "
        "Hadamard matrix replace it, in blocks of 4,096 values with a scale each; bits per value are whole numbers",
    )

    @property
    def downlink_feedback(self) -> ErrorFeedback:
        return ErrorFeedback()  # the error is 0.57 of what is encoded or less, so the residual stays bounded

    def fields(self, size: int) -> Fields:
        code = -(-int(widths(size).sum()) * self.table.bits // 8)
        return {
            "code": Dense((code,), (torch.uint8,), kind=Counted("parameters", size)),
            "scales": Dense((number_of_blocks(size),), low=0),
        }

    def encode(self, vector: Tensor, draw: Draw) -> Message:
        symbols, scales = quantise(rotated(vector, draw), len(vector), self.table.bits)
        code = np.packbits(to_bits(symbols, self.table.bits))
        return {"code": torch.from_numpy(code), "scales": scales}

    def decode(self, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
        used = int(widths(size).sum()) * self.table.bits
        symbols = from_bits(np.unpackbits(message.tensor("code").numpy())[:used], self.table.bits)
        values = of_values(message.tensor("scales"), size) * levels(self.table.bits)[symbols]
        return unrotated(torch.from_numpy(values), size, draw)


def quantise(values: Tensor, size: int, bits: int) -> tuple[np.ndarray, Tensor]:
    """Return the symbols (n,) of rotated blocks (n,), and the scale (blocks,) of each.

    With x a rotated block and q its levels the scale is S = |x|^2 / <x, q>, which makes the mean over rotations right.
    """
    symbols, scales = [], []
    for block in values.split(widths(size).tolist()):
        square = float(block.square().sum())
        ratios = block / np.sqrt(square / len(block)) if square else block
        symbols.append(quantised(ratios.numpy(), bits))
        along = float(block @ torch.from_numpy(levels(bits)[symbols[-1]]))
        scales.append(square / along if along else 0.0)
    return np.concatenate(symbols), torch.tensor(scales, dtype=torch.float32)
