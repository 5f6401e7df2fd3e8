"""The files of a search can be read again by their users."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.studies.tune.conftest import TINY, Ask

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import as_toml, load_experiment, read_settings
from refprotofl.studies.rows import Row
from refprotofl.studies.trials import Base
from refprotofl.studies.tune.search import ConfigurationResult, SearchResult
from refprotofl.studies.tune.settings import (
    Searched,
    plain,
    read_searched,
    read_tuned,
    refuse_unwritable,
    write_search,
    write_settings,
)
from refprotofl.studies.tune.strategies import Configuration

KEPT = Path(__file__).parents[3] / "results" / "tuning"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


@given(VALUES)
def test_every_value_comes_back_from_its_toml(value: Any) -> None:
    assert tomllib.loads(f"value = {as_toml(value)}")["value"] == value
    assert read_settings([f"value={as_toml(value)}"])["value"] == value


def experiment_of(method: str, settings: Sequence[str]) -> Experiment:
    return Base(None, "quick", (*TINY, *settings)).experiment(Row(method, method), 0)


def tuned(name: str, *settings: tuple[str, str]) -> SearchResult:
    tried = ConfigurationResult(Configuration(settings, 3), {7: 0.5})
    return SearchResult(name, tried, (tried,), ())


CHOSEN = [
    tuned("fedavg:share=full", ("train.lr", "0.03"), ("train.batch-size", "16")),
    tuned("fedprox", ("fedprox.mu", "1e-05"), ("public.train-on", "on"), ("train.momentum", "0")),
    tuned('lg-fedavg:model.name=["mlp","mlp"]', ("train.lr", "0.1"), ("compress.name", '"stc"')),
    tuned("refprotofl", ("model.name", '{"mlp" = 1, cnn = 1}'), ("public.classes", "[0, 1, 2]")),
]


def test_settings_of_several_methods_give_the_same_experiments(ask: Ask, tmp_path: Path) -> None:
    request = ask([one.method for one in CHOSEN])
    path = tmp_path / "new" / "folder" / "tuned.toml"
    write_settings(path, request, CHOSEN)
    found = read_tuned(path)
    assert list(found) == [one.method for one in CHOSEN]
    for one in CHOSEN:
        typed = experiment_of(one.method, one.chosen.configuration.typed)
        read = experiment_of(one.method, found[one.method])
        assert read == typed


def test_values_at_an_end_of_their_grid_are_listed(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    found = [replace(CHOSEN[0], at_an_end=("train.lr",)), *CHOSEN[1:]]
    write_settings(path, ask([one.method for one in found], seeds=(7, 8)), found)
    searched = read_searched(path)
    assert searched is not None
    assert searched.ends == {"fedavg:share=full": ("train.lr",)}
    assert list(read_tuned(path)) == [one.method for one in found]


@pytest.mark.parametrize("ends", ["3", "{fedavg = 3}", "{fedavg = [3]}"])
def test_ends_that_are_not_lists_of_keys_are_refused(tmp_path: Path, ends: str) -> None:
    (tmp_path / "x.toml").write_text(f'[search]\ndataset = "mnist"\nseeds = [1]\nends = {ends}\n')
    with pytest.raises(InputError, match=r"x\.toml: \[search\.ends\] needs a list of keys"):
        read_searched(tmp_path / "x.toml")


def test_settings_of_several_methods_say_what_they_were_chosen_on(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    write_settings(path, ask([one.method for one in CHOSEN], seeds=(7, 8), protocol="own"), CHOSEN)
    table = {
        "dataset": "digits",
        "partition": "dirichlet",
        "alpha": 0.5,
        "rounds": 3,
        "seeds": [7, 8],
        "protocol": "own",
    }
    assert tomllib.loads(path.read_text())["search"] == table
    assert read_searched(path) == Searched("digits", (7, 8))


def ends_of(trials: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The keys, by method, whose chosen value is the least or the largest of those tried, and not 0."""
    found: dict[str, list[str]] = {}
    for chosen in (trial for trial in trials if trial["chosen"]):
        for key, value in chosen["settings"].items():
            tried = {float(one["settings"].get(key, value)) for one in trials if one["method"] == chosen["method"]}
            if len(tried) > 1 and float(value) in {min(tried), max(tried)} - {0}:
                found.setdefault(chosen["method"], []).append(key)
    return found


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.toml")), ids=lambda path: path.stem)
def test_kept_settings_say_what_their_search_was_on(path: Path) -> None:
    trials = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    search = tomllib.loads(path.read_text())["search"]
    assert search.pop("ends", {}) == ends_of(trials)
    for trial in trials:
        asked = trial["experiment"]
        drawn = () if asked["partition"] == "natural" else ("alpha",)
        own = {key: asked[key] for key in ("dataset", "partition", *drawn)}
        seeds = search["seeds"] if "failed" in trial else [int(seed) for seed in trial["values"]]
        assert search == own | {"rounds": trial["rounds"], "seeds": seeds, "protocol": trial["protocol"]}
    assert list(read_tuned(path)) == [trial["method"] for trial in trials if trial["chosen"]]
    for method, settings in read_tuned(path).items():
        (chosen,) = (trial for trial in trials if trial["chosen"] and trial["method"] == method)
        means = [trial["mean"] for trial in trials if trial["method"] == method and "failed" not in trial]
        assert chosen["mean"] == max(means)
        typed = [f"{key}={value}" for key, value in chosen["settings"].items()]
        assert read_settings(settings) == read_settings(typed)


