"""The experiment's keys: every fault is reported in a sentence, and every key is in the hash."""

import copy
import json
import random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from refprotofl.core.errors import InputError
from refprotofl.core.parts import ALL
from refprotofl.experiment import Experiment, differences
from refprotofl.experiment.keys import keys, known_of
from refprotofl.methods.catalogue import METHODS, TABLES

INPUT = {"class-names": ["a", "b"], "shape": [1, 8, 8], "mean": [0.5], "std": [0.2]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"sed": 1}, "There is no key sed; did you mean seed?"),
        ({"lr": 0.1}, "There is no key lr; did you mean train.lr?"),
        ({"min_sizes": 3}, "There is no key min_sizes; did you mean min-size?"),
        ({"refprotofl": {"downlnk": "dense"}}, "There is no key refprotofl.downlnk; did you mean refprotofl.downlink?"),
        ({"zzz": 1}, "There is no key zzz; known keys: method, dataset"),
        ({"seed": 1.5}, "seed = 1.5 is not a whole number; allowed: a whole number, 0 or more."),
        ({"seed": True}, "seed = True is not a whole number"),
        ({"seed": -1}, "seed = -1 is too small"),
        ({"clients": 0}, "clients = 0 is too small; allowed: number of clients, 1 or more."),
        ({"fraction": 0}, "fraction = 0 is too small; allowed: share of clients in a round, above 0 and up to 1."),
        ({"fraction": 1.5}, "fraction = 1.5 is too large"),
        ({"dataset": 3}, "dataset = 3 is not a text"),
        ({"dataset": " "}, "dataset = ' ' is empty; allowed: a data set's name, a path"),
        ({"clients": 10**9}, "clients = 1000000000 is more than the maximum of 1,000,000"),
        ({"rounds": 10**12}, "rounds = 1000000000000 is more than the maximum of 1,000,000"),
        ({"deadline": 1e300}, "deadline = 1e+300 is more than the maximum of 1,000,000,000"),
        (
            {"public": {"per-class": 10**15}},
            "public.per-class = 1000000000000000 is more than the maximum of 1,0",
        ),
        ({"train": {"batch-size": 10**9}}, "train.batch-size = 1000000000 is more than the maximum of 1,000,000"),
        ({"train": {"local-epochs": 10**9}}, "train.local-epochs = 1000000000 is more than"),
        ({"vhl": {"per-class": 10**9}}, "vhl.per-class = 1000000000 is more than the maximum of 10,000"),
        ({"model": {"embedding": 10**9}}, "model.embedding = 1000000000 is more than the maximum of 65,536"),
        (
            {"partition": "random"},
            "partition = 'random' is not known; allowed: dirichlet, iid, shards, classes-per-client, quantity, "
            "feature-shift or natural.",
        ),
        ({"train": {"lr": "fast"}}, "train.lr = 'fast' is not a number; allowed: learning rate, above 0."),
        ({"train": {"lr": float("nan")}}, "train.lr = nan is not finite"),
        ({"train": {"momentum": 1}}, "train.momentum = 1 is too large"),
        ({"train": 5}, "[train] is not a table."),
        ({"model": {"norm": "layer"}}, "model.norm = 'layer' is not known; allowed: group, batch-local or none."),
        ({"public": {"coverage": 2}}, "public.coverage = 2 is too large"),
        ({"public": {"classes": [1, 1]}}, "public.classes = [1, 1] names a class twice"),
        ({"public": {"classes": 3}}, "public.classes = 3 is not a list"),
        ({"refprotofl": {"keep": 0}}, "refprotofl.keep = 0 is too small"),
        ({"refprotofl": {"keep": True}}, "refprotofl.keep = True is not a number"),
        (
            {"refprotofl": {"erpa": "maybe"}},
            "refprotofl.erpa = 'maybe' is not on or off; allowed: on or off: proto",
        ),
        ({"refprotofl": {"uplink-budget": "lots"}}, "refprotofl.uplink-budget = 'lots' is not a size such as '20 kB'"),
        ({"refprotofl": {"uplink-budget": 0}}, "refprotofl.uplink-budget = 0 is too small"),
        (
            {"evaluate": {"clients": "some"}},
            "evaluate.clients = 'some' is not a whole number; allowed: 'all' or the number of evaluated clients",
        ),
    ],
)
def test_what_is_wrong_with_a_key_is_reported_with_the_key_and_what_would_be_right(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as refusal:
        Experiment.parse(values)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"refprotofl": {"keep": 0.1, "uplink-budget": "1 kB"}},
            "[refprotofl] takes keep or uplink-budget, not both: remove one of them.",
        ),
        (
            {"refprotofl": {"apud": "off", "uplink-budget": "1 kB"}},
            "[refprotofl] has apud = off, which sends the whole adapter: uplink-budget and error-feedback need apud",
        ),
        ({"refprotofl": {"apud": False, "error-feedback": "ef"}}, "[refprotofl] has apud = off"),
        (
            {"refprotofl": {"error-feedback": "ef21"}},
            '[refprotofl] has error-feedback = "ef21", which needs normalise = "participants": averaged',
        ),
        ({"refprotofl": {"error-feedback": "ef"}}, '[refprotofl] has error-feedback = "ef", which needs normalise'),
        ({"share": "full"}, 'The experiment has share = "full", but refprotofl keeps its backbones private'),
        ({"resize": 20, "crop": 24}, "The experiment has resize = 20, which is smaller than crop = 24."),
        (
            {"partition": "natural", "clients": 3},
            'The experiment has clients = 3, but with partition = "natural" the clients come from the data',
        ),
        (
            {"partition": "natural", "clients": 3, "input": {**INPUT, "client-names": ["anna", "ben"]}},
            "The experiment has input.client-names for 2 clients, but clients = 3",
        ),
        ({"evaluate": {"clients": 20}}, "The experiment has evaluate.clients = 20, but there are only clients = 10."),
    ],
)
def test_values_that_do_not_go_together_are_reported(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refusal:
        Experiment.parse(values)
    assert str(refusal.value).startswith(sentence)


def test_every_wrong_key_is_reported_at_once_a_line_each() -> None:
    with pytest.raises(InputError) as refusal:
        Experiment.parse({"rounds": "x", "model": {"norm": "layer"}, "speed": 9})
    lines = str(refusal.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["rounds", "model.norm", "There"]


@pytest.mark.parametrize(("text", "value"), [("on", True), ("off", False), ("true", True), ("false", False)])
def test_switches_are_on_and_off(text: str, value: bool) -> None:
    assert Experiment.parse({"refprotofl": {"erpa": text}}).refprotofl.erpa is value


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *[("20 kB", 20_000), ("900 B", 900), ("1.5 MB", 1_500_000), ("2kB", 2_000), (123, 123)],
        *[("20 kb", 20_000), ("20KB", 20_000), ("1 GB", 10**9), ("1 gb", 10**9), ("2 mb", 2_000_000)],
        *[("1 KiB", 1024), ("1.5 kib", 1536), ("1 MiB", 2**20), ("1 GIB", 2**30), ("1 TB", 10**12)],
        ("2.3 kB", 2300),  # 2.3 * 1000 is below 2300 in binary
    ],
)
def test_a_budget_is_a_size(text: object, size: int) -> None:
    assert Experiment.parse({"refprotofl": {"uplink-budget": text}}).refprotofl.uplink_budget == size


