"""Compressed changes as pure functions: what is sent, in how many bytes, and what is kept of the rest."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.core import streams
from refprotofl.core.state import State, tensor_of
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Compress
from refprotofl.methods import METHODS, Refused
from refprotofl.methods.base.broadcast import Downlink, LatestChanges
from refprotofl.methods.base.compressor import CompressedDownlink, Compressor, Draw
from refprotofl.methods.base.schema import MessageSchema, MessageSchemas, ValidatedMessage, kinds, read_answer
from refprotofl.methods.base.server import Server, ServerContext
from refprotofl.methods.common import weights
from refprotofl.methods.compressors import NAMES, create_compressor
from refprotofl.methods.compressors.qsgd import pack_pairs, unpack_pairs
from refprotofl.methods.compressors.stc import TernaryDownlink
from refprotofl.wire import Message, Sparse, decode, encode
from refprotofl.wire.indices import encode_indices
from refprotofl.wire.ledger import Ledger
from refprotofl.wire.tensors import same_bits


def compressor_of(table: Compress) -> Compressor:
    return create_compressor(Experiment(method="fedavg", compress=table))


def vector(seed, size=1000, scale=1.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(0, scale, size).astype(np.float32))


def draw(name="random-k", client=0, round=1):
    return partial(streams.stream, 7, name, client=client, round=round)


def train(table: Compress, size: int) -> MessageSchemas:
    """Return a server's fields of the answers to `train`, for a shared vector of `size`."""
    return {"train": MessageSchema(up=compressor_of(table).fields(size))}


def read(table: Compress, message: Message, size: int, draw: Draw) -> torch.Tensor:
    """Read an answer as a server does: field by field, then between fields."""
    return compressor_of(table).decode(read_answer(train(table, size), "train", message), size, draw)


def write(table: Compress, change: torch.Tensor, memory: torch.Tensor, draw: Draw) -> tuple[Message, torch.Tensor]:
    """Encode a change as a client does; return the message and its next memory."""
    state: State = {"memory": memory}
    message = compressor_of(table).write_update(change, torch.zeros_like(change), state, draw)
    return message, tensor_of(state, "memory")


def send(table, change, memory=None, **stream):
    """Over the real wire: the message as it arrives, what the server reads, the client's next memory."""
    memory = torch.zeros_like(change) if memory is None else memory
    message, memory = write(table, change, memory, draw(table.name, **stream))
    arrived = ValidatedMessage(decode(encode(message)))
    return arrived, read(table, arrived, len(change), draw(table.name, **stream)), memory


# Feedback


@pytest.mark.parametrize("name", ["top-k-ef", "stc"])
def test_with_error_feedback_everything_sent_and_the_rest_add_up_to_all_changes(name):
    table, memory = Compress(name=name, keep=0.05), torch.zeros(1000)
    sent, changes = torch.zeros(1000).double(), torch.zeros(1000).double()
    for round in range(10):
        change = vector(round, scale=0.1)
        _, read, memory = send(table, change, memory, round=round)
        sent += read
        changes += change
    assert memory.abs().max() > 0.1  # much was held back
    assert torch.allclose(sent + memory, changes, atol=1e-5, rtol=0)


def test_decay_lets_the_rest_fade():
    table, change = Compress(name="top-k-ef", keep=0.25, decay=0.5), torch.tensor([4.0, 2.0, 1.0, 0.0])
    memories, memory = [], None
    for _ in range(3):
        _, _, memory = send(table, change, memory)
        memories.append(memory.tolist())
    # 4 goes first; then 4 against 2 + 1; then 4 against 2 + 1.5.
    assert memories == [[0, 2, 1, 0], [0, 3, 1.5, 0], [0, 3.5, 1.75, 0]]


