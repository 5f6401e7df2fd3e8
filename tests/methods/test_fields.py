"""Declared fields: each kind by hand, and every message of every method's real run as its method declares it."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, run
from refprotofl.federation.models import model_of
from refprotofl.methods import METHODS, Refused, Server
from refprotofl.methods.base.broadcast import FROM_SEED
from refprotofl.methods.base.schema import (
    Dense,
    Either,
    Field,
    Fields,
    MessageSchema,
    MessageSchemas,
    Real,
    Scope,
    SparseVector,
    ValidatedMessage,
    Whole,
    declare,
    kinds,
    read_answer,
    read_request,
    whole_numbers,
)
from refprotofl.methods.catalogue import options_of
from refprotofl.records.folder import read_experiment
from refprotofl.wire import Message, Sparse, decode
from refprotofl.wire.ledger import Counted

pytestmark = pytest.mark.slow

WHOLE_TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def some(values: int, size: int, dtype: torch.dtype = torch.float32) -> Sparse:
    return Sparse(torch.arange(values), torch.ones(values, dtype=dtype), size)


# Each kind of field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Dense((2, 3)), torch.zeros(2, 3)),
        (Dense((None, 3)), torch.zeros(7, 3)),
        (Dense((None, 3)), torch.zeros(0, 3)),
        (Dense(()), torch.tensor(1.5)),
        (Dense((0,)), torch.zeros(0)),
        (Dense((2,), (torch.float16, torch.float32)), torch.zeros(2).half()),
        (Dense((None, 1, 2, 2), (torch.uint8,)), torch.zeros(4, 1, 2, 2).byte()),
        (Dense((3,), low=-1, high=1), torch.tensor([-1.0, 0.0, 1.0])),
        (Dense((None,), low=5, high=4), torch.zeros(0)),  # of no value none is out of bounds
        (Dense((2,), (torch.bool,)), torch.tensor([True, False])),
        *((whole_numbers(2, low=0, high=9), torch.tensor([0, 9], dtype=dtype)) for dtype in WHOLE_TYPES),
        (SparseVector(9), some(0, 9)),
        (SparseVector(9), some(9, 9)),
        (SparseVector(9, torch.int8, count=3), some(3, 9, torch.int8)),
        (Whole(), -7),
        (Whole(low=1, high=3), 1),
        (Whole(low=1, high=3), 3),
        (Real(), -1e300),
        (Real(low=0, high=1), 0.0),
        (Real(low=0, high=1), 1.0),
        (Real(above=0), 5e-324),
        (Either((Dense((9,)), SparseVector(9))), torch.zeros(9)),
        (Either((Dense((9,)), SparseVector(9))), some(2, 9)),
    ],
)
def test_what_is_as_declared_passes(field: Field, value: Any) -> None:
    field.check("it", value)
    read = read_answer({"train": MessageSchema(up={"it": field})}, "train", {"it": value})
    assert read["it"] is value


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (Dense((2, 3)), torch.zeros(3, 2), "it is not a float32 matrix of 2 x 3"),
        (Dense((2, 3)), torch.zeros(6), "it is not a float32 matrix of 2 x 3"),
        (Dense((2, 3)), torch.zeros(2, 3, 1), "it is not a float32 matrix of 2 x 3"),
        (Dense((2, 3)), torch.zeros(2, 3).double(), "it is not a float32 matrix of 2 x 3"),
        (Dense((2, 3)), some(6, 6), "it is not a float32 matrix of 2 x 3"),
        (Dense((2, 3)), 1.0, "it is not a float32 matrix of 2 x 3"),
        (Dense((2, 3)), "zeros", "it is not a float32 matrix of 2 x 3"),
        (Dense((None, 3)), torch.zeros(7, 2), "it is not a float32 matrix of any x 3"),
        (Dense((4,)), torch.zeros(5), "it is not a float32 vector of 4 values"),
        (Dense((0,)), torch.zeros(1), "it is not a float32 vector of 0 values"),
        (Dense((None,)), torch.tensor(1.0), "it is not a float32 vector"),
        (Dense(()), torch.zeros(1), "it is not a float32 number"),
        (Dense(()), 1.0, "it is not a float32 number"),
        (Dense((1, 2, 3)), torch.zeros(6), "it is not a float32 tensor of 1 x 2 x 3"),
        (
            Dense((2,), (torch.float16, torch.float32)),
            torch.zeros(2).bfloat16(),
            "it is not a float16 or float32 vector of 2 values",
        ),
        (Dense((3,), low=-1), torch.tensor([0.0, -1.5, 1.0]), "it has a number below -1"),
        (Dense((3,), high=1), torch.tensor([0.0, -1.5, 1.1]), "it has a number above 1"),
        (Dense((1,), (torch.int8,), low=-127), torch.tensor([-128], dtype=torch.int8), "it has a number below -127"),
        (whole_numbers(None), torch.zeros(2), "it is not a whole vector"),
        (whole_numbers(None), torch.zeros(2).bool(), "it is not a whole vector"),
        (whole_numbers(3), torch.zeros(2).long(), "it is not a whole vector of 3 values"),
        (whole_numbers(None, low=0), torch.tensor([3, -1]), "it has a number below 0"),
        (whole_numbers(None, high=9), torch.tensor([10, 9]), "it has a number above 9"),
        (SparseVector(9), torch.zeros(9), "it is not a sparse vector of size 9"),
        (SparseVector(9), 3, "it is not a sparse vector of size 9"),
        (SparseVector(9), some(2, 10), "it is not a sparse vector of size 9"),
        (SparseVector(9), some(2, 9, torch.float16), "it is torch.float16, not torch.float32"),
        (SparseVector(9, count=3), some(2, 9), "2 coordinates were sent, not the announced 3"),
        (SparseVector(9, count=3), some(4, 9), "4 coordinates were sent, not the announced 3"),
        (Whole(), 1.0, "it = 1.0 is not a whole number"),
        (Whole(), True, "it = True is not a whole number"),
        (Whole(), "1", "it = '1' is not a whole number"),
        (Whole(low=1), 0, "it = 0 is below 1"),
        (Whole(high=3), 4, "it = 4 is above 3"),
        (Real(), 1, "it = 1 is not a number"),
        (Real(), True, "it = True is not a number"),
        (Real(low=0), -5e-324, "it = -5e-324 is below 0"),
        (Real(high=1), 1.5, "it = 1.5 is above 1"),
        (Real(above=0), 0.0, "it = 0.0 is not above 0"),
        (Real(low=0), float("nan"), "it = nan is below 0"),
        (Real(high=0), float("nan"), "it = nan is above 0"),
        (Real(above=0), float("nan"), "it = nan is not above 0"),
        (
            Either((Dense((9,)), SparseVector(9))),
            torch.zeros(8),
            "it is not a float32 vector of 9 values; it is not a sparse vector of size 9",
        ),
    ],
)
def test_what_is_not_as_declared_is_refused_with_what_it_should_be(field: Field, value: Any, sentence: str) -> None:
    with pytest.raises(Refused) as refusal:
        read_answer({"train": MessageSchema(up={"it": field})}, "train", {"it": value})
    assert str(refusal.value) == sentence


ANY_VALUE = st.one_of(st.integers(-5, 5), st.floats(-5, 5), st.booleans(), st.text(max_size=2))
BOUND = st.none() | st.integers(-4, 4)


def passes(field: Field, value: Any) -> bool:
    try:
        field.check("it", value)
    except Refused:
        return False
    return True


@given(ANY_VALUE, BOUND, BOUND)
def test_numbers_pass_exactly_within_their_bounds(value: Any, low: int | None, high: int | None) -> None:
    def within() -> bool:
        return (low is None or value >= low) and (high is None or value <= high)

    assert passes(Whole(low, high), value) == (type(value) is int and within())
    assert passes(Real(low, high), value) == (type(value) is float and within())
    assert passes(Real(above=low), value) == (type(value) is float and (low is None or value > low))


@given(
    st.lists(st.integers(0, 3), max_size=3),
    st.lists(st.none() | st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.int64, torch.bool]),
)
def test_tensors_pass_exactly_with_the_declared_type_and_sides(
    sides: list[int], asked: list[int | None], dtype: torch.dtype
) -> None:
    fits = len(sides) == len(asked) and all(want in (None, side) for want, side in zip(asked, sides, strict=True))
    value = torch.zeros(sides, dtype=dtype)
    assert passes(Dense(tuple(asked)), value) == (fits and dtype == torch.float32)
    assert passes(whole_numbers(*asked), value) == (fits and dtype == torch.int64)


# A message as a whole

EXCHANGES: MessageSchemas = {
    "train": MessageSchema({"shared": Dense((2,))}, {"steps": Whole(low=1), "note": Whole(optional=True)}),
    "talk": MessageSchema({"word": Whole()}, {"word": Whole()}, open=True),
}


def test_a_message_is_read_by_its_verb_and_direction() -> None:
    down: Message = {"shared": torch.zeros(2)}
    up: Message = {"steps": 3}
    assert read_request(EXCHANGES, "train", down) == down
    assert read_answer(EXCHANGES, "train", up) == up
    assert type(read_request(EXCHANGES, "train", down)) is type(read_answer(EXCHANGES, "train", up)) is ValidatedMessage
    with pytest.raises(Refused, match="the field 'steps' was not asked for"):
        read_request(EXCHANGES, "train", up)
    with pytest.raises(Refused, match="the field 'shared' was not asked for"):
        read_answer(EXCHANGES, "train", down)


def test_a_missing_field_is_refused_unless_it_is_optional() -> None:
    with pytest.raises(Refused, match=r"^the field 'steps' is missing$"):
        read_answer(EXCHANGES, "train", {"note": 1})
    with pytest.raises(Refused, match=r"^the field 'shared' is missing$"):
        read_request(EXCHANGES, "train", {})
    assert read_answer(EXCHANGES, "train", {"steps": 1, "note": 2}) == {"steps": 1, "note": 2}


def test_an_optional_field_that_comes_is_checked_like_any_other() -> None:
    with pytest.raises(Refused, match="note = 'x' is not a whole number"):
        read_answer(EXCHANGES, "train", {"steps": 1, "note": "x"})


def test_a_field_that_was_not_asked_for_is_refused_and_its_name_cut_short() -> None:
    with pytest.raises(Refused, match=r"^the field 'more' was not asked for$"):
        read_answer(EXCHANGES, "train", {"steps": 1, "more": 1})
    with pytest.raises(Refused) as refusal:
        read_answer(EXCHANGES, "train", {"x" * 10_000: 1})
    assert len(str(refusal.value)) < 100


def test_an_open_exchange_takes_more_but_checks_what_it_declares() -> None:
    assert read_answer(EXCHANGES, "talk", {"word": 1, "more": "x"}) == {"word": 1, "more": "x"}
    assert read_request(EXCHANGES, "talk", {"word": 1, "more": "x"}) == {"word": 1, "more": "x"}
    for read in (read_answer, read_request):
        with pytest.raises(Refused, match="the field 'word' is missing"):
            read(EXCHANGES, "talk", {"more": "x"})
        with pytest.raises(Refused, match="word = 'x' is not a whole number"):
            read(EXCHANGES, "talk", {"word": "x"})


def test_a_verb_without_schema_passes_unchanged() -> None:
    message: Message = {"anything": "goes"}
    assert read_request(EXCHANGES, "sing", message) == read_answer(EXCHANGES, "sing", message) == message


def test_reading_leaves_the_message_alone() -> None:
    message: Message = {"steps": 3}
    read_answer(EXCHANGES, "train", message)["steps"] = 4
    assert message == {"steps": 3}


def test_what_is_taken_out_of_a_message_is_of_the_kind_that_was_asked_for() -> None:
    vector, sparse = torch.zeros(2), some(1, 2)
    message = ValidatedMessage({"tensor": vector, "sparse": sparse, "whole": 3, "real": 0.5, "flag": True, "text": "x"})
    assert message.tensor("tensor") is vector
    assert message.sparse("sparse") is sparse
    assert message.whole("whole") == 3
    assert message.real("real") == 0.5
    for take, right in ((message.tensor, "tensor"), (message.sparse, "sparse"), (message.whole, "whole")):
        for name in message:
            if name != right:
                with pytest.raises(Refused, match=f"^{name} .*is not a"):
                    take(name)
    for name in ("tensor", "sparse", "whole", "flag", "text"):
        with pytest.raises(Refused, match=f"^{name} = .* is not a number"):
            message.real(name)
    for take_out in (message.tensor, message.sparse, message.whole, message.real):
        with pytest.raises(KeyError, match="nothing"):
            take_out("nothing")


def test_the_ledger_knows_the_kind_of_every_field_of_every_verb() -> None:
    packed = Counted("parameters", 7)
    message_schemas = {
        "train": MessageSchema({"a": Dense((2,), kind="parameters")}, {"b": SparseVector(2), "c": Whole()}),
        "more": MessageSchema(
            {"d": Dense((2,), kind=packed)}, {"e": Either((Dense((2,), kind="prototype_values"), Whole()))}
        ),
    }
    assert kinds(message_schemas) == {
        "a": "parameters", "b": "parameters", "c": "other_values", "d": packed, "e": "prototype_values"
    }  # fmt: skip


# What all methods have in common


def test_joining_reports_a_number_of_samples_and_scores_are_counts(scope: Any) -> None:
    declared = declare(scope(), join={"name": Whole()}, evaluate={"shared": Dense((1,))}, sing=MessageSchema())
    assert list(declared) == ["join", "sing", "evaluate"]
    assert read_answer(declared, "join", {"samples": 1, "name": 4}) == {"samples": 1, "name": 4}
    assert read_request(declared, "join", {}) == {}
    images: Message = {"images": torch.zeros(2, 1, 2, 2).byte(), "labels": torch.tensor([0, 2], dtype=torch.uint8)}
    assert read_request(declared, "join", images) == images
    read_request(declared, "evaluate", {"shared": torch.zeros(1)})
    read_answer(declared, "evaluate", {"tested": 0, "own_tested": 0})
    read_answer(declared, "evaluate", {"tested": 9, "own_tested": 3, "personal": 4, "own": 1})
    refused: list[tuple[str, Message, str]] = [
        ("join", {"samples": 0, "name": 4}, "samples = 0 is below 1"),
        ("join", {"samples": 3}, "the field 'name' is missing"),
        ("evaluate", {"own_tested": 3}, "the field 'tested' is missing"),
        ("evaluate", {"tested": 9, "own_tested": -3}, "own_tested = -3 is below 0"),
        ("evaluate", {"tested": 9, "own_tested": 3, "personal": 0.5}, "personal = 0.5 is not a whole number"),
        ("evaluate", {"tested": 9, "own_tested": 3, "rumour": 1}, "the field 'rumour' was not asked for"),
    ]
    for verb, answer, sentence in refused:
        with pytest.raises(Refused, match=sentence):
            read_answer(declared, verb, answer)
    with pytest.raises(Refused, match="labels has a number above 2"):
        read_request(declared, "join", images | {"labels": torch.tensor([0, 3])})
    with pytest.raises(Refused, match="images is not a uint8 tensor of any x 1 x 2 x 2"):
        read_request(declared, "join", images | {"images": torch.zeros(2, 1, 2, 2)})


def test_a_server_that_declares_nothing_may_have_fields_of_its_own_in_all_messages(scope: Any) -> None:
    declared = Server.message_schemas(scope())
    answer: Message = {"samples": 3, "mood": "good"}
    assert read_answer(declared, "join", answer) == answer
    assert read_answer(declared, "train", {"whatever": 1}) == {"whatever": 1}
    with pytest.raises(Refused, match="samples = 0 is below 1"):
        read_answer(declared, "join", {"samples": 0, "mood": "good"})


# Every method, run

PINS = Path(__file__).parents[1] / "pins"
PINNED: dict[str, dict[str, dict[str, list[str]]]] = json.loads((PINS / "pins.json").read_text())["messages"]
WAYS = ("down", "up")


def load_pins() -> Any:
    """The module that pins the names of fields: it knows each method as it comes, and with its switches."""
    specification = importlib.util.spec_from_file_location("pins_for_fields", PINS / "test_pins.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


PINS_MODULE = load_pins()
VARIANTS: Mapping[str, Mapping[str, Any]] = PINS_MODULE.VARIANTS
MORE: Mapping[str, Mapping[str, Any]] = {
    "fednova, proximal": {"method": "fednova", "fednova": {"mu": 0.1}},
    "refprotofl, sparse step to train": {"refprotofl": {"downlink": "sparse", "erpa": False}},
    "refprotofl, ternary step to train": {"refprotofl": {"apud": False, "erpa": False}, "compress": {"name": "stc"}},
    "fedavg, eden both ways": {"method": "fedavg", "compress": {"name": "eden", "bits": 1, "downlink": "same"}},
    "fedavg, qsgd both ways": {"method": "fedavg", "compress": {"name": "qsgd", "bits": 4, "downlink": "same"}},
}


def exchanges_of(folder: Path) -> MessageSchemas:
    """Return the schemas that the server of a finished run declared."""
    experiment = read_experiment(folder)
    method = METHODS[experiment.method]
    model = model_of(experiment, 0)
    return method.server.message_schemas(Scope(experiment, model, method.shared(experiment), options_of(experiment)))


def fields_of(exchange: MessageSchema, way: str) -> Fields:
    return exchange.down if way == "down" else exchange.up


def completed(messages: list[tuple[str, str, Message]], folder: Path) -> list[tuple[str, str, Message]]:
    """Return the messages with the initial weights in full where requests only name them, as clients check them."""
    experiment = read_experiment(folder)
    initial = model_of(experiment, 0).read(METHODS[experiment.method].shared(experiment))
    return [
        (way, verb, {own_name(name): initial if name != own_name(name) else value for name, value in message.items()})
        for way, verb, message in messages
    ]


def own_name(field: str) -> str:
    """Return the name of the method's field that a request's field stands for."""
    return field.removeprefix(FROM_SEED)


class Collected(Callback):
    def __init__(self) -> None:
        self.messages: list[tuple[str, str, Message]] = []

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        self.messages.append((direction, phase, decode(data)))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs a pinned variant once: what it declares and all that crossed."""
    done: dict[str, tuple[MessageSchemas, list[tuple[str, str, Message]]]] = {}
    folder = tmp_path_factory.mktemp("fields")
    (folder / "frozen_for_fields.py").write_text(PINS_MODULE.FROZEN)

    def play(name: str) -> tuple[MessageSchemas, list[tuple[str, str, Message]]]:
        if name not in done:
            own = {"model": {"name": "frozen_for_fields:backbone"}} if name == "fedpcl" else {}
            values = PINS_MODULE.merged(PINS_MODULE.merged(PINS_MODULE.TINY, {**VARIANTS, **MORE}[name]), own)
            seen, out = Collected(), folder / name.replace(" ", "-").replace(",", "")
            with pytest.MonkeyPatch.context() as patch:
                patch.syspath_prepend(folder)
                patch.setattr("os.fsync", lambda _: None)
                finished = run(Experiment.parse(values), out=out, callback=seen)
                done[name] = exchanges_of(finished.folder), completed(seen.messages, finished.folder)
        return done[name]

    return play