@pytest.mark.parametrize("text", ["20", "20 Mb", "20 b", "20 kBit", "-1 kB", "20 k", "1e3 B", "kB"])
def test_what_may_be_bits_or_nothing_is_no_size(text: str) -> None:
    with pytest.raises(InputError, match="is not a size such as '20 kB'"):
        Experiment.parse({"refprotofl": {"uplink-budget": text}})


def test_what_is_sent_follows_from_keep_apud_and_budget() -> None:
    def share(**table: Any) -> object:
        return Experiment.parse({"refprotofl": table}).refprotofl.share

    assert share() == 0.1
    assert share(keep=1) == 1.0
    assert share(keep=0.3, apud=False) == 1.0
    assert share(**{"uplink-budget": "1 kB"}) is None


@pytest.mark.parametrize(
    ("clients", "fraction", "size"), [(10, 1.0, 10), (5, 0.6, 3), (10, 0.01, 1), (4, 0.5, 2), (3, 0.5, 2)]
)
def test_a_cohort_has_one_client_at_least(clients: int, fraction: float, size: int) -> None:
    assert Experiment(clients=clients, fraction=fraction).cohort_size == size


def test_an_experiment_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Experiment().seed = 3  # type: ignore[misc]


# What clients share


def test_what_is_shared_by_default_is_what_the_methods_paper_shares() -> None:
    full = {name for name in METHODS if Experiment(method=name).share == "full"}
    assert {"fedavg", "fedprox", "fednova", "fedavgm", "fedadam", "fedyogi", "fedproc", "vhl", "fast"} <= full
    assert full.isdisjoint({"refprotofl", "lg-fedavg", "fedper", "local", "thin"})
    for name in METHODS:
        named = Experiment(method=name, share="full" if name in full else "adapter")
        assert Experiment(method=name).hash == Experiment(method=name, share="auto").hash == named.hash
    assert all(METHODS[name].shared(Experiment(method=name)) == ALL for name in full)


