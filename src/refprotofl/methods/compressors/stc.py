"""STC (Sattler et al. 2019): the largest values, all of one magnitude, in both directions."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods import (
    NAMED_BY_SIZE,
    CompressedDownlink,
    Compressor,
    Dense,
    Draw,
    ErrorFeedback,
    Fields,
    Refused,
    ValidatedMessage,
    apud,
)
from refprotofl.wire import Counted, Message, Reader, WireError, decode_indices, encode, encode_indices


class Stc(Compressor):
    """Sends the k largest values of the change and the memory, each as its sign times their mean magnitude.

    The server compresses the broadcast in the same way and keeps what it owes.
    """

    leaves_zeros: ClassVar[bool] = True
    both_ways: ClassVar[bool] = True
    reveals: ClassVar[str] = NAMED_BY_SIZE
    notes: ClassVar[tuple[str, ...]] = (
        "STC's authors choose the largest values tensor by tensor; here over the whole shared vector. A client that "
        "missed broadcasts gets the updates one by one, or the whole vector if that is shorter, not their sum",
    )

    @property
    def feedback(self) -> ErrorFeedback:
        return ErrorFeedback(self.table.decay)

    def fields(self, size: int) -> Fields:
        return {
            "places": Dense((None,), (torch.uint8,), kind=Counted("other_values", 0)),  # only its bytes count
            "signs": Dense((None,), (torch.bool,), kind="parameters"),
            "scale": Dense((), low=0),
        }

    def encode(self, vector: Tensor, draw: Draw) -> Message:
        return write_ternary(ternarise(vector, self.table.keep))

    def decode(self, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
        return read_ternary(message, size, apud.number_to_send(self.table.keep, size))

    def create_downlink(self, clients: int, size: int, seed: int) -> "TernaryDownlink | None":
        return TernaryDownlink(self, clients, size, seed) if self.compresses_downlink else None


class TernaryDownlink(CompressedDownlink):
    """Keeps the last step as a vector, of which the message is made again without loss."""

    def __init__(self, compressor: Stc, clients: int, size: int, seed: int) -> None:
        super().__init__(compressor, clients, size, seed)
        self.step = torch.zeros(size)  # (P,), the last broadcast minus the one before

    def step_message(self, name: str, vector: Tensor) -> Message:
        return write_ternary(self.step)

    def encoded_step(self) -> bytes:
        return encode(write_ternary(self.step))

    def keep(self, message: Message, step: Tensor) -> None:
        self.step = step


def ternarise(vector: Tensor, share: float) -> Tensor:
    """Replace the largest values (P,) by their sign times their mean magnitude, the others by zeros."""
    mask = apud.select(vector, torch.zeros_like(vector), apud.number_to_send(share, len(vector))) & (vector != 0)
    magnitude = vector[mask].abs().to(torch.float64).sum() / max(1, int(mask.sum()))
    return torch.where(mask, vector.sign() * magnitude.to(torch.float32), 0.0)


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
