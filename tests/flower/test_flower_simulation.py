"""The app under Flower's own simulation on Ray."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flower.loopback import Loopback

from refprotofl.federation import run
from refprotofl.records.verify import first_difference

TWO = "num-supernodes=2 client-resources-num-cpus=1 init-args-num-cpus=2"


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    flower = Loopback(tmp_path_factory.mktemp("flower") / "site")
    flower.start_superlink()
    yield flower
    flower.close()


def test_a_simulation_on_ray_equals_the_run_in_this_process_and_resumes(flower: Loopback, tmp_path: Path) -> None:
    """Two rounds, then a third in the same folder by another ServerApp; a wrong key is in the run's details."""
    from refprotofl.experiment.presets import load_experiment

    out = tmp_path / "there"
    config = {"clients": 4, "fraction": 0.5, "evaluate.every": 1, "train.local-epochs": 1, "out": str(out)}
    for rounds in (2, 3):
        found = flower.wait(flower.submit({**config, "rounds": rounds}, TWO))
        assert found["status"] == "finished:completed", found
    settings = [f"{name}={value}" for name, value in config.items() if name != "out"]
    here = run(load_experiment(preset="quick", settings=[*settings, "rounds=3"]), out=tmp_path / "here")
    assert first_difference(here.folder, out) is None
    wrong = flower.wait(flower.submit({**config, "rounds": -1}, TWO))
    assert wrong["status"] == "finished:failed"
    assert "rounds = -1 is too small; allowed: number of rounds, 1 or more." in wrong["status-details"]