def test_ef21_keeps_the_same_on_both_sides_and_closes_in_on_a_constant_change():
    table, change = Compress(name="ef21", keep=0.25), vector(3)
    memory = believed = torch.zeros(1000)
    errors = []
    for _ in range(4):
        _, correction, memory = send(table, change, memory)
        believed = believed + correction
        assert same_bits(believed, memory)
        errors.append(float((change - believed).abs().max()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6  # four quarters


def server(scope: Any, size: int, **compress: Any) -> Server:
    """FedAvg's, as if its shared vector had so many values that no client has got yet."""
    small = scope({"method": "fedavg", "compress": compress})
    feedback = METHODS["fedavg"].feedback(small.experiment)
    made = METHODS["fedavg"].server(ServerContext(small.experiment, small.model, small.parts, feedback=feedback))
    made.downlink = made.compressor.create_downlink(small.experiment.clients, size, 7) or Downlink()
    return made


def test_ef21s_server_step_by_hand(scope):
    made = server(scope, 2, name="ef21")
    made.changes = known = LatestChanges(3, 2)
    known.memory = torch.tensor([[1.0, 0], [0, 8], [5, 5]])
    made.samples = torch.tensor([3, 1, 0])  # the third never took part
    assert weights.step(made, 1, torch.tensor([10.0, 20]), iter(())).tolist() == [10.75, 22]
    again = weights.step(made, 2, torch.tensor([10.0, 20]), iter([(0, torch.tensor([3.0, 4]))]))
    assert known.memory.tolist() == [[4, 4], [0, 8], [5, 5]]  # a correction of what is known of the first
    assert again.tolist() == [13, 25]  # (3 * 4 + 0) / 4, (3 * 4 + 8) / 4: who is absent counts with its last one


def test_stcs_server_step_by_hand(scope):
    """The target is (4, -1, 2) away and two values go: first (3, 0, 3), then what is owed of it."""
    made = server(scope, 3, name="stc", keep=0.67)
    kept = made.downlink
    assert isinstance(kept, TernaryDownlink)
    first = kept.advance(1, torch.zeros(3), torch.tensor([4.0, -1, 2]))
    assert first.tolist() == [3, 0, 3]
    assert kept.residual.tolist() == [1, -1, -1]
    second = kept.advance(2, first, first + torch.tensor([0, -3.0, 0]))
    assert kept.step.tolist() == [2.5, -2.5, 0]
    assert second.tolist() == [5.5, -2.5, 3]
    assert kept.residual.tolist() == [-1.5, -1.5, -1]


@pytest.mark.parametrize("name", ["top-k", "random-k", "qsgd", "eden"])
def test_without_feedback_nothing_is_remembered(name):
    memory = torch.zeros(1000)
    assert send(Compress(name=name), vector(1), memory)[2] is memory


# Values


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", [1, -4, 0.5, 3]),
        ("top-k", [0, -4, 0, 3]),
        ("top-k-ef", [0, -4, 0, 3]),
        ("ef21", [0, -4, 0, 3]),
        ("stc", [0, -3.5, 0, 3.5]),  # their mean magnitude
    ],
)
def test_what_is_decoded_by_hand(name, expected):
    assert send(Compress(name=name, keep=0.5), torch.tensor([1.0, -4.0, 0.5, 3.0]))[1].tolist() == expected


def test_without_compression_the_trained_weights_arrive_to_the_bit():
    trained, reference, state = vector(1), vector(2), State()
    compressor = compressor_of(Compress())
    message = compressor.write_update(trained, reference, state, draw("none"))
    assert same_bits(ValidatedMessage(message).tensor("shared"), trained)
    change = compressor.read_update(ValidatedMessage(message), reference, draw("none"))
    assert same_bits(change, trained.double() - reference.double())
    assert state == {}


def test_top_k_sends_the_largest_and_nothing_else():
    message, read, _ = send(Compress(name="top-k", keep=0.5), torch.tensor([1.0, -4.0, 0.5, 3.0]))
    assert message == {"change": Sparse(torch.tensor([1, 3]), torch.tensor([-4.0, 3.0]), 4)}
    assert read.tolist() == [0, -4, 0, 3]


@given(st.integers(1, 300), st.floats(0.001, 1))
def test_exactly_the_announced_number_is_sent(size, keep):
    number = max(1, int(keep * size))
    assert len(send(Compress(name="top-k", keep=keep), vector(size, size))[0]["change"].indices) == number
    assert len(send(Compress(name="random-k", keep=keep), vector(size, size))[0]["change"]) == number
    assert len(send(Compress(name="stc", keep=keep), vector(size, size))[0]["signs"]) == number


def test_everything_kept_is_everything_sent():
    assert send(Compress(name="top-k", keep=1.0), vector(1))[1].equal(vector(1))


