"""Flower's run config is an experiment, with the sentences of every other way to give one."""

import shlex
from pathlib import Path

import pytest

from refprotofl.core.errors import InputError
from refprotofl.deploy.run_config import KEYS, read_run_config, read_settings
from refprotofl.experiment.presets import load_experiment

EMPTY = {**dict.fromkeys(KEYS, ""), "preset": "quick"}  # as the app declares it


def test_without_settings_it_is_the_quick_preset() -> None:
    found = read_run_config(EMPTY)
    assert found.experiment == load_experiment(preset="quick")
    assert found.out.is_absolute()
    assert found.data is None


def test_settings_are_read_as_by_set() -> None:
    settings = [
        "rounds=3",
        "train.lr=0.5",
        "refprotofl.apud=off",
        'model.name=["mlp", "cnn"]',
        "public.dataset=/my files/public.npz",
    ]
    found = read_run_config(EMPTY | {"set": shlex.join(settings), "out": "/somewhere/run"})
    assert found.experiment == load_experiment(preset="quick", settings=settings)
    assert found.out == Path("/somewhere/run")


def test_a_file_lies_below_the_settings_and_above_the_preset(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('rounds = 7\nmethod = "fedavg"\n')
    found = read_run_config({"file": str(tmp_path / "mine.toml"), "set": "rounds=8", "data": str(tmp_path)})
    assert (found.experiment.rounds, found.experiment.method) == (8, "fedavg")
    assert found.data == tmp_path


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", []),
        ("rounds=20 train.lr=0.05", ["rounds=20", "train.lr=0.05"]),
        ("'public.dataset=/a b/c.npz'  rounds=1", ["public.dataset=/a b/c.npz", "rounds=1"]),
    ],
)
def test_settings_are_split_as_in_a_shell(text: str, settings: list[str]) -> None:
    assert read_settings(text) == settings


def test_a_quote_without_an_end_is_reported() -> None:
    with pytest.raises(InputError, match=r"set = .*: No closing quotation\."):
        read_run_config(EMPTY | {"set": "'rounds=1"})


def test_an_experiments_own_key_is_refused_with_the_place_where_it_belongs() -> None:
    with pytest.raises(InputError, match=r'Unknown run config key `rounds`\. .* as in set="rounds=3"\.'):
        read_run_config(EMPTY | {"rounds": 3})


def test_errors_are_reported_as_everywhere() -> None:
    with pytest.raises(InputError) as found:
        read_run_config(EMPTY | {"set": "rounds=-1"})
    with pytest.raises(InputError) as typed:
        load_experiment(preset="quick", settings=["rounds=-1"])
    assert str(found.value) == str(typed.value)


@pytest.mark.parametrize("key", ["out", "data", "file", "dataset", "public.dataset", "test.dataset"])
def test_a_relative_path_is_refused(key: str) -> None:
    config = {key: "files/a.npz"} if key in KEYS else {"set": f"{key}=files/a.npz"}
    with pytest.raises(
        InputError, match=f"{key} = 'files/a.npz' is relative, but the server does not run in your folder"
    ):
        read_run_config(EMPTY | config)


@pytest.mark.parametrize("name", ["digits", "hf:owner/name", "mine:images", "/files/a.npz", "~/a.npz", "digts"])
def test_a_set_that_is_no_relative_path_is_taken(name: str) -> None:
    """An unknown name is reported when it is loaded, with the nearest known one."""
    assert read_run_config(EMPTY | {"set": f"dataset={name}"}).experiment.dataset == name