def test_every_method_is_among_the_runs() -> None:
    assert set(METHODS) <= set(VARIANTS)


@pytest.mark.parametrize("name", [*VARIANTS, *MORE])
def test_every_message_of_a_run_is_as_its_method_declares_it(played: Any, name: str) -> None:
    declared, messages = played(name)
    assert messages
    assert not any(exchange.open for exchange in declared.values())
    for direction, verb, message in messages:
        assert verb in declared  # else nothing would be checked
        (read_request if direction == "down" else read_answer)(declared, verb, message)


@pytest.mark.parametrize(
    ("name", "verb", "way", "fields"),
    [
        ("fednova, proximal", "train", "up", {"shared", "progress", "steps"}),
        ("refprotofl, sparse step to train", "train", "down", {"adapter", "base"}),
        ("refprotofl, ternary step to train", "train", "down", {"base", "places", "scale", "signs"}),
        ("fedavg, eden both ways", "train", "down", {"base", "code", "scales"}),
        ("fedavg, qsgd both ways", "train", "down", {"base", "levels", "norms"}),
    ],
)
def test_the_runs_with_more_switches_send_what_they_are_for(
    played: Any, name: str, verb: str, way: str, fields: set[str]
) -> None:
    _, messages = played(name)
    assert fields in [set(message) for direction, phase, message in messages if (phase, direction) == (verb, way)]


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_declared_is_what_is_pinned(played: Any, name: str) -> None:
    """A field that must come is pinned; what is pinned is declared; what else is declared may stay away."""
    declared, _ = played(name)
    for verb, ways in PINNED[name].items():
        for way in WAYS:
            fields, pinned = fields_of(declared[verb], way), {own_name(field) for field in ways[way]}
            assert pinned <= set(fields)
            assert {field for field in fields if not fields[field].optional} <= pinned