@pytest.mark.parametrize("text", ["search = 3", "[search]", '[search]\ndataset = "mnist"\nseeds = [1.5]'])
def test_a_table_of_the_search_that_does_not_say_it_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(InputError, match=r"x\.toml: \[search\] needs dataset"):
        read_searched(tmp_path / "x.toml")


def test_a_file_of_before_has_no_table_of_the_search(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[fedavg]\ntrain.lr = 0.1")
    assert read_searched(tmp_path / "x.toml") is None


@pytest.mark.parametrize("one", CHOSEN, ids=lambda one: one.method)
def test_of_one_method_the_whole_experiment_is_written(ask: Ask, tmp_path: Path, one: SearchResult) -> None:
    """Without the search's seeds, and on all data."""
    path = tmp_path / "one.toml"
    write_settings(path, ask([one.method]), [one])
    own = experiment_of(one.method, one.chosen.configuration.typed)
    assert load_experiment(path).hash == own.hash
    for key, _ in one.chosen.configuration.settings:
        assert f"\n{key} = " in path.read_text()  # also where the default was chosen


def test_names_of_data_sets_write_no_keys_of_their_own(ask: Ask, tmp_path: Path) -> None:
    request = ask(settings=(*TINY, r'dataset="a\nrounds = 1\n.npz"'))
    write_settings(tmp_path / "tuned.toml", request, CHOSEN[:2])
    assert list(read_tuned(tmp_path / "tuned.toml")) == [one.method for one in CHOSEN[:2]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rounds = 3", "rounds is not a table"),
        ("[fedavg]\nday = 2024-01-01", "2024-01-01 is neither a number nor a text"),
        ("[fedavg", "is not valid TOML"),
    ],
)
def test_what_is_no_result_of_a_search_is_reported(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(InputError) as refused:
        read_tuned(tmp_path / "x.toml")
    assert sentence in str(refused.value)


def test_only_files_of_searches_are_written_over(ask: Ask, tmp_path: Path) -> None:
    mine, ours, new = tmp_path / "mine.toml", tmp_path / "ours.toml", tmp_path / "a" / "b" / "new.toml"
    mine.write_text("rounds = 3")
    write_settings(ours, ask(["fedprox"]), CHOSEN[1:2])
    refuse_unwritable(ours)
    refuse_unwritable(new)
    assert not (tmp_path / "a").exists()
    for path in (mine, tmp_path):
        with pytest.raises(InputError, match="it exists, and no search wrote it"):
            refuse_unwritable(path)
    with pytest.raises(InputError, match=r".*mine\.toml is not writable"):
        refuse_unwritable(mine / "below.toml")


def test_the_search_is_recorded_in_full(ask: Ask) -> None:
    tried = [
        ConfigurationResult(Configuration((("train.lr", "0.1"),), 3), {7: 0.5, 8: 0.7}),
        ConfigurationResult(Configuration((("train.lr", "9"),), 3), {7: 0.1}, "it diverged"),
    ]
    request = ask(["local"], seeds=(7, 8))
    found = [SearchResult("local", tried[0], tuple(tried), ())]
    lines = [json.loads(line) for line in write_search(request, found).read_text().splitlines()]
    record = json.loads(json.dumps(plain(request, found)))
    assert record["experiment"]["validation"] == 0.1
    (one,) = record["methods"]
    assert one["chosen"] == one["trials"][0]
    assert one["chosen"]["mean"] == pytest.approx(0.6)
    assert one["chosen"]["half_width"] == pytest.approx(12.706 * 0.1, rel=1e-3)  # t of one degree of freedom
    assert one["trials"][1] == {
        "settings": {"train.lr": "9"},
        "rounds": 3,
        "values": {"7": 0.1},
        "failed": "it diverged",
    }
    assert [line["chosen"] for line in lines] == [True, False]
    assert [{key: line[key] for key in one} for line, one in zip(lines, one["trials"], strict=True)] == one["trials"]
    assert [(line["method"], line["strategy"], line["protocol"]) for line in lines] == [
        ("local", "each", "personal")
    ] * 2
    assert [(line["experiment"]["train"]["lr"], line["experiment"]["seed"]) for line in lines] == [(0.1, 7), (9.0, 7)]