def test_another_method_decides_anew_what_is_shared() -> None:
    for asked in (Experiment(method="fedavg").asked(), Experiment(method="fedavg", share="auto").asked()):
        assert Experiment.parse({**asked, "method": "refprotofl"}).share == "adapter"
    kept = Experiment(method="fedavg", share="adapter").asked()
    assert Experiment.parse({**kept, "method": "fedprox"}).share == "adapter"


# The hash

# Values that are valid only together with others.
COMPANY: dict[str, dict[str, Any]] = {
    "share": {"method": "fedavg"},
    "refprotofl.uplink-budget": {"refprotofl.keep": None},
    "thin.uplink-budget": {"thin.up-bits": None},
    "thin.downlink-budget": {"thin.down-bits": None},
    "thin.balance": {"thin.distil": 1.0},
    "refprotofl.error-feedback": {"refprotofl.normalise": "participants"},
    "compress.name": {"refprotofl.apud": False},
    "data.min-samples": {"partition": "natural"},
    "classes-per-client": {"partition": "classes-per-client"},
    "shift": {"partition": "feature-shift"},
    "model.pool": {"model.name": "transformer"},
    "trim": {"aggregate": "trimmed"},
    "clip": {"aggregate": "clipped"},
    "train.betas": {"train.optimizer": "adam"},
    "train.eps": {"train.optimizer": "adam"},
    "train.step-size": {"train.schedule": "step"},
    "train.gamma": {"train.schedule": "step"},
    "finetune.rate": {"finetune.epochs": 2},
    "finetune.validation": {"finetune.epochs": 2},
    "stop.min-delta": {"stop.patience": 2},
    "stop.protocol": {"stop.patience": 2},
    "attack.kind": {"attack.fraction": 0.2},
    "attack.fraction": {"attack.kind": "signflip"},
    "attack.strength": {"attack.fraction": 0.2, "attack.kind": "scaling"},
    "attack.target": {"attack.fraction": 0.2, "attack.kind": "backdoor"},
    "privacy.clip": {"privacy.unit": "sample"},
    "privacy.noise": {"privacy.unit": "sample"},
    "privacy.delta": {"privacy.unit": "sample"},
    "privacy.prototype-clip": {"privacy.unit": "sample"},
}


def with_value(base: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    plain = copy.deepcopy(base)
    *tables, last = key.split(".")
    inner = plain
    for table in tables:
        inner = inner.setdefault(table, {})
    inner[last] = value
    return plain


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Every dotted key of a plain experiment."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        key: leaf for name, inner in value.items() for key, leaf in leaves(inner, f"{prefix}.{name}".strip(".")).items()
    }


def other_values(field: FieldInfo, value: Any) -> list[Any]:
    """Guesses at another valid value."""
    literals = [one for part in (field.annotation, *get_args(field.annotation)) for one in get_args(part)]
    derived = (
        [not value] if isinstance(value, bool) else [value + 1, value / 2] if isinstance(value, int | float) else []
    )
    guesses = (*derived, *literals, 0.25, 3, "x:y", "vector", [1], [0.5, 0.5])
    return [one for one in guesses if one not in (value, "auto")]  # auto stands for another value


