"""Masked updates under every switch: what a client packs, what the server reads, what error feedback keeps."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from refprotofl.methods import Refused, apud
from refprotofl.methods.base.schema import MessageSchema, ValidatedMessage, read_answer
from refprotofl.methods.builtin.refprotofl import Options, masked
from refprotofl.wire import Message, Sparse, budget, decode, encode
from refprotofl.wire.tensors import same_bits

VALUE_TYPES = ("float32", "float16", "bfloat16", "int8")
# Of a value v the type keeps so much: relative step of its mantissa, and the smallest step there is.
STEPS = {"float32": (2**-23, 0.0), "float16": (2**-11, 2**-25), "bfloat16": (2**-8, 0.0)}
SIZES = [60, 6, 30, 4]  # feature weight, feature bias, head weight, head bias
SIZE = sum(SIZES)


def table(**values: Any) -> Options:
    return Options(**values)


def vector(seed: int, scale: float = 1.0, size: int = SIZE) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, scale, size).astype(np.float32))


def fresh(seed: int = 0) -> Callable[[], np.random.Generator]:
    return lambda: np.random.default_rng(seed)


def compose(
    switches: Options, local: Tensor, reference: Tensor, memory: Tensor | None = None,
    extra: Message | None = None, spent: int = 0, seed: int = 0,
) -> tuple[Message, Tensor]:  # fmt: skip
    nothing = torch.zeros_like(local)
    return masked.compose(
        switches, SIZES, local, reference, nothing if memory is None else memory, fresh(seed), extra or {}, spent
    )


def unpack(switches: Options, message: Message, reference: Tensor) -> masked.Update:
    """Read an answer to `train` as the server does: field by field, then between fields."""
    declared = {"train": MessageSchema(up=masked.fields(switches, len(reference)))}
    return masked.unpack(switches, read_answer(declared, "train", message), reference)


# Packing


@pytest.mark.parametrize("feedback", ["none", "ef", "ef21"])
@pytest.mark.parametrize("value_type", VALUE_TYPES)
def test_what_the_client_takes_as_sent_is_what_the_server_reads(value_type: str, feedback: str) -> None:
    """Over the real wire; otherwise error feedback would correct for the wrong error."""
    switches = table(value_type=value_type, error_feedback=feedback, normalise="participants", keep=0.17)
    reference, target = vector(1), vector(1) + vector(2, 0.01)
    mask = apud.select(target, reference, 17)
    message, sent = masked.pack(switches, target, reference, mask)
    update = unpack(switches, decode(encode(message)), reference)
    assert update.indices.equal(mask.nonzero().squeeze(1))
    assert same_bits(update.change, sent)
    assert update.change[~mask].eq(0).all()
    assert torch.allclose(update.sent_values, (reference + sent)[mask], atol=1e-6)


def test_by_default_values_are_sent_to_the_last_bit() -> None:
    reference, target = vector(1), vector(2)
    mask = apud.select(target, reference, 9)
    message, _ = masked.pack(table(keep=0.09), target, reference, mask)
    assert list(message) == ["adapter"]
    assert same_bits(unpack(table(keep=0.09), message, reference).sent_values, target[mask])


@pytest.mark.parametrize("value_type", ["float16", "bfloat16"])
@given(seed=st.integers(0, 2**32), exponent=st.integers(-6, 2))
@settings(max_examples=30)
def test_a_narrow_float_rounds_each_change_to_its_nearest(value_type: str, seed: int, exponent: int) -> None:
    switches = table(value_type=value_type)
    reference, target = vector(seed), vector(seed) + vector(seed + 1, 10.0**exponent)
    change = target - reference
    mask = torch.ones(SIZE, dtype=torch.bool)
    _, sent = masked.pack(switches, target, reference, mask)
    relative, absolute = STEPS[value_type]
    assert ((sent - change).abs() <= relative * change.abs() + absolute).all()


@given(seed=st.integers(0, 2**32), exponent=st.integers(-12, 6))
@settings(max_examples=60)
def test_int8_is_off_by_half_a_step_at_most(seed: int, exponent: int) -> None:
    switches = table(value_type="int8")
    reference, target = torch.zeros(SIZE), vector(seed, 10.0**exponent)
    mask = apud.select(target, reference, 30)
    message, sent = masked.pack(switches, target, reference, mask)
    scale = message["scale"]
    assert isinstance(scale, float)
    assert scale == pytest.approx(target[mask].abs().max().item() / 127)
    assert ((sent - target)[mask].abs() <= 0.5 * scale * (1 + 1e-5)).all()


def test_int8_of_an_update_that_did_not_move_is_zero() -> None:
    reference, switches = vector(3), table(value_type="int8", keep=1.0)
    message, sent = masked.pack(switches, reference, reference, torch.ones(SIZE, dtype=torch.bool))
    assert sent.eq(0).all()
    assert unpack(switches, decode(encode(message)), reference).sent_values.equal(reference)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"adapter": torch.zeros(SIZE)}, f"adapter is not a sparse vector of size {SIZE}"),
        ({"adapter": Sparse(torch.tensor([0]), torch.zeros(1), SIZE + 1)}, f"not a sparse vector of size {SIZE}"),
        (
            {"adapter": Sparse(torch.tensor([0]), torch.zeros(1).half(), SIZE)},
            "adapter is torch.float16, not torch.float32",
        ),
        ({"adapter": 3}, "not a sparse vector"),
        ({"adapter": Sparse(torch.tensor([0]), torch.zeros(1), SIZE)}, "1 coordinates were sent, not the announced 10"),
        ({"change": Sparse(torch.arange(10), torch.zeros(10), SIZE)}, "the field 'change' was not asked for"),
        ({"adapter": Sparse(torch.arange(10), torch.zeros(10), SIZE), "scale": 1.0}, "'scale' was not asked for"),
        ({}, "the field 'adapter' is missing"),
    ],
)
def test_an_upload_of_another_form_is_refused(message: Message, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        unpack(table(), message, torch.zeros(SIZE))


def test_with_a_budget_any_number_of_coordinates_is_of_the_right_form() -> None:
    for count in (1, SIZE):
        message: Message = {"adapter": Sparse(torch.arange(count), torch.ones(count), SIZE)}
        assert unpack(table(uplink_budget=400), message, torch.zeros(SIZE)).change.sum() == count


@pytest.mark.parametrize("scale", [None, 1, "1", True])
def test_int8_without_a_proper_scale_is_refused(scale: object) -> None:
    message: Message = {"change": Sparse(torch.tensor([0]), torch.ones(1, dtype=torch.int8), SIZE)}
    if scale is not None:
        message["scale"] = scale  # type: ignore[assignment]
    switches = table(value_type="int8", keep=0.01)
    with pytest.raises(Refused, match="scale"):
        unpack(switches, message, torch.zeros(SIZE))
    with pytest.raises(Refused, match="scale"):  # nor does the reader take it
        masked.unpack(switches, ValidatedMessage(message), torch.zeros(SIZE))


def test_a_scale_that_makes_the_change_infinite_is_refused() -> None:
    """Every value on the wire is finite, yet their product would poison the adapter of all."""
    message: Message = {"change": Sparse(torch.tensor([0]), torch.ones(1, dtype=torch.int8), SIZE), "scale": 1e300}
    with pytest.raises(Refused, match=r"scale = 1e\+300 makes changes that are not finite"):
        unpack(table(value_type="int8", keep=0.01), decode(encode(message)), torch.zeros(SIZE))


# Error feedback


@pytest.mark.parametrize("select", ["top", "random", "probabilistic"])
@pytest.mark.parametrize("value_type", VALUE_TYPES)
def test_with_error_feedback_everything_sent_and_the_rest_add_up_to_all_changes(value_type: str, select: str) -> None:
    switches = table(error_feedback="ef", normalise="participants", value_type=value_type, select=select, keep=0.1)
    memory, sent, changes = torch.zeros(SIZE), torch.zeros(SIZE).double(), torch.zeros(SIZE).double()
    for round in range(8):
        reference = vector(100 + round)
        local = reference + vector(200 + round, 0.1)
        message, memory = compose(switches, local, reference, memory, seed=round)
        sent += unpack(switches, message, reference).change.double()
        changes += local.double() - reference.double()
    assert memory.abs().max() > 0.1  # much was held back
    assert torch.allclose(sent + memory.double(), changes, atol=1e-5)


def test_error_feedback_sends_what_waited_longest_for_its_turn() -> None:
    """Two coordinates, room for one: the small movement is sent once its rest outgrows the other."""
    switches = table(error_feedback="ef", normalise="participants", keep=0.5)
    reference, memory, chosen = torch.zeros(2), torch.zeros(2), []
    for round in range(4):
        local = torch.tensor([1.0, 0.4])
        message, memory = masked.compose(switches, [2], local, reference, memory, fresh(round), {}, 0)
        update = message["adapter"]
        assert isinstance(update, Sparse)
        chosen.append((update.indices.item(), round_to(update.values.item())))
    assert chosen == [(0, 1.0), (0, 1.0), (1, 1.2), (0, 2.0)]


def round_to(value: float) -> float:
    return round(value, 5)


def test_ef21_contracts_to_a_constant_change() -> None:
    """The server's memory of the client comes closer every round, by a quarter of its square at least."""
    switches = table(error_feedback="ef21", normalise="participants", keep=0.25)
    reference, change = vector(1), vector(2)
    local = reference + change
    memory = believed = torch.zeros(SIZE)
    errors = [float((change - believed).square().sum())]
    for _ in range(5):
        message, memory = compose(switches, local, reference, memory)
        believed = believed + unpack(switches, message, reference).change
        assert same_bits(believed, memory)  # both sides keep the same
        errors.append(float((change - believed).square().sum()))
    for before, after in itertools.pairwise(errors):
        assert after <= 0.75 * before + 1e-9
    assert errors[4] < 1e-9  # four quarters