def test_stc_sends_signs_of_one_magnitude():
    change = torch.tensor([3.0, -1.0, 0.5, -5.0])
    message, read, memory = send(Compress(name="stc", keep=0.5), change)
    assert message["signs"].tolist() == [True, False]
    assert message["scale"].item() == 4
    assert read.tolist() == [4, 0, 0, -4]
    assert memory.tolist() == [-1, -1, 0.5, -1]


@pytest.mark.parametrize("change", [torch.zeros(6), torch.tensor([0, 0, -2.0, 0, 0, 0])])
def test_stc_makes_nothing_out_of_zeros(change):
    message, read, memory = send(Compress(name="stc", keep=0.5), change)
    assert read.equal(change)
    assert memory.eq(0).all()
    assert len(message["signs"]) == int(change.count_nonzero())


def test_the_places_of_random_k_follow_from_client_and_round():
    table, change = Compress(name="random-k", keep=0.1), vector(1)
    reads = [send(table, change, client=client, round=round)[1] for client in (0, 1) for round in (1, 2)]
    masks = [read.ne(0) for read in reads]
    assert not any(masks[0].equal(other) for other in masks[1:])
    for read in reads:
        assert torch.allclose(read[read != 0], 10 * change[read != 0])  # P / k = 10
    message, _, _ = send(table, change)
    assert list(message) == ["change"]  # no index among what is sent
    assert message["change"].shape == (100,)


@pytest.mark.slow
def test_random_k_is_unbiased():
    table, change, number = Compress(name="random-k", keep=0.2), vector(5, 40), 10_000
    total, squares = torch.zeros(40).double(), torch.zeros(40).double()
    for round in range(number):
        message, _ = write(table, change, change, draw(round=round))
        back = read(table, message, 40, draw(round=round)).double()
        total += back
        squares += back.square()
    sigma = change.double().abs() * (5 - 1) ** 0.5  # of one draw: |v| sqrt(P / k - 1)
    assert ((total / number - change).abs() <= 4 * sigma / number**0.5).all()
    assert torch.allclose((squares / number - change.double().square()).sqrt(), sigma, rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 4])
def test_qsgd_is_unbiased(bits):
    table, change, number = Compress(name="qsgd", bits=bits, bucket=16), vector(6, 40), 4000
    total = torch.zeros(40).double()
    for round in range(number):
        message, _ = write(table, change, change, draw("qsgd", round=round))
        total += read(table, message, 40, draw("qsgd", round=round))
    levels = 2 ** (bits - 1) - 1
    norms = torch.cat([part.norm().expand(len(part)) for part in change.double().split(16)])
    chance = (change.double().abs() / norms * levels).frac()
    sigma = norms / levels * (chance * (1 - chance)).sqrt()
    assert sigma.max() > 0.1 * change.abs().mean() / levels  # there is something to round
    assert ((total / number - change).abs() <= 4 * sigma / number**0.5 + 1e-6).all()


@given(st.integers(0, 2**32), st.sampled_from([8, 4]), st.sampled_from([1, 7, 64, 512]), st.integers(1, 200))
def test_qsgd_is_off_by_less_than_a_level_of_its_bucket(seed, bits, bucket, size):
    table, change = Compress(name="qsgd", bits=bits, bucket=bucket), vector(seed, size)
    _, read, _ = send(table, change)
    levels = 2 ** (bits - 1) - 1
    norms = torch.cat([part.norm().expand(len(part)) for part in change.double().split(bucket)])
    assert ((read - change).abs() <= norms / levels * (1 + 1e-6)).all()
    assert (read * change >= 0).all()


def test_qsgd_of_zeros_is_zeros():
    assert send(Compress(name="qsgd"), torch.zeros(600))[1].eq(0).all()


# EDEN: with S = |x|^2 / <x, q> for rotated values x and their levels q, the mean over rotations is x. The error is
# D / (1 - D), with D that of Lloyd and Max's quantiser for a Gaussian: 0.3634 / 0.6366 = 0.5708 with one bit (DRIVE).


