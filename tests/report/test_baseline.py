"""The same data under another method, found again among finished runs."""

from pathlib import Path

import pytest
from tests.tiny import tiny_keys

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.report.comparable import baseline_of, finished_run

TINY = tiny_keys(clients=3, rounds=1, refprotofl={"keep": 0.3})


def test_only_what_belongs_to_the_method_differs() -> None:
    experiment = Experiment.parse({**TINY, "seed": 4, "refprotofl": {"keep": 0.3, "apud": True}})
    local = baseline_of(experiment, "local")
    assert local == Experiment.parse({**TINY, "seed": 4, "method": "local", "refprotofl": {}})
    with pytest.raises(InputError, match="did you mean 'local'"):
        baseline_of(experiment, "locl")


def test_a_finished_run_of_the_same_data_is_found_and_others_are_not(tmp_path: Path) -> None:
    done = run(Experiment.parse(TINY), out=tmp_path / "ours")
    local = baseline_of(Experiment.parse(done.summary["experiment"]), "local")
    assert finished_run(tmp_path, local) is None
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "experiment.json").write_text("[]")
    run(Experiment.parse({**TINY, "method": "local", "seed": 1}), out=tmp_path / "other seed")
    assert finished_run(tmp_path, local) is None
    theirs = run(Experiment.parse({**TINY, "method": "local"}), out=tmp_path / "theirs")
    assert finished_run(tmp_path, local) == theirs.summary
