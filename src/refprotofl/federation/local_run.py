"""A simulation as a run on this machine: where its clients run, and what a session needs of it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from refprotofl.core import InputError, devices, is_passed, keep_freed_memory, numerics, references
from refprotofl.engines import ClientHost, Engine, InProcess, LocalEngine, Record, WorkerProcesses
from refprotofl.experiment import Experiment
from refprotofl.federation import simulation
from refprotofl.federation.loop import Setup
from refprotofl.federation.resolution import resolve_alike
from refprotofl.federation.simulation import Federation, client_side, load_federation
from refprotofl.methods import Server
from refprotofl.records import Checkpoint, refuse_deployed, seen_from

Workers = int | Literal["auto"]


@dataclass(frozen=True)
class Site:
    """All that an engine of a simulation is opened with."""

    federation: Federation
    records: Mapping[int, Record]  # of the last committed round, as the engine gave them
    folder: Path  # where it may keep its clients' states
    data_dir: Path | None
    workers: int
    kept: Mapping[int, Mapping[int, Record]] = field(default_factory=dict)  # by round, to roll back to


OpenEngine = Callable[[Site], Engine]


def open_engine(site: Site, *, patient: bool = False) -> LocalEngine:
    """Open an engine in this process for one worker, else over worker processes.

    Until those have started, clients answer in this process; a `patient` engine waits for them instead.
    """
    here = client_side(site.federation, site.folder)
    if site.workers == 1:
        return LocalEngine(lambda: InProcess(here), site.folder, site.records, site.kept)
    sizes = [len(indices) for indices in site.federation.data.client_indices]
    meanwhile = None if patient else here

    def start() -> WorkerProcesses:
        return WorkerProcesses(build_worker_host, worker_specifications(site), sizes, meanwhile)

    return LocalEngine(start, site.folder, site.records, site.kept)


def worker_specifications(site: Site) -> list[bytes]:
    """Return for each worker what it builds its host from."""
    plain = {
        "experiment": site.federation.experiment.carried(),
        "data": None if site.data_dir is None else str(site.data_dir),
        "folder": str(site.folder.absolute()),
        "seen_from": None if site.federation.seen_from is None else str(site.federation.seen_from),
    }
    assigned = devices.assign_devices(site.federation.device, site.workers)
    return [json.dumps({**plain, "device": str(device)}).encode() for device in assigned]


def build_worker_host(specification: bytes) -> ClientHost:
    plain = json.loads(specification)
    experiment = Experiment.parse(plain["experiment"])
    numerics.apply(experiment.numerics)  # a worker of another framework may not inherit our environment
    torch.set_num_threads(1)
    keep_freed_memory()
    data_dir, seen_from = (None if plain[key] is None else Path(plain[key]) for key in ("data", "seen_from"))
    device = torch.device(plain["device"])
    devices.make_repeatable(device)
    federation = load_federation(experiment, data_dir, device, seen_from, resolved_before=True)
    return client_side(federation, Path(plain["folder"]))


@dataclass(frozen=True)
class Simulation:
    """A simulation, as a session runs it (`session.Runtime`)."""

    folder: Path
    data_dir: Path | None
    workers: Workers
    engine: OpenEngine
    resume_hint: str = LocalEngine.info.resume_hint

    def check(self, experiment: Experiment) -> None:
        refuse_deployed(self.folder)
        if experiment.over_select:
            raise InputError(
                f"over-select = {experiment.over_select:g} is for deployments only, where nodes may be late: leave it "
                "out. In a simulation, dropout loses clients."
            )
        passed = _passed(experiment)
        if passed and self.workers not in (1, "auto"):
            raise InputError(
                f"{passed[0]} was passed from Python as a class or function that worker processes cannot import: use "
                "workers = 1, or put it into a module."
            )

    def resolve_alike(self, experiment: Experiment, stored: Experiment) -> Experiment:
        return resolve_alike(experiment, stored)

    def set_up(self, experiment: Experiment, device: torch.device, note: Callable[[str], None]) -> Setup:
        federation = load_federation(experiment, self.data_dir, device, seen_from(self.folder))
        for sentence in federation.data.notes:
            note(sentence)
        count = worker_count(self.workers, federation.experiment, device)
        return Setup(
            side=simulation.server_side(federation),
            open_engine=partial(self._open, federation, count),
            steps=partial(_steps, federation),
            spent=lambda _, rounds: simulation.spent_after(federation, rounds),
            workers=count,
            device=devices.describe(device, count),
            partition=federation.data.partition_record(),
            statistics=federation.rule,
            exchanged=federation.exchanged,
        )

    def _open(self, federation: Federation, count: int, checkpoint: Checkpoint) -> Engine:
        return self.engine(
            Site(federation, checkpoint.records, checkpoint.folder, self.data_dir, count, checkpoint.kept_records)
        )


def _steps(federation: Federation, server: Server, clients: Sequence[int], closing: Sequence[int]) -> int:
    return simulation.steps_of_round(federation, clients, closing)


def check_workers(workers: Workers) -> None:
    if workers != "auto" and (type(workers) is not int or workers < 1):
        raise InputError(f"workers = {workers!r}: allowed are auto or a whole number of at least 1.")


def _passed(experiment: Experiment) -> list[str]:
    """Return the keys whose values only this process has."""
    return [key for key, name in references(experiment.plain()) if is_passed(name)]


def worker_count(workers: Workers, experiment: Experiment, device: torch.device) -> int:
    if _passed(experiment):
        return 1
    return min(devices.process_count(device) if workers == "auto" else workers, experiment.clients)
