"""Sources of an experiment: defaults < preset < file < --set; and the package's two public names."""

import subprocess
import sys
from pathlib import Path

import pytest

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import PRESETS, load_experiment

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.toml"
    path.write_text('rounds = 7\nalpha = 0.1\n[train]\nlr = 0.2\n[refprotofl]\nkeep = 0.3\ntiming = "post-train"\n')
    return path


def test_each_source_wins_over_the_one_before(file: Path) -> None:
    default, preset = Experiment(), load_experiment(preset="quick")
    both = load_experiment(file, "quick")
    settled = load_experiment(file, "quick", ["rounds=3", "train.batch-size=8"])
    assert (default.rounds, preset.rounds, both.rounds, settled.rounds) == (50, 20, 7, 3)
    assert (default.alpha, preset.alpha, both.alpha, settled.alpha) == (0.5, 0.5, 0.1, 0.1)
    assert (default.train.lr, preset.train.lr, both.train.lr, settled.train.lr) == (0.01, 0.01, 0.2, 0.2)
    # Tables are merged: what a later source leaves out stays.
    assert (preset.train.batch_size, both.train.batch_size, settled.train.batch_size) == (16, 16, 8)
    assert (settled.train.local_epochs, settled.model.name, settled.min_size) == (2, "mlp", 10)


def test_a_file_alone_starts_from_the_defaults_and_nothing_means_quick(file: Path) -> None:
    assert load_experiment(file).model.name == "resnet18"
    assert load_experiment() == load_experiment(preset="quick")
    assert load_experiment(settings=["seed=5"]).rounds == PRESETS["quick"]["rounds"]


def test_of_keep_and_budget_the_later_source_wins(file: Path) -> None:
    table = load_experiment(file, settings=["refprotofl.uplink-budget=20 kB"]).refprotofl
    assert (table.keep, table.uplink_budget, table.timing) == (None, 20_000, "post-train")


def test_a_key_in_pythons_spelling_is_the_same_key_in_every_source(tmp_path: Path) -> None:
    path = tmp_path / "snakes.toml"
    path.write_text("min_size = 5\n[train]\nbatch_size = 4\n[refprotofl]\nuplink_budget = 900\n")
    read = load_experiment(path, "quick", ["train.local_epochs=7"])
    assert (read.min_size, read.train.batch_size, read.train.local_epochs) == (5, 4, 7)
    table = load_experiment(path, settings=["refprotofl.keep=0.5"]).refprotofl
    assert (table.keep, table.uplink_budget) == (0.5, None)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_valid_experiment(preset: str) -> None:
    experiment = load_experiment(preset=preset)
    assert experiment.rounds == {"quick": 20, "small": 20, "full": 50, "paper": 50}.get(preset, experiment.rounds)


def test_reading_an_experiment_does_not_change_the_presets(file: Path) -> None:
    before = load_experiment(preset="quick").hash
    load_experiment(file, "quick", ["train.batch-size=3", "model.name=cnn"])
    assert load_experiment(preset="quick").hash == before


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("seed=3", "seed", 3),
        ("alpha = 1e-2", "alpha", 0.01),
        ("dataset=cifar10", "dataset", "cifar10"),
        ('dataset="cifar10"', "dataset", "cifar10"),
        ("dataset=a=b", "dataset", "a=b"),
        ("dataset=my module:load", "dataset", "my module:load"),
    ],
)
def test_a_setting_is_read_as_toml_if_it_is_and_as_text_if_not(setting: str, key: str, value: object) -> None:
    assert getattr(load_experiment(settings=[setting]), key) == value


def test_settings_reach_lists_and_switches() -> None:
    experiment = load_experiment(settings=["public.classes=[4, 2]", "refprotofl.apud=off", "refprotofl.erpa=false"])
    assert experiment.public.classes == (4, 2)
    assert (experiment.refprotofl.apud, experiment.refprotofl.erpa) == (False, False)


@pytest.mark.parametrize("setting", ["seed", "=3", " = 3"])
def test_a_setting_without_key_or_value_is_reported(setting: str) -> None:
    with pytest.raises(InputError, match=r"is not of the form key=value, such as --set train\.lr=0\.05"):
        load_experiment(settings=[setting])


def test_an_unknown_preset_a_missing_file_and_bad_toml_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no preset 'fast'; presets: quick, small, full, paper"):
        load_experiment(preset="fast")
    with pytest.raises(InputError, match=r"Cannot read the experiment file .*nowhere.toml"):
        load_experiment(tmp_path / "nowhere.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("seed = = 3\n")
    with pytest.raises(InputError, match=r"bad.toml is not valid TOML: .*line 1"):
        load_experiment(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"Cannot read the experiment file .*bad.toml"):
        load_experiment(bad)


def test_the_packages_public_names_are_what_they_should_be_in_any_order_of_import() -> None:
    script = """
import sys
from refprotofl import Experiment
assert "torch" not in sys.modules, "an experiment alone must not wait for torch"
from refprotofl import Experiment, run
assert run.__name__ == "run" and not hasattr(run, "__path__") and callable(run)
import refprotofl
from refprotofl.federation import Callback
from refprotofl import run as again
assert refprotofl.run is run is again
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "notepad.toml"
    path.write_bytes(b"\xef\xbb\xbfrounds = 7\n")
    assert load_experiment(path).rounds == 7


DEEP = 100_000


@pytest.mark.parametrize(
    "text", ["a = " + "[" * DEEP + "]" * DEEP, ".".join(["a"] * 5000) + " = 1"], ids=["list", "table"]
)
def test_deep_nesting_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(text)
    with pytest.raises(InputError, match="nested too deeply"):
        load_experiment(path)
    key, _, value = text.partition(" = ")
    with pytest.raises(InputError, match="nested too deeply"):
        load_experiment(settings=[f"{key}={value}"])
