"""Compressed changes of the shared vector: what is sent, in which form, and what is kept of the rest.

Every form is written by the client and read by the server, which averages over the participants. Errors are fed back
by what the server will read, so both sides always mean the same numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.experiment.sections import Compress
from refprotofl.methods import apud
from refprotofl.methods.base import guards
from refprotofl.methods.base.schema import Dense, Fields, Refused, SparseVector, ValidatedMessage
from refprotofl.methods.declaration import Feedback
from refprotofl.wire import Message, Sparse, WireError
from refprotofl.wire.indices import decode_indices, encode_indices
from refprotofl.wire.ledger import Counted
from refprotofl.wire.primitives import Reader

Draw = Callable[[], np.random.Generator]  # the stream of this compressor, client and round, from its start


def compress(table: Compress, change: Tensor, memory: Tensor, draw: Draw) -> tuple[Message, Tensor]:
    """The change (P,) as a message, and the client's memory (P,) for the next round."""
    owed = wanted(table.feedback, change, memory, table.decay)
    message = FORMS[table.name].write(table, owed, draw)
    if table.feedback == "none":
        return message, memory
    return message, remembered(
        table.feedback, owed, expand(table, ValidatedMessage(message), len(change), draw), memory
    )


def expand(table: Compress, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
    """What a compressed message says, (P,)."""
    return FORMS[table.name].read(table, message, size, draw)


def wanted(feedback: Feedback, vector: Tensor, memory: Tensor, decay: float = 1.0) -> Tensor:
    """What is to be sent: with `ef` the unsent rest comes on top, with `ef21` what the server knows goes off."""
    if feedback == "none":
        return vector
    return vector - memory if feedback == "ef21" else vector + decay * memory


def remembered(feedback: Feedback, owed: Tensor, sent: Tensor, memory: Tensor) -> Tensor:
    """The memory after sending: with `ef` the unsent rest, with `ef21` what the server knows now."""
    return memory + sent if feedback == "ef21" else owed - sent


def fields(table: Compress, size: int) -> Fields:
    """The fields of a compressed vector of `size` values."""
    return FORMS[table.name].fields(table, size)


def step_fields() -> Fields:
    """The fields of STC's downlink, which a client that holds the last broadcast is sent."""
    return _ternary_fields(optional=True)


@dataclass(frozen=True)
class Form:
    fields: Callable[[Compress, int], Fields]
    write: Callable[[Compress, Tensor, Draw], Message]
    read: Callable[[Compress, ValidatedMessage, int, Draw], Tensor]


# Top-k, top-k-ef, ef21: the largest values and where they are


def _top_fields(table: Compress, size: int) -> Fields:
    return {"change": SparseVector(size, count=apud.number_to_send(table.keep, size))}


def _write_top(table: Compress, vector: Tensor, draw: Draw) -> Message:
    keep = apud.number_to_send(table.keep, len(vector))
    mask = apud.select(vector, torch.zeros_like(vector), keep)
    guards.announced_number_sent(mask, keep)
    places = mask.nonzero().squeeze(1)
    return {"change": Sparse(places, vector[places], len(vector))}


def _read_top(table: Compress, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
    sent = message.sparse("change")
    return torch.zeros(size).index_copy(0, sent.indices, sent.values)


# Random-k: where they are follows from the stream, which both sides have


def _random_places(table: Compress, size: int, draw: Draw) -> Tensor:
    return apud.select_random(size, apud.number_to_send(table.keep, size), draw()).nonzero().squeeze(1)


def _random_fields(table: Compress, size: int) -> Fields:
    return {"change": Dense((apud.number_to_send(table.keep, size),), kind="parameters")}


def _write_random(table: Compress, vector: Tensor, draw: Draw) -> Message:
    places = _random_places(table, len(vector), draw)
    return {"change": vector[places] * (len(vector) / len(places))}  # unbiased: each is drawn with k / P


def _read_random(table: Compress, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
    return torch.zeros(size).index_copy(0, _random_places(table, size, draw), message.tensor("change"))


# Stc: the largest, all of one magnitude


def ternarise(vector: Tensor, share: float) -> Tensor:
    """The largest values (P,), each replaced by its sign times their mean magnitude; zeros stay zeros."""
    mask = apud.select(vector, torch.zeros_like(vector), apud.number_to_send(share, len(vector))) & (vector != 0)
    magnitude = vector[mask].abs().to(torch.float64).sum() / max(1, int(mask.sum()))
    return torch.where(mask, vector.sign() * magnitude.to(torch.float32), 0.0)


def _ternary_fields(*, optional: bool = False) -> Fields:
    mask = Counted("other_values", 0)  # only its bytes count
    return {
        "places": Dense((None,), (torch.uint8,), kind=mask, optional=optional),
        "signs": Dense((None,), (torch.bool,), kind="parameters", optional=optional),
        "scale": Dense((), low=0, optional=optional),
    }


def write_ternary(vector: Tensor) -> Message:
    """A vector (P,) of one magnitude: the index code of its non-zeros, a bit of sign for each, the magnitude."""
    places = vector.nonzero().squeeze(1)
    code = np.frombuffer(encode_indices(places.numpy(), len(vector)), np.uint8)
    return {"places": torch.from_numpy(code.copy()), "signs": vector[places] > 0, "scale": vector.abs().max()}


def read_ternary(message: ValidatedMessage, size: int, most: int) -> Tensor:
    reader = Reader(message.tensor("places").numpy().tobytes())
    try:
        places = decode_indices(reader, size, most)
    except WireError as problem:
        raise Refused(f"places: {problem}") from None
    if reader.left:
        raise Refused(f"places has {reader.left} bytes too many")
    signs, scale = message.tensor("signs"), message.tensor("scale")
    if len(signs) != len(places):
        raise Refused(f"signs is not a vector of {len(places)} values")
    return torch.zeros(size).index_copy(0, torch.from_numpy(places), torch.where(signs, scale, -scale))


def _write_stc(table: Compress, vector: Tensor, draw: Draw) -> Message:
    return write_ternary(ternarise(vector, table.keep))


def _read_stc(table: Compress, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
    return read_ternary(message, size, apud.number_to_send(table.keep, size))


# Qsgd: all values, each rounded at random to a level of its bucket's norm


def quantise(vector: Tensor, levels: int, bucket: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Signed levels (P,) int8 from -levels to levels, and the norms (buckets,) that they are shares of.

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
    """The values (P,) that the levels stand for, in float64."""
    return _spread(norms, bucket, len(signed)) * signed.to(torch.float64) / levels


def _spread(norms: Tensor, bucket: int, size: int) -> Tensor:
    return norms.to(torch.float64).repeat_interleave(bucket)[:size]


def pack_pairs(signed: Tensor) -> Tensor:
    """Levels from -7 to 7 as a sign bit and three bits, two to a byte, the first in the upper half."""
    half = signed.abs() + 8 * (signed < 0)  # (P,) from 0 to 15
    pairs = torch.cat([half, half.new_zeros(len(half) % 2)]).to(torch.uint8).view(-1, 2)
    return 16 * pairs[:, 0] + pairs[:, 1]


def unpack_pairs(packed: Tensor, size: int) -> Tensor:
    half = torch.stack([packed >> 4, packed & 15], dim=1).flatten()[:size].to(torch.int8)
    return torch.where(half >= 8, 8 - half, half)


def _level_fields(table: Compress, size: int) -> Fields:
    kind = Counted("parameters", size)  # two to a byte with 4 bits
    pairs = Dense((-(-size // 2),), (torch.uint8,), kind=kind)
    levels = pairs if table.bits == 4 else Dense((size,), (torch.int8,), kind=kind, low=-table.levels)
    return {"levels": levels, "norms": Dense((-(-size // table.bucket),), low=0)}


def _write_levels(table: Compress, vector: Tensor, draw: Draw) -> Message:
    signed, norms = quantise(vector, table.levels, table.bucket, draw())
    return {"levels": pack_pairs(signed) if table.bits == 4 else signed, "norms": norms}


def _read_levels(table: Compress, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
    levels = message.tensor("levels")
    signed = unpack_pairs(levels, size) if table.bits == 4 else levels
    return dequantise(signed, message.tensor("norms"), table.levels, table.bucket)


def _stc_fields(table: Compress, size: int) -> Fields:
    return _ternary_fields()


_TOP = Form(_top_fields, _write_top, _read_top)

FORMS: Mapping[str, Form] = {
    "top-k": _TOP,
    "top-k-ef": _TOP,
    "ef21": _TOP,
    "random-k": Form(_random_fields, _write_random, _read_random),
    "stc": Form(_stc_fields, _write_stc, _read_stc),
    "qsgd": Form(_level_fields, _write_levels, _read_levels),
}
