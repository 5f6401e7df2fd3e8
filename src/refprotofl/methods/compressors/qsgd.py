"""QSGD (Alistarh et al. 2017): all values, each rounded at random to a level of its bucket's norm."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import InputError
from refprotofl.experiment import Compress
from refprotofl.methods import Compressor, Dense, Draw, ErrorFeedback, Feedback, Fields, ValidatedMessage
from refprotofl.wire import Counted, Message


class Qsgd(Compressor):
    """Sends every value in 8 or 4 bits and a norm per bucket: unbiased."""

    reveals: ClassVar[str] = ""

    def __init__(self, table: Compress) -> None:
        super().__init__(table)
        if table.bits not in (8, 4):
            raise InputError(f"compress.bits = {table.bits}: qsgd takes 8 or 4; eden takes 1 to 8.")

    @property
    def downlink_feedback(self) -> Feedback:
        """Error feedback where the error is smaller than what is encoded; else the residual would grow.

        Its variance is min(b / s^2, sqrt(b) / s) at most, for b values in a bucket and s levels (Lemma 3.1).
        """
        return ErrorFeedback() if self.table.bucket < self.levels**2 else Feedback()

    @property
    def levels(self) -> int:
        """The highest level; one bit is the sign's."""
        return int(2 ** (self.table.bits - 1)) - 1

    @property
    def in_pairs(self) -> bool:
        """Return whether two values share a byte."""
        return self.table.bits == 4

    def fields(self, size: int) -> Fields:
        kind = Counted("parameters", size)  # two values per byte with 4 bits
        pairs = Dense((-(-size // 2),), (torch.uint8,), kind=kind)
        levels = pairs if self.in_pairs else Dense((size,), (torch.int8,), kind=kind, low=-self.levels)
        return {"levels": levels, "norms": Dense((-(-size // self.table.bucket),), low=0)}

    def encode(self, vector: Tensor, draw: Draw) -> Message:
        signed, norms = quantise(vector, self.levels, self.table.bucket, draw())
        return {"levels": pack_pairs(signed) if self.in_pairs else signed, "norms": norms}

    def decode(self, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
        levels = message.tensor("levels")
        signed = unpack_pairs(levels, size) if self.in_pairs else levels
        return dequantise(signed, message.tensor("norms"), self.levels, self.table.bucket)


def quantise(vector: Tensor, levels: int, bucket: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return signed levels (P,) int8 from -levels to levels, and the norms (buckets,) that they are shares of.

    A value between two levels takes the upper with the probability that keeps its mean.
    """
    rows = functional.pad(vector.to(torch.float64), (0, -len(vector) % bucket)).view(-1, bucket)
    norms = rows.norm(dim=1).to(torch.float32)  # (buckets,)
    reach = _spread(norms, bucket, len(vector))
    exact = torch.where(reach > 0, vector.abs().to(torch.float64) / reach.clamp(min=1e-300) * levels, 0.0)
    drawn = torch.from_numpy(generator.random(len(vector)))
    level = (exact.floor() + (drawn < exact.frac())).clamp(max=levels)  # the norm is rounded: it may fall short
    return (level * vector.sign()).to(torch.int8), norms


def dequantise(signed: Tensor, norms: Tensor, levels: int, bucket: int) -> Tensor:
    """Return the values (P,) of the levels, in float64."""
    return _spread(norms, bucket, len(signed)) * signed.to(torch.float64) / levels


def _spread(norms: Tensor, bucket: int, size: int) -> Tensor:
    """Return the norm of each value's bucket, (P,)."""
    return norms.to(torch.float64).repeat_interleave(bucket)[:size]


def pack_pairs(signed: Tensor) -> Tensor:
    """Pack levels from -7 to 7 as a sign bit and three bits, two to a byte, the first in the upper half."""
    half = signed.abs() + 8 * (signed < 0)  # (P,) from 0 to 15
    pairs = torch.cat([half, half.new_zeros(len(half) % 2)]).to(torch.uint8).view(-1, 2)
    return 16 * pairs[:, 0] + pairs[:, 1]


def unpack_pairs(packed: Tensor, size: int) -> Tensor:
    """Return the levels (P,) of packed pairs."""
    half = torch.stack([packed >> 4, packed & 15], dim=1).flatten()[:size].to(torch.int8)
    return torch.where(half >= 8, 8 - half, half)
