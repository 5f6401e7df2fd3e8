"""Random-k: values at random coordinates, scaled so that their mean is right."""

from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.methods import Compressor, Dense, Draw, Fields, ValidatedMessage, apud
from refprotofl.wire import Message


class RandomK(Compressor):
    """Sends k random values times P / k, which is unbiased. Both sides draw the indices from the same stream."""

    leaves_zeros: ClassVar[bool] = True
    reveals: ClassVar[str] = ""

    def fields(self, size: int) -> Fields:
        return {"change": Dense((apud.number_to_send(self.table.keep, size),), kind="parameters")}

    def encode(self, vector: Tensor, draw: Draw) -> Message:
        indices = self._indices(len(vector), draw)
        return {"change": vector[indices] * (len(vector) / len(indices))}  # each is drawn with probability k / P

    def decode(self, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
        return torch.zeros(size).index_copy(0, self._indices(size, draw), message.tensor("change"))

    def _indices(self, size: int, draw: Draw) -> Tensor:
        """Return the indices (k,) to send, ascending."""
        return apud.select_random(size, apud.number_to_send(self.table.keep, size), draw()).nonzero().squeeze(1)
