"""Thin's messages: a change in few bits, steps that a client missed, and how long they may be."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from refprotofl.core import BudgetError, stream
from refprotofl.experiment import Experiment
from refprotofl.methods import Dense, Draw, Either, Fields, Refused, Scope, ValidatedMessage, Whole
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.thin import Options
from refprotofl.methods.builtin.thin import entropy_code as entropy
from refprotofl.methods.builtin.thin import sparse_code as sparse
from refprotofl.methods.builtin.thin.quantisation import Coded, code_bytes, decode_rotated, encode_rotated
from refprotofl.methods.common.rotated_quantiser import number_of_blocks
from refprotofl.wire import Counted, Message, WireError, encode

MOST_BITS = 8.0  # per weight: the most that a budget buys, and the rate of the whole model after missed rounds


@dataclass(frozen=True)
class _Code:
    scales: Callable[[int], int]  # how many go with the code of a vector of this size
    least: Callable[[int], int]  # bytes of a code that says anything at all
    encode: Callable[[Tensor, int, Draw], Coded]  # a vector, in this many bytes
    decode: Callable[[Coded, int, Draw, bool], Tensor]  # of this size; without bias, if the code can be read so


CODES = {
    "levels": _Code(
        lambda size: entropy.SCALES,
        entropy.least_entropy,
        lambda vector, length, draw: entropy.encode_entropy(vector, length),
        lambda coded, size, draw, unbiased: entropy.decode_entropy(coded, size),
    ),
    "rotated": _Code(number_of_blocks, lambda size: 1, encode_rotated, decode_rotated),
    "sparse": _Code(
        lambda size: sparse.SCALES,
        sparse.least_sparse,
        lambda vector, length, draw: sparse.encode_sparse(vector, length),
        lambda coded, size, draw, unbiased: sparse.decode_sparse(coded, size),
    ),
}

# How long a code is


def up_length(scope: Scope, round: int) -> int:
    """Return the bytes of a client's code in a round."""
    table: Options = scope.options
    if table.uplink_budget is not None:
        return longest(scope, table.uplink_budget, lambda length: _change(scope, length), "thin.uplink-budget")
    if table.last_up_bits and round == scope.experiment.rounds:
        return bits_length(scope, table.last_up_bits, "thin.last-up-bits")
    return bits_length(scope, table.up_bits or 0.0, "thin.up-bits")


def down_length(scope: Scope, *, anchored: bool) -> int:
    """Return the bytes of a step's code; anchors sent along count against a budget."""
    table: Options = scope.options
    if table.downlink_budget is None:
        return bits_length(scope, table.down_bits or 0.0, "thin.down-bits")

    def message(length: int) -> Message:
        anchors = {"anchors": torch.zeros(scope.classes, scope.width, dtype=torch.bfloat16)}
        most = scope.experiment.rounds + 1  # steps: one a round, and the last
        versions: Message = {"base": most, "version": most, **(anchors if anchored else {})}
        return {**_change(scope, length), **versions}

    return longest(scope, table.downlink_budget, message, "thin.downlink-budget")


def whole_length(scope: Scope) -> int:
    """Return the bytes of the code of the whole model, for a client that missed many rounds."""
    return _length(scope, MOST_BITS)