@pytest.mark.slow
@pytest.mark.parametrize("share", [1, 16])  # of the values that are not 0: every one, every sixteenth
@pytest.mark.parametrize(("bits", "nmse"), [(1, 0.5708), (2, 0.1331), (3, 0.03578), (4, 0.009592), (8, 4.119e-5)])
def test_eden_is_unbiased_and_off_by_what_its_paper_says(bits, nmse, share):
    """The mean of n independent unbiased draws is off by an n-th of the error of one; a bias would stay."""
    table, change, number = Compress(name="eden", bits=bits), vector(8, 2048), 200
    change[torch.arange(2048) % share != 0] = 0
    total, errors = torch.zeros(2048).double(), []
    for round in range(number):
        message, _ = write(table, change, change, draw("eden", round=round))
        back = read(table, message, 2048, draw("eden", round=round)).double()
        total += back
        errors.append(float((back - change).square().sum() / change.double().square().sum()))
    assert np.mean(errors) == pytest.approx(nmse, rel=0.08 if share == 1 else 0.12)
    bias = float((total / number - change).square().sum() / change.double().square().sum())
    assert bias == pytest.approx(nmse / number, rel=0.3)


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 9000), st.sampled_from([1e-20, 1.0, 1e15]))
@settings(max_examples=60)
def test_eden_is_right_along_what_was_coded(seed, bits, size, scale):
    """<x, S q> = |x|^2 for every rotation, which is what the scale is made for."""
    change = vector(seed, size, scale)
    read = send(Compress(name="eden", bits=bits), change)[1].double()
    assert float(read @ change.double()) == pytest.approx(float(change.double().square().sum()), rel=1e-5)


def test_eden_with_one_bit_is_drive_by_hand():
    """The rotation of (3, 1) is (2, 1) sqrt(2) up to signs and order; S = |x|^2 / |x|_1 = 10 / (3 sqrt(2))."""
    message, read, _ = send(Compress(name="eden", bits=1), torch.tensor([3.0, 1.0]))
    assert message["code"].shape == (1,)
    assert float(message["scales"]) * 0.797885 == pytest.approx(10 / (3 * 2**0.5))
    assert read.tolist() == pytest.approx([10 / 3, 0], abs=1e-6)


def test_eden_of_zeros_is_zeros():
    assert send(Compress(name="eden", bits=1), torch.zeros(5000))[1].eq(0).all()


def test_edens_rotation_follows_from_client_and_round():
    reads = [send(Compress(name="eden", bits=1), vector(1), client=client, round=round)[1] for client, round in
             ((0, 1), (0, 2), (1, 1), (0, 1))]  # fmt: skip
    assert reads[0].equal(reads[3])
    assert not any(reads[0].equal(other) for other in reads[1:3])


def test_two_levels_share_a_byte():
    packed = pack_pairs(torch.tensor([1, -2, 7], dtype=torch.int8))
    assert packed.dtype == torch.uint8
    assert packed.tolist() == [0x1A, 0x70]
    every = torch.arange(-7, 8, dtype=torch.int8)
    assert unpack_pairs(pack_pairs(every), 15).equal(every)


# Bytes

HEAD = 3  # magic, version, number of fields


def test_a_message_of_top_k_is_the_index_code_and_four_bytes_a_value():
    for name in ("top-k", "top-k-ef", "ef21"):
        message, _, _ = send(Compress(name=name, keep=0.1), vector(1))
        code = encode_indices(message["change"].indices.numpy(), 1000)
        assert len(encode(message)) == HEAD + len("_change") + 1 + 2 + len(code) + 4 * 100


def test_a_message_of_random_k_is_four_bytes_a_value():
    message, _, _ = send(Compress(name="random-k", keep=0.1), vector(1))
    assert len(encode(message)) == HEAD + len("_change") + 1 + 2 + 4 * 100 == 413


def test_a_message_of_stc_is_the_index_code_a_bit_a_value_and_the_magnitude():
    message, read, _ = send(Compress(name="stc", keep=0.1), vector(1))
    code = len(encode_indices(read.nonzero().squeeze(1).numpy(), 1000))
    places, signs, scale = len("_places") + 1 + 2 + code, len("_signs") + 1 + 2 + 13, len("_scale") + 1 + 1 + 4
    assert len(encode(message)) == HEAD + places + signs + scale
    assert code + 13 < 100 * (np.log2(1000 / 100) + 2.5) / 8 + 4  # position and sign, and a few bytes of head


