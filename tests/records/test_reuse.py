"""A run is resumed, and read again, only on the data and the code that it began with."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation import provenance, run
from refprotofl.records.manifest import read_manifest

METHOD = """
from refprotofl.methods import find_method
from own_part_for_reuse import SCALE

class Own:
    server = find_method("fedavg").server
    client = find_method("fedavg").client
"""


def forget() -> None:
    """Forget cached modules, as a new process would have."""
    for name in ("own_method_for_reuse", "own_part_for_reuse"):
        sys.modules.pop(name, None)


@pytest.fixture
def own_data(tiny: Callable[..., Experiment], tmp_path: Path) -> Path:
    file = tmp_path / "own.npz"
    file.write_bytes(Path(tiny().dataset).read_bytes())
    return file


def flip_labels(file: Path) -> None:
    """The same images, so that all that an experiment has on record stays."""
    arrays = dict(np.load(file))
    np.savez(file, **(arrays | {"y_train": 2 - arrays["y_train"]}))


def test_other_labels_are_refused(tiny: Callable[..., Experiment], own_data: Path, tmp_path: Path) -> None:
    experiment = tiny(dataset=str(own_data), rounds=1)
    run(experiment, out=tmp_path / "run")
    whole = own_data.read_bytes()
    flip_labels(own_data)
    for wanted in (experiment, tiny(dataset=str(own_data), rounds=2)):
        with pytest.raises(InputError, match=r"the data of dataset = '.*own\.npz' changed since"):
            run(wanted, out=tmp_path / "run", resume=True)
    own_data.write_bytes(whole)
    assert run(experiment, out=tmp_path / "run", resume=True).reused


def test_other_code_is_refused_by_name(
    tiny: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("own_method_for_reuse.py").write_text(METHOD)
    Path("own_part_for_reuse.py").write_text("SCALE = 1\n")
    experiment = tiny(method="own_method_for_reuse:Own", rounds=1)
    run(experiment, out="run")
    assert run(experiment, out="run", resume=True).reused
    Path("own_part_for_reuse.py").write_text("SCALE = 2\n")  # what the method imports counts, too
    assert run(experiment, out="run", resume=True).reused  # what runs here is what was imported
    forget()
    with pytest.raises(InputError, match="the code of own_method_for_reuse:Own changed since"):
        run(experiment, out="run", resume=True)
    forget()


def test_numbers_of_another_version_are_refused(
    tiny: Callable[..., Experiment], finished_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "RESULTS", provenance.RESULTS + 1)
    with pytest.raises(InputError, match="the numbers that this version of refprotofl computes changed since"):
        run(tiny(), out=finished_copy, resume=True)


def test_data_that_are_gone_do_not_keep_a_finished_run_from_being_read(
    tiny: Callable[..., Experiment], own_data: Path, tmp_path: Path
) -> None:
    experiment = tiny(dataset=str(own_data), rounds=1)
    first = run(experiment, out=tmp_path / "run")
    own_data.unlink()
    assert run(experiment, out=tmp_path / "run", resume=True).summary == first.summary


def test_what_a_run_comes_from_is_in_its_manifest(tiny: Callable[..., Experiment], finished_copy: Path) -> None:
    stored = read_manifest(finished_copy / "checkpoint")["origin"]
    assert stored == provenance.origin_of(tiny(), None, mode=tiny().numerics)
    assert stored["results"] == provenance.RESULTS
    assert len(stored["data"]) == 64
