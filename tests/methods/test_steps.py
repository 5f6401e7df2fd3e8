"""The steps on record are those that the clients' optimisers took."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_experiment

from refprotofl.federation import run
from refprotofl.methods import METHODS
from refprotofl.methods.base.optimisers import FreshSgd

pytestmark = pytest.mark.slow

SERVERS_TRAIN = {"fedgh", "fedprotokd", "fedtgp", "thin"}  # with the same optimiser, which is not the clients' work
ELSEWHERE = {"fedpcl"}  # needs a pre-trained backbone


@pytest.mark.parametrize("train_on", [False, True])
@pytest.mark.parametrize("method", sorted({*METHODS} - SERVERS_TRAIN - ELSEWHERE))
def test_every_step_of_a_client_is_counted(
    method: str, train_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, step = Counter[str](), FreshSgd.step

    def counted(self: FreshSgd, *given: Any) -> None:
        taken["steps"] += 1
        step(self, *given)

    monkeypatch.setattr(FreshSgd, "step", counted)
    experiment = tiny_experiment(method=method, fraction=0.5, public={"per-class": 2, "train-on": train_on})
    summary = run(experiment, out=tmp_path / "run").summary
    assert summary["steps"] == taken["steps"] > 0


def test_what_clients_do_after_the_last_round_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, step = Counter[str](), FreshSgd.step

    def counted(self: FreshSgd, *given: Any) -> None:
        taken["steps"] += 1
        step(self, *given)

    monkeypatch.setattr(FreshSgd, "step", counted)
    experiment = tiny_experiment(method="thin", thin={"server-epochs": 0}, finetune={"epochs": 2})
    summary = run(experiment, out=tmp_path / "run").summary
    assert summary["steps"] == taken["steps"] > 0
