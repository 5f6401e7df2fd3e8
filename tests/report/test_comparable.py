"""Runs that do not belong into one table are refused by what they differ in."""

from typing import Any

import pytest

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.report.comparable import check_comparable, check_settings
from refprotofl.studies.results import Result

ORIGIN = {"results": 1, "data": "a" * 64, "code": {"mine:Own": "b" * 64}}


def result(origin: dict[str, Any] | None = None, **values: Any) -> Result:
    summary = {"experiment": Experiment.parse(values).plain()}
    known = None if origin is None else {**ORIGIN, **origin}
    return {"origin": known, "summary": summary}  # type: ignore[typeddict-item]


def differing(*results: Result, allowed: tuple[str, ...] = ()) -> str:
    with pytest.raises(InputError, match="are not comparable: they differ in ") as refused:
        check_comparable(results, allowed)
    return str(refused.value).partition("differ in ")[2]


def test_methods_their_tables_and_seeds_may_differ() -> None:
    check_comparable(
        [
            result(method="refprotofl", refprotofl={"keep": 0.3}),
            result(method="refprotofl", refprotofl={"erpa": False}, seed=3),
            result(method="fedavg", share="full", compress={"name": "stc"}),
            result(method="own_method:TrimmedMean", own={"trim": 0.4}),
            result(method="local", seed=7),
        ]
    )
    check_comparable([])


def test_every_other_key_is_named() -> None:
    plain, other = result(), result(method="local", rounds=7, fraction=0.5, train={"lr": 0.5}, resize=16)
    assert differing(plain, other) == "fraction, resize, rounds, train.lr."
    assert differing(other, plain) == "fraction, resize, rounds, train.lr."
    assert differing(plain, plain, other, allowed=("fraction", "train.lr")) == "resize, rounds."
    check_comparable([plain, result(method="local", rounds=7, train={"lr": 0.5})], {"train", "rounds"})


def test_a_key_that_is_allowed_does_not_open_its_table() -> None:
    assert differing(result(), result(train={"lr": 0.5, "momentum": 0.0}), allowed=("train.lr",)) == "train.momentum."


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("dataset", ("digits", "mnist")),
        ("alpha", (0.5, 100.0)),
        ("clients", (10, 20)),
        ("validation", (0.0, 0.3)),
        ("evaluate.test-limit", (0, 50)),
        ("test.dataset", ("a.npz", "b.npz")),
    ],
)
def test_what_runs_are_paired_by_and_scored_on_never_differs(key: str, values: tuple[object, ...]) -> None:
    table, _, last = key.rpartition(".")
    experiments = [{table: {last: value}} if table else {key: value} for value in values]
    settings = [Experiment.parse(one).plain() for one in experiments]
    with pytest.raises(InputError, match=rf"differ in {table or key}"):
        check_settings(settings, {key})


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ({"data": "c" * 64}, "their data."),
        ({"results": 2}, "their version of refprotofl, which computes other numbers."),
        ({"code": {"mine:Own": "c" * 64}}, "the code of mine:Own."),
    ],
)
def test_what_they_come_from_must_be_the_same(origin: dict[str, Any], message: str) -> None:
    assert differing(result({}), result(origin, method="local")) == message


def test_what_is_not_on_record_does_not_count() -> None:
    check_comparable([result({}), result(), result({"data": None, "code": {}}, method="local")])


def test_public_classes_that_were_drawn_may_differ_by_seed_and_those_asked_for_may_not() -> None:
    def covering(**public: Any) -> Result:
        return result(public={"per-class": 5, **public})

    drawn = [covering(coverage=0.5) for _ in range(2)]
    for one, classes in zip(drawn, ([1, 2], [3, 4]), strict=True):
        one["summary"]["experiment"]["public"]["classes"] = classes  # as a resolved experiment has them
    check_comparable(drawn)
    assert differing(covering(classes=[1]), covering(classes=[2])) == "public.classes."
    check_comparable([drawn[0], covering(coverage=0.3)], allowed=["public.coverage"])
