"""Each side of the wire is built from what it alone has, and computes what it computes in the simulation."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from refprotofl.core.state import digest_value
from refprotofl.engines.engine import EngineInfo, Record, Request, Result
from refprotofl.engines.local.engine import LocalEngine
from refprotofl.engines.local.host import InProcess
from refprotofl.evaluation import scoring
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, RunResult, run
from refprotofl.federation.client_side import ClientData, build_client_side
from refprotofl.federation.local_run import Site
from refprotofl.federation.models import prepare_models
from refprotofl.federation.participation import draw_cohort
from refprotofl.federation.server_side import build_server_side
from refprotofl.federation.simulation import Federation, load_federation
from refprotofl.methods.base.cohort import Cohort
from refprotofl.methods.base.samples import Samples
from refprotofl.records.folder import read_events, read_experiment
from refprotofl.records.verify import first_difference
from refprotofl.wire import Ledger

MIX = {"name": ["mlp", "cnn"], "embedding": 16}  # on 8 x 8 digits both are 128 wide


class Answers(Callback):
    """Every message of one client, in its order."""

    def __init__(self, client: int) -> None:
        self.client = client
        self.asked: list[Request] = []
        self.answered: list[bytes] = []

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if client == self.client and direction == "down":
            self.asked.append(Request(client, phase, round, data, purpose != "evaluation"))
        elif client == self.client:
            self.answered.append(data)


def own_data(federation: Federation, number: int) -> ClientData:
    """Copies of one client's own arrays, without any other client's."""
    data = federation.data
    rows = data.client_indices[number]
    images, labels = (torch.from_numpy(every[rows]) for every in (data.dataset.train_inputs, data.dataset.train_labels))
    own = [list(data.test_indices).index(index) for index in data.own_test_indices[number]]
    test = scoring.TestSet(
        torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_labels), torch.tensor(own).long()
    )
    return ClientData(Samples(images, labels, torch.arange(len(labels))), test)


def machine(experiment: Experiment, number: int, data: ClientData, folder: Path) -> LocalEngine:
    """One client with its own data, model and disk."""
    models = prepare_models(experiment, clients=[number])
    host = build_client_side(experiment, models, {number: data}.__getitem__, folder)
    return LocalEngine(lambda: InProcess(host), folder, {})


class Machines:
    """Every client on a machine of its own."""

    info = EngineInfo()

    def __init__(self, site: Site) -> None:
        federation = site.federation
        self.machines = [
            machine(federation.experiment, number, own_data(federation, number), site.folder / f"machine-{number}")
            for number in range(federation.experiment.clients)
        ]

    def map(self, requests: Iterable[Request], deadline: float | None) -> Iterator[Result]:
        for request in requests:
            yield from self.machines[request.client].map([request], deadline)

    def discard(self, client: int) -> None:
        self.machines[client].discard(client)

    def explain(self, client: int) -> str:
        return ""  # what happens there is not known here

    def settle(self, round: int) -> dict[int, Record]:
        return {client: record for one in self.machines for client, record in one.settle(round).items()}

    def committed(self, round: int, oldest: int) -> None:
        for one in self.machines:
            one.committed(round, oldest)

    def close(self) -> None:
        for one in self.machines:
            one.close()


@pytest.fixture(scope="module")
def simulated(uneven: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Answers]:
    callback = Answers(2)
    finished = run(uneven(model=MIX, fraction=1.0), out=tmp_path_factory.mktemp("simulated") / "run", callback=callback)
    return finished, callback


def test_a_client_with_nothing_but_its_own_arrays_gives_the_same_answers(
    simulated: tuple[RunResult, Answers], tmp_path: Path
) -> None:
    finished, seen = simulated
    experiment = read_experiment(finished.folder)
    mine = own_data(load_federation(experiment, None), seen.client)
    alone = machine(experiment, seen.client, mine, tmp_path)
    for request, answer in zip(seen.asked, seen.answered, strict=True):
        (result,) = alone.map([request], None)
        assert result.payload == answer, request.verb
    assert [request.verb for request in seen.asked[:3]] == ["join", "prototypes", "train"]
    last = [event for event in read_events(finished.folder) if event["event"] == "round"][-1]
    assert alone.settle(3)[seen.client]["digest"][:16] == last["clients"][str(seen.client)]


@pytest.mark.parametrize("changed", [{"model": MIX, "fraction": 1.0}, {"method": "fedavg", "share": "full"}])
def test_a_federation_of_machines_is_the_simulated_one(
    uneven: Callable[..., Experiment], tmp_path: Path, changed: dict[str, Any]
) -> None:
    simulated = run(uneven(**changed), out=tmp_path / "simulated")
    spread = run(uneven(**changed), out=tmp_path / "spread", engine=Machines)
    assert first_difference(simulated.folder, spread.folder) is None
    assert spread.summary | {"seconds": None} == simulated.summary | {"seconds": None}


def test_a_server_with_nothing_but_the_public_and_the_test_set_gives_the_same_state(
    simulated: tuple[RunResult, Answers], tmp_path: Path
) -> None:
    finished, _ = simulated
    experiment = read_experiment(finished.folder)
    federation = load_federation(experiment, None)
    data = federation.data
    images, labels = torch.from_numpy(data.public_inputs), torch.from_numpy(data.public_labels)
    public = Samples(images, labels, torch.arange(20))
    test = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_labels)
    side = build_server_side(experiment, prepare_models(experiment), public=public, test=test)
    engine = Machines(Site(federation, {}, tmp_path, None, 1))
    states = [event["server"] for event in read_events(finished.folder) if event["event"] == "round"]
    for number, expected in enumerate(states, 1):
        clients = draw_cohort(experiment, number)
        side.server.round(Cohort(engine, Ledger(), side.server.kinds, number, clients, Callback().on_message))
        assert {name: digest_value(value)[:16] for name, value in side.server.state.items()} == expected