# What all methods have in common is declared by those, too, that never join anybody or never score a protocol.
COMMON = {("join", "down", "images"), ("join", "down", "labels"), ("join", "up", "samples")} | {
    ("evaluate", "up", protocol) for protocol in PROTOCOLS
}

# Optional and in no pinned run: which classes the anchors are of, where all are known; RefProtoFL's step from the last
# broadcast, which comes with `train` only in a round without prototypes; the steps before the last one.
RARE = {
    (method, verb, "down", "classes")
    for method in ("fedpac", "fedpcl", "fedproc", "fedproto", "fedtgp", "refprotofl")
    for verb in ("train", "evaluate")
} | {("refprotofl", "train", "down", field) for field in ("base", "missed", "places", "scale", "signs")}


def test_a_method_declares_what_crosses_in_its_runs_and_hardly_more(played: Any) -> None:
    def method(name: str) -> str:
        found: str = VARIANTS[name].get("method", "refprotofl")
        return found

    declared = {
        (method(name), verb, way, field)
        for name in VARIANTS
        for verb, exchange in played(name)[0].items()
        for way in WAYS
        for field in fields_of(exchange, way)
    }
    pinned = {
        (method(name), verb, way, own_name(field))
        for name, verbs in PINNED.items()
        for verb, ways in verbs.items()
        for way in WAYS
        for field in ways[way]
    }
    assert pinned <= declared
    assert {one for one in declared - pinned if one[1:] not in COMMON} == RARE