# The uplink budget


@given(st.integers(1, 200), st.data())
def test_the_largest_that_fits_of_a_monotone_rule(most: int, data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, most))
    assert budget.largest_that_fits(lambda keep: keep <= limit, most) == limit


@given(st.sets(st.integers(2, 60)), st.integers(1, 60))
def test_the_largest_that_fits_never_lands_where_one_more_would_fit(holes: set[int], most: int) -> None:
    """Lengths may dip: any pattern of what fits, as long as 1 does."""

    def fits(keep: int) -> bool:
        assert 1 <= keep <= most
        return keep not in holes

    keep = budget.largest_that_fits(fits, most)
    assert fits(keep)
    assert keep == most or not fits(keep + 1)


@pytest.mark.parametrize("scope", ["global", "per-tensor"])
@pytest.mark.parametrize("select", ["top", "random", "probabilistic"])
@given(
    seed=st.integers(0, 2**32),
    budget=st.integers(60, 700),
    spent=st.integers(0, 20),
    value_type=st.sampled_from(VALUE_TYPES),
)
@settings(max_examples=12)
def test_a_composed_message_fits_its_budget_and_one_more_would_not(
    select: str, scope: str, seed: int, budget: int, spent: int, value_type: str
) -> None:
    switches = table(uplink_budget=budget, select=select, selection_scope=scope, value_type=value_type)
    reference = vector(seed)
    local = reference + vector(seed + 1, 0.1)
    message, _ = compose(switches, local, reference, seed=seed, spent=spent)
    assert spent + len(encode(message)) <= budget
    keep = len(unpack(switches, message, reference).indices)
    if keep < SIZE:
        mask = masked.choose(switches, SIZES, local, reference, keep + 1, np.random.default_rng(seed))
        assert spent + len(encode(masked.pack(switches, local, reference, mask)[0])) > budget


