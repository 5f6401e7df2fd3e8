"""The run config of Flower's app is an experiment, with the sentences of every other way to give one."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.flower.loopback import ROOT

from refprotofl.engines.flower.settings import PLACES, read_run_config
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.keys.complaints import keys


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    app = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    return flat(app["config"])


def test_the_app_takes_every_key_of_an_experiment(declared: dict[str, Any]) -> None:
    """Flower refuses a key that pyproject.toml does not have."""
    assert sorted(declared) == sorted([*PLACES, *keys(Experiment)])


def test_without_settings_it_is_the_quick_preset(declared: dict[str, Any]) -> None:
    found = read_run_config(declared)
    assert found.experiment == load_experiment(preset="quick")
    assert (found.out, found.data) == (None, None)


def test_values_are_read_as_by_set(declared: dict[str, Any]) -> None:
    given = {
        "rounds": 3,
        "train.lr": 0.5,
        "refprotofl.apud": False,
        "refprotofl.erpa": "off",
        "model.name": '["mlp", "cnn"]',
        "out": "/somewhere/run",
    }
    found = read_run_config(declared | given)
    settings = ["rounds=3", "train.lr=0.5", "refprotofl.apud=off", "refprotofl.erpa=off", 'model.name=["mlp", "cnn"]']
    assert found.experiment == load_experiment(preset="quick", settings=settings)
    assert found.out == Path("/somewhere/run")


def test_what_is_wrong_is_told_as_everywhere(declared: dict[str, Any]) -> None:
    with pytest.raises(InputError) as told:
        read_run_config(declared | {"rounds": -1})
    with pytest.raises(InputError) as typed:
        load_experiment(preset="quick", settings=["rounds=-1"])
    assert str(told.value) == str(typed.value)


@pytest.mark.parametrize("key", ["out", "data", "file", "dataset", "public.dataset", "test.dataset"])
def test_a_relative_place_is_refused_as_nobody_knows_from_where(declared: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=f"{key} = 'files/a.npz' is relative, but the ServerApp does not run where"):
        read_run_config(declared | {key: "files/a.npz"})


@pytest.mark.parametrize("name", ["digits", "hf:owner/name", "mine:images", "/files/a.npz", "~/a.npz", "digts"])
def test_a_set_that_is_no_relative_path_is_taken(declared: dict[str, Any], name: str) -> None:
    """Whether a name is a known one is told when it is loaded, with the nearest that is."""
    assert read_run_config(declared | {"dataset": name}).experiment.dataset == name
