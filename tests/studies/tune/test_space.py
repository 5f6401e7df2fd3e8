"""The search space, as it is typed."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.core.errors import InputError
from refprotofl.studies.tune.space import Dimension, Range, Values, dimensions_of, read_dimension, refuse_unusable

PLACES = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("typed", "method", "key", "values"),
    [
        ("train.lr=0.003,0.01", None, "train.lr", Values(("0.003", "0.01"))),
        ("train.lr = 0.1 , 0.1, 0.2 ", None, "train.lr", Values(("0.1", "0.2"))),
        ("train.batch_size=8", None, "train.batch-size", Values(("8",))),
        ("fedprox.mu=0.1,1", "fedprox", "fedprox.mu", Values(("0.1", "1"))),
        ("fedavg@train.lr=0.1", "fedavg", "train.lr", Values(("0.1",))),
        ("fedavg:share=full@train.lr=0.1", "fedavg:share=full", "train.lr", Values(("0.1",))),
        ("my.own:Mine@own.trim=0.1", "my.own:Mine", "own.trim", Values(("0.1",))),
        ("mine:Mine@fedprox.mu=0.1", "mine:Mine", "fedprox.mu", Values(("0.1",))),
        ("train.lr=0.001..0.1:log", None, "train.lr", Range(0.001, 0.1, True, False)),
        ("train.momentum=0..0.9", None, "train.momentum", Range(0, 0.9, False, False)),
        ("train.local-epochs=1..5", None, "train.local-epochs", Range(1, 5, False, True)),
        ("own.shift=-3..3", None, "own.shift", Range(-3, 3, False, True)),
        ('model.name="cnn",["mlp","cnn"]', None, "model.name", Values(('"cnn"', '["mlp","cnn"]'))),
        ('own.file="a..b",../c,d/../e', None, "own.file", Values(('"a..b"', "../c", "d/../e"))),
        ("public.train-on=on,off", None, "public.train-on", Values(("on", "off"))),
    ],
)
def test_what_is_typed_is_understood(typed: str, method: str | None, key: str, values: Values | Range) -> None:
    assert read_dimension(typed) == Dimension(method, key, values)


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("train.lr", "not of the form key=values"),
        ("=1,2", "not of the form key=values"),
        ("train.lr=", "not of the form key=values"),
        ("train.lr=,", "give at least one value"),
        ("train.lr=0.1..0.01", "a range is low..high with low < high"),
        ("train.lr=0.1..0.1", "a range is low..high with low < high"),
        ("train.lr=0..1:log", "with :log low > 0"),
        ("train.lr=0.1..inf", "a range is low..high"),
        ("train.lr=0.1..nan", "a range is low..high"),
        ("train.lr=0.1..much", "a range is low..high"),
        ("train.lr=0.1,0.2..0.5", "a range is low..high"),
    ],
)
def test_what_cannot_be_meant_is_reported(typed: str, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        read_dimension(typed)
    assert sentence in str(refused.value)


@given(ends=st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=2, unique=True), log=st.booleans(), place=PLACES)
def test_a_drawn_number_is_in_its_range(ends: list[float], log: bool, place: float) -> None:
    one = Range(min(ends), max(ends), log, whole=False)
    assert min(ends) <= float(one.at(place)) <= max(ends)
    assert float(one.at(0)) == pytest.approx(min(ends), rel=1e-5)


@given(low=st.integers(1, 50), width=st.integers(1, 50), log=st.booleans(), place=PLACES)
def test_a_drawn_whole_number_is_a_whole_number_of_its_range(low: int, width: int, log: bool, place: float) -> None:
    assert int(Range(low, low + width, log, whole=True).at(place)) in range(low, low + width + 1)


def test_places_are_spread_evenly() -> None:
    counts = [Range(1, 4, False, True).at(place / 8) for place in range(8)]
    assert counts == ["1", "1", "2", "2", "3", "3", "4", "4"]
    assert [Values(("a", "b")).at(place) for place in (0, 0.49, 0.5, 0.99)] == ["a", "a", "b", "b"]
    assert Range(0.001, 0.1, True, False).at(0.5) == "0.01"  # the middle of the logarithm
    assert Range(1, 7, True, True).at(0.34) == "2"  # 8 ** 0.34
    assert float(Range(0, 1, False, False).at(1 / 3)) == 0.333333
    assert math.isclose(float(Range(1e-9, 1e-3, True, False).at(0.5)), 1e-6)


def test_ends_are_reported_where_there_is_an_order() -> None:
    numbers = Values(("0.1", "1", "0.01"))
    assert [numbers.is_end(value) for value in numbers.listed] == [False, True, True]
    assert not Values(("0.1",)).is_end("0.1")
    assert not Values(("cnn", "mlp")).is_end("cnn")
    zero = Values(("0.0", "0.1", "1"))
    assert [zero.is_end(value) for value in zero.listed] == [False, False, True]  # nothing lies below 0
    assert not Values(("true", "false")).is_end("true")
    drawn = Range(0.001, 0.1, log=True, whole=False)
    assert [drawn.is_end(value) for value in ("0.00101", "0.0013", "0.09", "0.01")] == [True, False, True, False]


def dimensions(*typed: str) -> list[Dimension]:
    return [read_dimension(one) for one in typed]


def test_the_closest_word_on_a_method_holds() -> None:
    said = dimensions("train.lr=1", "fedavg@train.lr=2", "fedavg:share=full@train.lr=3", "fedprox.mu=4")
    found = {
        name: [one.values for one in dimensions_of(name, said)]
        for name in ("fedavg", "fedavg:share=full", "fedprox", "local")
    }
    assert found == {
        "fedavg": [Values(("2",))],
        "fedavg:share=full": [Values(("3",))],
        "fedprox": [Values(("1",)), Values(("4",))],
        "local": [Values(("1",))],
    }


@pytest.mark.parametrize(
    ("typed", "methods", "sentence"),
    [
        (["fedprox.mu=1"], ["fedavg"], "--search fedprox.mu is for method 'fedprox', which is not among fedavg."),
        (["train.lr=1", "train.lr=2"], ["fedavg"], "names train.lr twice"),
        (["train.batch_size=1", "train.batch-size=2"], ["fedavg"], "names train.batch-size twice"),
        (["fedprox.mu=1", "fedprox@fedprox.mu=2"], ["fedprox"], "names fedprox.mu twice"),
        (["train.lr=1"], ["fedavg:train.lr=0.1"], "fedavg:train.lr=0.1 sets train.lr"),
        (["train.batch-size=1"], ["fedavg:train.batch_size=2"], "sets train.batch-size"),
        (["train.lr=1"], ["fedavg:rounds=3"], "fedavg:rounds=3: rounds must be the same in all trials"),
        (["validation=0.1,0.2"], ["fedavg"], "--search validation: validation must be the same"),
    ],
)
def test_what_cannot_be_searched_is_reported(typed: list[str], methods: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        refuse_unusable(dimensions(*typed), methods)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "key",
    [
        *("seed", "rounds", "method", "dataset", "clients", "alpha", "evaluate.clients", "fraction", "dropout"),
        *(
            "resize",
            "crop",
            "test.dataset",
            "attack.fraction",
            "public.per-class",
            "public.per_class",
            "public.coverage",
        ),
        *("public.classes", "public.dataset", "public", "train.local-epochs", "privacy.noise", "keep-checkpoints"),
    ],
)
def test_what_scores_are_taken_of_stays_the_same(key: str) -> None:
    with pytest.raises(InputError, match="must be the same in all trials"):
        refuse_unusable(dimensions(f"{key}=1,2"), ["fedavg"])


def test_what_is_fine_is_not_refused() -> None:
    fine: Any = ["train.lr=1", "fedavg@train.lr=2", "fedprox.mu=3", "public.train-on=on,off", "privacy.clip=1,2"]
    refuse_unusable(dimensions(*fine), ["fedavg:share=full", "fedprox", "local:privacy.unit=sample:privacy.noise=2"])