def test_every_key_changes_the_hash_and_each_in_its_own_way() -> None:
    seen = {Experiment().hash}
    for key, field in keys(Experiment).items():
        if known_of(field, "enters") in ("carried", "never"):  # how it is computed is not part of the experiment
            continue
        table = key.partition(".")[0]
        owner = "module:Class" if table == "own" else table if table in TABLES else "refprotofl"
        base = Experiment(method=owner).plain()  # a method's table only counts for that method
        seen.add(Experiment(method=owner).hash)
        if key == "data.min-samples":
            del base["clients"]  # natural clients come from the data
        if key == "input":
            changes = [with_value(base, key, INPUT)]
        elif key == "own":
            changes = [with_value(base, key, {"option": 1})]
        else:
            default = field.get_default(call_default_factory=True)  # of a key that enters only where it is changed
            changes = [with_value(base, key, value) for value in other_values(field, leaves(base).get(key, default))]
        for companion, value in COMPANY.get(key, {}).items():
            changes += [with_value(plain, companion, value) for plain in changes]
        for plain in changes:
            try:
                changed = Experiment.parse(plain)
            except InputError:
                continue
            assert changed.hash not in seen, key
            seen.add(changed.hash)
            break
        else:
            assert len(get_args(field.annotation)) == 1, f"found no other value for {key}"


def test_every_method_with_options_has_a_table_of_its_own_that_only_it_is_hashed_with() -> None:
    assert {name for name, method in METHODS.items() if method.table} == set(TABLES)
    for name in METHODS:
        found = set(Experiment(method=name).plain()) & {*TABLES, "own"}
        assert found == ({name} if name in TABLES else set())
        assert set(Experiment(method="module:Class").plain()) & {*TABLES, "own"} == {"own"}


@given(st.integers(0, 2**32))
def test_the_hash_does_not_depend_on_the_order_of_keys(seed: int) -> None:
    experiment = Experiment.parse({"seed": 4, "input": INPUT, "public": {"classes": [3, 1]}})
    order = random.Random(seed)

    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        names = list(value)
        order.shuffle(names)
        return {name: shuffled(value[name]) for name in names}

    assert Experiment.parse(shuffled(experiment.plain())).hash == experiment.hash


def test_the_hash_is_of_the_values_not_of_how_they_were_written() -> None:
    written = {"fraction": 1, "refprotofl": {"erpa": "on", "uplink-budget": "2 kB"}}
    plainly = {"fraction": 1.0, "refprotofl": {"erpa": True, "uplink-budget": 2000}}
    assert Experiment.parse(written).hash == Experiment.parse(plainly).hash
    assert Experiment().hash == Experiment.parse({"seed": 0, "train": {"lr": 0.01}}).hash


def test_a_plain_experiment_is_read_back_as_it_was() -> None:
    experiment = Experiment.parse(
        {"input": INPUT, "public": {"classes": [3, 1]}, "refprotofl": {"uplink-budget": "2 kB"}}
    )
    again = Experiment.parse(json.loads(json.dumps(experiment.plain())))
    assert again == experiment
    assert again.hash == experiment.hash


def test_natural_clients_are_counted_once_the_data_are_known() -> None:
    open_ended = Experiment.parse({"partition": "natural", "evaluate": {"clients": 20}})
    assert "clients" not in open_ended.plain()
    assert Experiment.parse(open_ended.plain()) == open_ended
    named = {**open_ended.plain(), "clients": 2, "evaluate": {}, "input": {**INPUT, "client-names": ["anna", "ben"]}}
    resolved = Experiment.parse(named)
    assert resolved.plain()["clients"] == 2
    assert Experiment.parse(resolved.plain()).hash == resolved.hash
    assert [resolved.client_name(client) for client in range(2)] == ["anna", "ben"]
    assert Experiment().client_name(1) == "1"
    assert "client-names" not in Experiment.parse({"input": INPUT}).plain()["input"]


def test_differences_are_named_by_dotted_key() -> None:
    one, other = Experiment().plain(), Experiment.parse({"seed": 1, "train": {"lr": 0.5}}).plain()
    assert differences(one, other) == ["seed", "train.lr"]
    assert differences(one, one) == []


def test_numerics_are_carried_to_those_who_compute_and_are_not_part_of_the_experiment() -> None:
    experiment = Experiment(numerics="native", deadline=5.0)
    assert experiment.hash == Experiment().hash
    received = Experiment.parse(experiment.carried())
    assert (received.numerics, received.deadline) == ("native", 0.0)
