"""A run that its folder refuses, or already has, ends before data are loaded; a failure before a run leaves nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.records.folder import RunFolder

LOADER = "refprotofl.data.federated.load_dataset"


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOADER, lambda *_: pytest.fail("the data set was loaded"))


@pytest.mark.usefixtures("no_data")
def test_a_folder_that_cannot_be_used_is_refused_first(
    tiny: Callable[..., Experiment], finished_copy: Path, cut_off: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    other = RunFolder(cut_off)
    other.open(resume=True)
    for out, resume, complaint in (
        (tmp_path / "file", False, "Cannot use"),
        (tmp_path, False, "is not empty and holds no run"),
        (finished_copy, False, "already holds a run"),
        (cut_off, True, "Another process is running"),
    ):
        with pytest.raises(InputError, match=complaint):
            run(tiny(), out=out, resume=resume)
    other.close()
    assert (cut_off / "experiment.json").exists()


@pytest.mark.usefixtures("no_data")
def test_a_finished_run_is_read_and_no_more(
    tiny: Callable[..., Experiment], finished_copy: Path, undisturbed: RunResult
) -> None:
    for same in (tiny(), tiny(public={"per-class": 2, "classes": [2, 0, 1]})):
        assert run(same, out=finished_copy, resume=True).summary == undisturbed.summary


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"seed": 1, "train": {"lr": 0.5}}, "seed, train.lr"),
        ({"public": {"per-class": 3}}, "public.per-class"),
        ({"public": {}}, "public.per-class"),  # its default is another
        ({"public": {"per-class": 2, "classes": [0, 7]}}, "public.classes"),
        ({"public": {"per-class": 0}}, "public.classes, public.per-class"),
        ({"dataset": "elsewhere.npz"}, "dataset"),
    ],
)
def test_another_experiment_is_refused_by_its_keys(
    tiny: Callable[..., Experiment], cut_off: Path, finished_copy: Path, changes: dict[str, Any], keys: str
) -> None:
    for folder in (cut_off, finished_copy):
        with pytest.raises(InputError, match=rf"another experiment; it differs in {keys}\."):
            run(tiny(**changes), out=folder, resume=True)


def test_data_that_became_others_are_reported_when_they_are_loaded(
    tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    file = tmp_path / "own.npz"
    shutil.copy(tiny().dataset, file)
    changing = tiny(dataset=str(file), rounds=1)

    def cut_off(_: object) -> Any:
        raise Stop

    with pytest.raises(Stop):
        run(changing, out=tmp_path / "run", engine=cut_off)
    arrays = dict(np.load(file))
    np.savez(file, **(arrays | {"x_train": 255 - arrays["x_train"]}))
    with pytest.raises(InputError, match=r"another experiment; it differs in input\.mean"):
        run(changing, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_fails_before_it_begins_leaves_everything_as_it_was(
    tiny: Callable[..., Experiment], tmp_path: Path, undisturbed: RunResult, resume: bool
) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "new" / "below"):
        with pytest.raises((DataError, InputError), match="path not found"):
            run(tiny(dataset="gone.npz"), out=out, resume=resume)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["empty"]
    for out in (tmp_path / "empty", tmp_path / "new" / "below"):
        assert run(tiny(), out=out, resume=resume).summary["state_digest"] == undisturbed.summary["state_digest"]


def test_a_process_that_was_killed_while_it_loaded_data_blocks_no_other(
    tiny: Callable[..., Experiment], tmp_path: Path, undisturbed: RunResult
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / ".lock").touch()
    assert run(tiny(), out=out).summary["state_digest"] == undisturbed.summary["state_digest"]
