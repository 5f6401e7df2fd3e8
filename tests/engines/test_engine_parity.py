"""The result depends on the experiment alone: not on the number of workers or the order in which clients finish."""

import json
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from refprotofl.core.errors import RunError
from refprotofl.engines.local.engine import LocalEngine
from refprotofl.engines.local.host import ClientHost, Outcome, Task
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, RunResult, run
from refprotofl.federation.local_run import OpenEngine, Site
from refprotofl.federation.simulation import client_side, load_federation
from refprotofl.records.verify import first_difference


@pytest.fixture(scope="session")
def alone(uneven: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """All clients in this process, one after the other."""
    return run(uneven(), out=tmp_path_factory.mktemp("alone") / "run")


def assert_the_same(one: RunResult, other: RunResult) -> None:
    assert first_difference(one.folder, other.folder) is None
    assert one.summary | {"seconds": None} == other.summary | {"seconds": None}


def test_the_federation_is_uneven(uneven: Callable[..., Experiment]) -> None:
    sizes = [len(indices) for indices in load_federation(uneven(), None).data.client_indices]
    assert max(sizes) > 2 * min(sizes)


@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers(
    alone: RunResult, uneven: Callable[..., Experiment], tmp_path: Path, patient: OpenEngine, workers: int
) -> None:
    finished = run(uneven(), out=tmp_path / "run", workers=workers, engine=patient)
    assert_the_same(finished, alone)
    start = json.loads((finished.folder / "events.jsonl").read_text().splitlines()[0])
    assert start["workers"] == workers
    assert multiprocessing.active_children() == []


def test_a_run_that_begins_before_its_workers_are_ready(
    alone: RunResult, uneven: Callable[..., Experiment], tmp_path: Path
) -> None:
    assert_the_same(run(uneven(), out=tmp_path / "run", workers=2), alone)
    assert multiprocessing.active_children() == []


class Shuffled:
    """Lets the clients of a phase answer in random order."""

    def __init__(self, host: ClientHost, order: random.Random) -> None:
        self._host = host
        self._order = order
        self.orders: list[list[int]] = []

    def run(self, tasks: Iterable[Task], most: int | None, deadline: float | None) -> Iterator[tuple[Task, Outcome]]:
        asked = list(tasks)
        outcomes: dict[int, Outcome] = {}
        order = list(range(len(asked)))
        self._order.shuffle(order)
        self.orders.append([asked[place].client for place in order])
        for place in order:
            outcomes[place] = self._host.do(asked[place])
        yield from ((task, outcomes[place]) for place, task in enumerate(asked))

    def forget(self, client: int | None = None) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_completion(
    alone: RunResult, uneven: Callable[..., Experiment], tmp_path: Path, seed: int
) -> None:
    shuffled: list[Shuffled] = []

    def open_shuffled(site: Site) -> LocalEngine:
        shuffled.append(Shuffled(client_side(site.federation, site.folder), random.Random(seed)))
        return LocalEngine(lambda: shuffled[0], site.folder, site.records)

    assert_the_same(run(uneven(), out=tmp_path / "run", engine=open_shuffled), alone)
    assert any(order != sorted(order) for order in shuffled[0].orders)


def test_the_callers_threads_and_generators_do_not_matter_and_are_left_alone(
    alone: RunResult, uneven: Callable[..., Experiment], tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    try:
        assert_the_same(run(uneven(), out=tmp_path / "run"), alone)
        assert torch.get_num_threads() == 2
        assert torch.get_rng_state().equal(state)
    finally:
        torch.set_num_threads(before)


def test_another_seed_is_another_result(alone: RunResult, uneven: Callable[..., Experiment], tmp_path: Path) -> None:
    other = run(uneven(seed=1), out=tmp_path / "run")
    assert other.summary["state_digest"] != alone.summary["state_digest"]


class Killer(Callback):
    """Kills one worker after the first round."""

    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        if event["round"] == 1:
            process = multiprocessing.active_children()[0]
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)


def test_a_worker_that_dies_ends_the_run_which_can_be_resumed(
    alone: RunResult, uneven: Callable[..., Experiment], tmp_path: Path, patient: OpenEngine
) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunError, match=r"Worker process \d+ ended unexpectedly \(exit code -9\).*--resume"):
        run(uneven(), out=out, workers=2, callback=Killer(), engine=patient)
    assert multiprocessing.active_children() == []
    assert_the_same(run(uneven(), out=out, resume=True), alone)
