"""No compression: the trained weights go up as they are."""

from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.core import State
from refprotofl.methods import Compressor, Dense, Draw, Fields, ValidatedMessage
from refprotofl.wire import Message


class NoCompression(Compressor):
    """Sends the trained vector instead of its change, which float32 would round once more."""

    reveals: ClassVar[str] = ""

    def fields(self, size: int) -> Fields:
        return {"shared": Dense((size,), kind="parameters")}

    def encode(self, vector: Tensor, draw: Draw) -> Message:
        return {"shared": vector}

    def decode(self, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
        return message.tensor("shared")

    def write_update(self, trained: Tensor, received: Tensor, state: State, draw: Draw) -> Message:
        return self.encode(trained, draw)

    def read_update(self, message: ValidatedMessage, reference: Tensor, draw: Draw) -> Tensor:
        trained = self.decode(message, len(reference), draw)
        return trained.to(torch.float64) - reference.to(torch.float64)
