"""Thin's messages: a change in few bits, steps that a client missed, and how long they may be."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from refprotofl.basics.streams import stream
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.methods.builtin.thin import Options
from refprotofl.methods.common.entropy_coded import decode_entropy, encode_entropy
from refprotofl.methods.common.rotated import code_bytes, decode_rotated, encode_rotated
from refprotofl.methods.common.rotation import Coded, Draw, number_of_blocks
from refprotofl.methods.common.sparse_coded import decode_sparse, encode_sparse
from refprotofl.methods.core.fields import Dense, Fields, Received, Whole
from refprotofl.methods.core.messages import Scope
from refprotofl.methods.core.refusal import Refused
from refprotofl.wire import Message, WireError, encode
from refprotofl.wire.ledger import Counted

WHOLE_BITS = 8.0  # of the model as a whole, for whom the missed steps would take longer


def up_length(scope: Scope) -> int:
    """Bytes of a client's code."""
    table: Options = scope.options
    if table.uplink_budget is None:
        return code_bytes(scope.shared, float(table.up_bits or 0))
    return longest(table.uplink_budget, lambda length: _change(scope.shared, length), "thin.uplink-budget")


def down_length(scope: Scope) -> int:
    """Bytes of the code of a step."""
    table: Options = scope.options
    if table.downlink_budget is None:
        return code_bytes(scope.shared, float(table.down_bits or 0))

    def message(length: int) -> Message:
        anchors = {"anchors": torch.zeros(scope.classes, scope.width, dtype=torch.bfloat16)}
        most = scope.experiment.rounds + 1  # steps: one a round, and the last
        told: Message = {"base": most, "version": most, **(anchors if table.drift == "anchors" else {})}
        return {**_change(scope.shared, length), **told}

    return longest(table.downlink_budget, message, "thin.downlink-budget")


def whole_length(scope: Scope) -> int:
    """Bytes of the code of the whole model, for who missed much; a budget holds for it, too."""
    table: Options = scope.options
    return down_length(scope) if table.downlink_budget is not None else code_bytes(scope.shared, WHOLE_BITS)


def longest(budget: int, message: Callable[[int], Message], key: str) -> int:
    """The longest code whose message keeps within the budget."""
    overhead = len(encode(message(1))) - 1
    length = budget - overhead
    while length > 0 and len(encode(message(length))) > budget:
        length -= 1  # a longer length may take another byte to tell
    if length < 1:
        raise InputError(f"{key} = {budget} bytes is too small: a message takes {overhead + 1} bytes at least.")
    return length


def _change(size: int, length: int) -> Message:
    scales = torch.zeros(number_of_blocks(size), dtype=torch.bfloat16)
    return {"code": torch.zeros(length, dtype=torch.uint8), "scales": scales}


def change_fields(scope: Scope) -> Fields:
    blocks = number_of_blocks(scope.shared)
    return {
        "code": Dense((None,), (torch.uint8,), kind=Counted("parameters", scope.shared), longest=up_length(scope)),
        "scales": Dense((blocks,), (torch.bfloat16,), low=0, high=math.inf),
    }


def step_fields(scope: Scope) -> Fields:
    """None for a client that holds the newest already; `base` is the version that the steps begin at."""
    fields: Fields = {
        "code": Dense((None,), (torch.uint8,), kind=Counted("parameters", scope.shared), optional=True),
        "scales": Dense((None,), (torch.bfloat16,), low=0, optional=True),
        "base": Whole(low=0, optional=True),
        "version": Whole(low=0),
    }
    if scope.options.drift != "anchors":
        return fields
    return {**fields, "anchors": Dense((scope.classes, scope.width), (torch.bfloat16,), kind="prototype_values")}


def sign_draw(experiment: Experiment, purpose: str, version: int, client: int | None = None) -> Draw:
    """The signs of a rotation, which both sides draw."""
    return partial(stream, experiment.seed, f"thin/{purpose}", client=client, round=version)


def write(coded: Coded) -> Message:
    return {"code": coded.code, "scales": coded.scales}


def read_change(scope: Scope, message: Received, draw: Draw) -> Tensor:
    scales = message.tensor("scales")
    if not torch.isfinite(scales).all():
        raise Refused("scales has a number that is not finite")
    return decoded(scope.options, Coded(message.tensor("code"), scales), scope.shared, draw)


def read_steps(scope: Scope, message: Received, held: Tensor) -> Tensor:
    """The newest broadcast: what is held, moved by each of the steps in the message."""
    code, scales, version = message.tensor("code"), message.tensor("scales"), message.whole("version")
    length, blocks, base = down_length(scope), number_of_blocks(scope.shared), message.whole("base")
    count = version - base
    if len(code) != count * length or len(scales) != count * blocks:
        raise Refused(f"the code is not that of {count} steps")
    for number in range(count):
        coded = Coded(code[number * length :][:length], scales[number * blocks :][:blocks])
        draw = sign_draw(scope.experiment, "step", base + number + 1)
        held = held + decoded(scope.options, coded, scope.shared, draw)
    return held


def encode_change(table: Options, change: Tensor, length: int, draw: Draw) -> tuple[Coded, Tensor]:
    """A vector as a code, and what the other side will make of it."""
    if table.code == "sparse":
        coded = encode_sparse(change, length)
    else:
        coded = (encode_entropy if table.code == "entropy" else encode_rotated)(change, length, draw)
    return coded, decoded(table, coded, len(change), draw)


def decoded(table: Options, coded: Coded, size: int, draw: Draw) -> Tensor:
    """The vector (P,) that a code stands for."""
    try:
        if table.code == "sparse":
            return decode_sparse(coded, size)
        return (decode_entropy if table.code == "entropy" else decode_rotated)(coded, size, draw)
    except WireError as problem:
        raise Refused(f"code: {problem}") from None
