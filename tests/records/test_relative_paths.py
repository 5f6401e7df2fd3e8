"""A run whose data were named by a relative path resumes and predicts from any folder; its hash stays the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.export import load_trained, predict
from refprotofl.federation import Callback, run
from refprotofl.records.folder import read_experiment, seen_from

KEYS = {
    "dataset": "own.npz",
    "rounds": 2,
    "clients": 2,
    "min-size": 5,
    "public": {"per-class": 2},
    "model": {"name": "mlp", "embedding": 8},
}


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data and a run that was cut off after its first round; we stand elsewhere."""
    labels = np.arange(60) % 3
    images = (np.random.default_rng(0).integers(0, 100, (60, 4, 4)) + 60 * labels[:, None, None]).astype(np.uint8)
    home = tmp_path / "home"
    home.mkdir()
    np.savez(home / "own.npz", x_train=images[:45], y_train=labels[:45], x_test=images[45:], y_test=labels[45:])
    monkeypatch.chdir(home)
    with pytest.raises(KeyboardInterrupt):
        run(Experiment.parse(KEYS), out="it", callback=CutOff())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return home


class CutOff(Callback):
    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("workers", [1, 2])
def test_it_continues_from_another_folder(begun: Path, workers: int, patient: Any, monkeypatch: Any) -> None:
    stored = Experiment.parse(read_experiment(begun / "it").plain())
    resumed = run(stored, out=begun / "it", resume=True, workers=workers, engine=patient).summary
    monkeypatch.chdir(begun)
    assert run(Experiment.parse(KEYS), out="again").summary["state_digest"] == resumed["state_digest"]


def test_it_is_asked_from_another_folder(begun: Path) -> None:
    made = predict(load_trained(begun / "it", 0), "own.npz")
    assert made.labels is not None
    assert len(made.labels) == 15  # its test split, not all of it


def test_the_place_is_no_part_of_the_experiment(begun: Path) -> None:
    written = json.loads((begun / "it" / "experiment.json").read_text())
    assert written["seen-from"] == str(begun)
    assert seen_from(begun / "it") == begun
    assert written["dataset"] == "own.npz"
    assert read_experiment(begun / "it").hash == written["hash"]
    assert "seen-from" not in read_experiment(begun / "it").plain()


def test_data_that_moved_with_the_user_are_found_and_lost_ones_reported(begun: Path) -> None:
    stored = Experiment.parse(read_experiment(begun / "it").plain())
    kept = shutil.move(begun / "own.npz", begun / "moved")
    with pytest.raises(InputError, match=r"path not found in .*elsewhere nor in .*home, where the run"):
        run(stored, out=begun / "it", resume=True)
    shutil.move(kept, "own.npz")
    assert run(stored, out=begun / "it", resume=True).summary["rounds_done"] == 2


def test_names_and_absolute_paths_leave_no_place(begun: Path, tmp_path: Path) -> None:
    run(Experiment.parse({**KEYS, "dataset": str(begun / "own.npz"), "rounds": 1}), out=tmp_path / "run")
    assert "seen-from" not in json.loads((tmp_path / "run" / "experiment.json").read_text())
    assert seen_from(tmp_path / "run") is None