def test_what_goes_along_is_paid_from_the_same_budget() -> None:
    reference, local = vector(1), vector(2)
    extra: Message = {"public_prototypes": torch.ones(5, 8)}
    switches = table(uplink_budget=400)
    alone, _ = compose(switches, local, reference)
    together, _ = compose(switches, local, reference, extra=extra)
    assert list(together) == ["public_prototypes", "adapter"]
    assert len(encode(together)) <= 400
    sent = [len(ValidatedMessage(message).sparse("adapter").indices) for message in (alone, together)]
    assert sent[1] < sent[0]


def test_a_budget_that_carries_everything_sends_everything() -> None:
    reference, local = vector(1), vector(2)
    message, _ = compose(table(uplink_budget=100_000), local, reference)
    assert len(unpack(table(uplink_budget=100_000), message, reference).indices) == SIZE


# The scope of selection


@given(
    seed=st.integers(0, 2**32), keep=st.integers(1, SIZE), select=st.sampled_from(["top", "random", "probabilistic"])
)
@settings(max_examples=60)
def test_per_tensor_selection_gives_every_tensor_its_share(seed: int, keep: int, select: str) -> None:
    switches = table(selection_scope="per-tensor", select=select)
    mask = masked.choose(switches, SIZES, vector(seed), vector(seed + 1), keep, np.random.default_rng(seed))
    assert [int(part.sum()) for part in mask.split(SIZES)] == apud.split_by_tensor(keep, SIZES)


def test_the_scope_decides_whether_a_restless_tensor_may_take_all() -> None:
    reference, local = torch.zeros(SIZE), torch.zeros(SIZE)
    local[-4:] = 100.0  # only the head's bias moves
    top = masked.choose(table(), SIZES, local, reference, 4, np.random.default_rng(0))
    assert top.nonzero().flatten().tolist() == [96, 97, 98, 99]
    each = masked.choose(table(selection_scope="per-tensor"), SIZES, local, reference, 25, np.random.default_rng(0))
    assert [int(part.sum()) for part in each.split(SIZES)] == [15, 2, 7, 1]
