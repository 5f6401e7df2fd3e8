"""STC (Sattler et al. 2019): the largest values, all of one magnitude, in both directions."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods import apud
from refprotofl.methods.base.broadcast import StepDownlink
from refprotofl.methods.base.compressor import Compressor, Draw
from refprotofl.methods.base.schema import Dense, Fields, Refused, ValidatedMessage
from refprotofl.methods.declaration import NAMED_BY_SIZE
from refprotofl.methods.feedback import ErrorFeedback, Feedback
from refprotofl.wire import Message, WireError
from refprotofl.wire.indices import decode_indices, encode_indices
from refprotofl.wire.ledger import Counted
from refprotofl.wire.primitives import Reader


class Stc(Compressor):
    """Sends the k largest values of the change and the memory, each as its sign times their mean magnitude.

    The server compresses the broadcast in the same way and keeps what it owes.
    """

    leaves_zeros: ClassVar[bool] = True
    reveals: ClassVar[str] = NAMED_BY_SIZE
    notes: ClassVar[tuple[str, ...]] = (
        "STC's authors choose the largest values tensor by tensor; here over the whole shared vector. A client that "
        "missed a broadcast gets the whole vector, not the sum of the updates",
    )

    @property
    def feedback(self) -> ErrorFeedback:
        return ErrorFeedback(self.table.decay)

    def fields(self, size: int) -> Fields:
        return _fields()

    def encode(self, vector: Tensor, draw: Draw) -> Message:
        return write_ternary(ternarise(vector, self.table.keep))

    def decode(self, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
        return read_ternary(message, size, apud.number_to_send(self.table.keep, size))

    def step_fields(self) -> Fields:
        return _fields(optional=True)

    def decode_step(self, message: ValidatedMessage, size: int) -> Tensor:
        return read_ternary(message, size, size)

    def create_downlink(self, clients: int, size: int) -> "TernaryDownlink":
        return TernaryDownlink(clients, size, self.table.keep, self.feedback)


class TernaryDownlink(StepDownlink):
    """Broadcasts by ternary steps; what a step leaves out is owed."""

    names: ClassVar[tuple[str, ...]] = ("holds", "residual", "step")

    def __init__(self, clients: int, size: int, share: float, feedback: Feedback) -> None:
        super().__init__(clients)
        self.residual = torch.zeros(size)  # (P,), what the broadcasts still owe
        self.step = torch.zeros(size)  # (P,), the last broadcast minus the one before
        self._share, self._feedback = share, feedback

    def step_message(self, name: str, vector: Tensor) -> Message:
        return write_ternary(self.step)

    def advance(self, reference: Tensor, target: Tensor) -> Tensor:
        owed = self._feedback.target(target - reference, self.residual)
        self.step = ternarise(owed, self._share)
        self.residual = self._feedback.remember(owed, self.step, self.residual)
        return reference + self.step


def ternarise(vector: Tensor, share: float) -> Tensor:
    """Replace the largest values (P,) by their sign times their mean magnitude, the others by zeros."""
    mask = apud.select(vector, torch.zeros_like(vector), apud.number_to_send(share, len(vector))) & (vector != 0)
    magnitude = vector[mask].abs().to(torch.float64).sum() / max(1, int(mask.sum()))
    return torch.where(mask, vector.sign() * magnitude.to(torch.float32), 0.0)


def _fields(*, optional: bool = False) -> Fields:
    code = Counted("other_values", 0)  # only its bytes count
    return {
        "places": Dense((None,), (torch.uint8,), kind=code, optional=optional),
        "signs": Dense((None,), (torch.bool,), kind="parameters", optional=optional),
        "scale": Dense((), low=0, optional=optional),
    }


def write_ternary(vector: Tensor) -> Message:
    """Encode a vector (P,) of one magnitude: the index code of its non-zeros, the sign of each, the magnitude."""
    indices = vector.nonzero().squeeze(1)
    code = np.frombuffer(encode_indices(indices.numpy(), len(vector)), np.uint8)
    return {"places": torch.from_numpy(code.copy()), "signs": vector[indices] > 0, "scale": vector.abs().max()}


def read_ternary(message: ValidatedMessage, size: int, most: int) -> Tensor:
    """Decode a vector (P,) of `size` values, of which `most` at most are not 0."""
    reader = Reader(message.tensor("places").numpy().tobytes())
    try:
        indices = decode_indices(reader, size, most)
    except WireError as problem:
        raise Refused(f"places: {problem}") from None
    if reader.left:
        raise Refused(f"places has {reader.left} bytes too many")
    signs, scale = message.tensor("signs"), message.tensor("scale")
    if len(signs) != len(indices):
        raise Refused(f"signs is not a vector of {len(indices)} values")
    return torch.zeros(size).index_copy(0, torch.from_numpy(indices), torch.where(signs, scale, -scale))