@pytest.mark.parametrize(("bits", "size", "levels"), [(8, 1000, 1000), (4, 1000, 500), (4, 1001, 501)])
def test_a_message_of_qsgd_is_its_bits_a_value_and_a_norm_a_bucket(bits, size, levels):
    message, _, _ = send(Compress(name="qsgd", bits=bits), vector(1, size))
    assert len(encode(message)) == HEAD + len("_levels") + 1 + 3 + levels + len("_norms") + 1 + 2 + 4 * 2


@pytest.mark.parametrize(
    ("bits", "size", "code", "blocks"),
    [(1, 4096, 512, 1), (4, 4096, 2048, 1), (8, 4096, 4096, 1), (3, 4096 + 100, 1536 + 48, 2), (1, 1000, 128, 1)],
)
def test_a_message_of_eden_is_its_bits_a_value_and_a_scale_a_block(bits, size, code, blocks):
    """The last block is padded to a power of two: 100 values to 128, 1,000 to 1,024."""
    message, _, _ = send(Compress(name="eden", bits=bits), vector(1, size))
    assert len(encode(message)) == HEAD + len("_code") + 1 + 3 + code + len("_scales") + 1 + 2 + 4 * blocks


@pytest.mark.parametrize(
    ("table", "parameters", "others"),
    [
        (Compress(name="top-k"), 100, 0),
        (Compress(name="random-k"), 100, 0),
        (Compress(name="stc"), 100, 1),
        (Compress(name="qsgd"), 1001, 2),
        (Compress(name="qsgd", bits=4), 1001, 2),
        (Compress(name="eden", bits=1), 1001, 1),
    ],
)
def test_the_ledger_counts_parameters_however_they_are_packed(table, parameters, others):
    message, _, _ = send(table, vector(1, 1001))
    ledger = Ledger()
    declared = kinds(train(table, 1001))
    ledger.record(round=1, phase="train", client=0, direction="up", message=message, size=9, kinds=declared)
    assert ledger.totals()["uplink"] == {
        "parameters": parameters, "prototype_values": 0, "other_values": others, "payload_bytes": 9, "messages": 1
    }  # fmt: skip


# What a server does not accept


def code(*places, size=8):
    return torch.tensor(list(encode_indices(np.array(places, dtype=np.int64), size)), dtype=torch.uint8)


TERNARY: dict[str, Any] = {"places": code(1, 2, 5, 7), "signs": torch.ones(4).bool(), "scale": torch.tensor(1.0)}
FOUR = Sparse(torch.tensor([1, 2, 5, 7]), torch.ones(4), 8)
ROTATED: dict[str, Any] = {"code": torch.zeros(8, dtype=torch.uint8), "scales": torch.ones(1)}
LEVELS: dict[str, Any] = {"levels": torch.zeros(8, dtype=torch.int8), "norms": torch.ones(1)}