def most_steps(scope: Scope) -> int:
    """Return how many steps in one message are no longer than a message with the whole model."""
    whole = len(encode({**_change(scope, whole_length(scope)), "version": 0}))
    length = down_length(scope, anchored=False)
    count = max(1, whole // (length + 2 * number_of_scales(scope)))
    while count > 1 and len(encode({**_change(scope, length, count), "base": 0, "version": 0})) > whole:
        count -= 1
    return count


def bits_length(scope: Scope, bits: float, key: str) -> int:
    """Return the bytes at this many bits a weight, which must be enough for a code that is not empty."""
    length, least = _length(scope, bits), CODES[scope.options.code].least(scope.shared)
    if length < least:
        enough = math.ceil(1000 * (bits + 8 * (least - length) / scope.shared)) / 1000
        raise BudgetError(
            f"{key} = {bits:g} is too little: of {scope.shared:,} weights that is {length} bytes, and a code takes "
            f"{least} at least: " + (f"use {enough:g} or more." if enough <= MOST_BITS else "the model is too small.")
        )
    return length


def _length(scope: Scope, bits: float) -> int:
    """Return the bytes of a code; one with fewer scales than blocks is longer by their difference."""
    spared = number_of_blocks(scope.shared) - number_of_scales(scope)
    return max(1, code_bytes(scope.shared, bits) + 2 * spared)


def number_of_scales(scope: Scope) -> int:
    return CODES[scope.options.code].scales(scope.shared)


def longest(scope: Scope, budget: int, message: Callable[[int], Message], key: str) -> int:
    """Return the longest useful code whose message keeps within the budget."""
    least = CODES[scope.options.code].least(scope.shared)
    overhead = len(encode(message(least))) - least
    length = min(budget - overhead, max(least, _length(scope, MOST_BITS)))
    while length > 0 and len(encode(message(length))) > budget:
        length -= 1  # a longer length may take another byte to encode
    if length < least:
        raise BudgetError(f"{key} = {budget} bytes is too small: a message takes {overhead + least} bytes at least.")
    return length


def _change(scope: Scope, length: int, count: int = 1) -> Message:
    scales = torch.zeros(count * number_of_scales(scope), dtype=torch.bfloat16)
    return {"code": torch.zeros(count * length, dtype=torch.uint8), "scales": scales}


# What is in a message


def change_fields(scope: Scope) -> Fields:
    """Return the fields of a change, whose length `read_change` checks; a node's own budget may be smaller."""
    kind, lengths = (
        Counted("parameters", scope.shared),
        {up_length(scope, 1), up_length(scope, scope.experiment.rounds)},
    )
    if scope.options.uplink_budget is not None:
        forms = [Dense((None,), (torch.uint8,), kind=kind, longest=max(lengths))]
    else:
        forms = [Dense((length,), (torch.uint8,), kind=kind) for length in sorted(lengths)]
    return {
        "code": forms[0] if len(forms) == 1 else Either(tuple(forms)),
        "scales": Dense((number_of_scales(scope),), (torch.bfloat16,), low=0, high=math.inf),
    }


def step_fields(scope: Scope) -> Fields:
    """Return the fields of the steps, none for a client that holds the newest; `base` is the version they begin at."""
    return {
        "code": Dense((None,), (torch.uint8,), kind=Counted("parameters", scope.shared), optional=True),
        "scales": Dense((None,), (torch.bfloat16,), low=0, optional=True),
        "base": Whole(low=0, optional=True),
        "version": Whole(low=0),
    }


def anchor_fields(scope: Scope) -> Fields:
    if scope.options.drift != "anchors":
        return {}
    return {"anchors": Dense((scope.classes, scope.width), (torch.bfloat16,), kind="prototype_values")}


def sign_draw(experiment: Experiment, purpose: str, version: int, client: int | None = None) -> Draw:
    """Return the draw of a rotation's signs, which both sides make."""
    return partial(stream, experiment.seed, f"thin/{purpose}", client=client, round=version)


def write(coded: Coded) -> Message:
    return {"code": coded.code, "scales": coded.scales}


def read_change(
    scope: Scope, message: ValidatedMessage, length: int, draw: Draw, unbiased: bool = False, shorter: bool = False
) -> Tensor:
    """Return the vector (P,) in a message whose code has this length, or less where that is allowed."""
    code, scales = message.tensor("code"), message.tensor("scales")
    if len(code) > length or (len(code) < length and not shorter):
        raise Refused(f"code has {len(code)} bytes, not {length}")
    if not torch.isfinite(scales).all():
        raise Refused("scales has a number that is not finite")
    return decoded(scope.options, Coded(code, scales), scope.shared, draw, unbiased)


def read_steps(scope: Scope, message: ValidatedMessage, held: Tensor) -> Tensor:
    """Return the newest broadcast: the held vector moved by each step in the message; within a budget there is one."""
    code, scales, version = message.tensor("code"), message.tensor("scales"), message.whole("version")
    length, blocks = down_length(scope, anchored="anchors" in message), number_of_scales(scope)
    base = message.whole("base")
    count = version - base if scope.options.downlink_budget is None else 1
    if len(code) != count * length or len(scales) != count * blocks:
        raise Refused(f"the code is not that of {count} steps")
    for number in range(count):
        coded = Coded(code[number * length :][:length], scales[number * blocks :][:blocks])
        draw = sign_draw(scope.experiment, "step", version - count + number + 1)
        held = held + decoded(scope.options, coded, scope.shared, draw)
    return held


def encode_change(table: Options, change: Tensor, length: int, draw: Draw) -> tuple[Coded, Tensor]:
    """Return a vector's code, and the vector that the other side decodes."""
    coded = CODES[table.code].encode(change, length, draw)
    said = decoded(table, coded, len(change), draw)
    guards.something_said(change, said, length)
    return coded, said


def decoded(table: Options, coded: Coded, size: int, draw: Draw, unbiased: bool = False) -> Tensor:
    """Return the vector (P,) of a code; the rotated code can be decoded without bias."""
    try:
        return CODES[table.code].decode(coded, size, draw, unbiased)
    except WireError as problem:
        raise Refused(f"code: {problem}") from None
