"""Top-k: the largest values of a change and their indices."""

from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.methods import NAMED_BY_SIZE, Compressor, Draw, Fields, SparseVector, ValidatedMessage, apud
from refprotofl.methods.base import guards
from refprotofl.wire import Message, Sparse


class TopK(Compressor):
    """Sends the k largest values; the rest is lost."""

    leaves_zeros: ClassVar[bool] = True
    reveals: ClassVar[str] = NAMED_BY_SIZE

    def fields(self, size: int) -> Fields:
        return {"change": SparseVector(size, count=apud.number_to_send(self.table.keep, size))}

    def encode(self, vector: Tensor, draw: Draw) -> Message:
        keep = apud.number_to_send(self.table.keep, len(vector))
        mask = apud.select(vector, torch.zeros_like(vector), keep)
        guards.announced_number_sent(mask, keep)
        indices = mask.nonzero().squeeze(1)
        return {"change": Sparse(indices, vector[indices], len(vector))}

    def decode(self, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
        sent = message.sparse("change")
        return torch.zeros(size).index_copy(0, sent.indices, sent.values)