@pytest.mark.parametrize(
    ("name", "message", "sentence"),
    [
        ("top-k", {"change": torch.zeros(8)}, "change is not a sparse vector of size 8"),
        ("top-k", {"change": Sparse(torch.tensor([1]), torch.ones(1), 9)}, "change is not a sparse vector of size 8"),
        ("top-k", {"change": FOUR, "more": 1}, "the field 'more' was not asked for"),
        ("top-k", {}, "the field 'change' is missing"),
        (
            "top-k",
            {"change": Sparse(torch.tensor([1]), torch.ones(1).half(), 8)},
            "change is torch.float16, not torch.float32",
        ),
        (
            "ef21",
            {"change": Sparse(torch.tensor([1]), torch.ones(1), 8)},
            "1 coordinates were sent, not the announced 4",
        ),
        ("random-k", {"change": torch.zeros(8)}, "change is not a float32 vector of 4 values"),
        ("random-k", {"change": torch.zeros(4).double()}, "change is not a float32 vector of 4 values"),
        ("stc", TERNARY | {"places": torch.zeros(2)}, "places is not a uint8 vector"),
        ("stc", TERNARY | {"places": torch.tensor([9, 9], dtype=torch.uint8)}, "places: malformed"),
        ("stc", TERNARY | {"places": torch.cat([TERNARY["places"], torch.zeros(1).byte()])}, "1 bytes too many"),
        ("stc", TERNARY | {"places": code(1, 2, 3, 4, 5)}, "only bytes for 4"),
        ("stc", TERNARY | {"signs": torch.ones(5).bool()}, "signs is not a vector of 4"),
        ("stc", TERNARY | {"signs": torch.ones(4)}, "signs is not a bool vector"),
        ("stc", TERNARY | {"scale": torch.tensor(-1.0)}, "scale has a number below 0"),
        ("stc", TERNARY | {"scale": torch.ones(1)}, "scale is not a float32 number"),
        ("stc", TERNARY | {"scale": 1.0}, "scale is not a float32 number"),
        ("eden", ROTATED | {"code": torch.zeros(9, dtype=torch.uint8)}, "code is not a uint8 vector of 8"),
        ("eden", ROTATED | {"scales": -torch.ones(1)}, "scales has a number below 0"),
        ("eden", ROTATED | {"scales": torch.ones(2)}, "scales is not a float32 vector of 1"),
        ("qsgd", LEVELS | {"norms": torch.ones(2)}, "norms is not a float32 vector of 1"),
        ("qsgd", LEVELS | {"norms": -torch.ones(1)}, "norms has a number below 0"),
        ("qsgd", LEVELS | {"levels": torch.full((8,), -128, dtype=torch.int8)}, "levels has a number below -127"),
        ("qsgd", LEVELS | {"levels": torch.zeros(4, dtype=torch.uint8)}, "levels is not an int8 vector of 8"),
    ],
)
def test_a_message_of_another_form_is_refused(name, message, sentence):
    table = Compress(name=name, keep=0.5)
    with pytest.raises(Refused, match=sentence):
        read(table, message, 8, draw(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_field_of_another_kind_is_refused_also_by_its_reader(name):
    """A field that a schema lets through by mistake still does not become a change."""
    message, _ = write(Compress(name=name), vector(1), torch.zeros(1000), draw(name))
    for field in message:
        with pytest.raises(Refused, match=f"{field} is not a"):
            compressor_of(Compress(name=name)).decode(ValidatedMessage(message | {field: 1}), 1000, draw(name))


def test_the_proper_forms_of_those_are_accepted():
    assert read(Compress(name="top-k", keep=0.5), {"change": FOUR}, 8, draw()).tolist() == [0, 1, 1, 0, 0, 1, 0, 1]
    assert read(Compress(name="stc", keep=0.5), TERNARY, 8, draw()).tolist() == [0, 1, 1, 0, 0, 1, 0, 1]
    assert read(Compress(name="qsgd"), LEVELS, 8, draw()).eq(0).all()
    assert read(Compress(name="eden"), ROTATED, 8, draw()).norm() > 0


# The downlink


@pytest.mark.parametrize(
    ("table", "owes"),
    [
        ({"name": "eden", "bits": 1}, True),
        ({"name": "qsgd"}, True),
        ({"name": "qsgd", "bits": 4}, False),  # 512 values under a norm and 7 levels: the error may exceed the change
        ({"name": "qsgd", "bits": 4, "bucket": 48}, True),
        ({"name": "qsgd", "bits": 4, "bucket": 49}, False),
        ({"name": "top-k-ef"}, True),
        ({"name": "ef21"}, True),
        ({"name": "top-k"}, False),
        ({"name": "random-k"}, False),
    ],
)
def test_broadcasts_owe_the_rest_where_the_residual_stays_bounded(scope, table, owes):
    """After many steps what the clients hold is as near to the server's own vector as after a few."""
    made = server(scope, 1000, downlink="same", **table)
    assert isinstance(made.downlink, CompressedDownlink)
    reference = exact = torch.zeros(1000)
    left = []
    for round in range(1, 41):
        move = vector(round)
        exact = exact + move
        reference = made.downlink.advance(round, reference, reference + move)
        left.append(float((exact - reference).norm() / move.norm()))
    assert bool(made.downlink.residual.any()) == owes
    if owes:
        assert torch.allclose(reference + made.downlink.residual, exact, atol=1e-3)
        assert max(left[20:]) < 12
    if table["name"] == "eden":
        assert max(left) < 1.6  # with a: the square of the error is 0.57 (1 + a) of a step's, so a = 0.57 / 0.43
