"""The engine of a simulation: the one process or the workers in which its clients run."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from refprotofl.compute import numerics
from refprotofl.compute.devices import dealt, make_repeatable
from refprotofl.compute.process import keep_freed_memory
from refprotofl.engines.engine import Engine, Record
from refprotofl.engines.local.engine import LocalEngine
from refprotofl.engines.local.host import ClientHost
from refprotofl.engines.local.inprocess import InProcess
from refprotofl.engines.local.workers import WorkerProcesses
from refprotofl.experiment import Experiment
from refprotofl.simulation.assembly import Federation, client_side, load_federation


@dataclass(frozen=True)
class Site:
    """What an engine is opened with."""

    federation: Federation
    records: Mapping[int, Record]  # of the last committed round, as the engine gave them
    folder: Path  # where it may keep its clients' states
    data_dir: Path | None
    workers: int
    kept: Mapping[int, Mapping[int, Record]] = field(default_factory=dict)  # records of rounds that may be gone back to


OpenEngine = Callable[[Site], Engine]


def open_engine(site: Site, *, patient: bool = False) -> LocalEngine:
    """One worker is this very process. A `patient` engine leaves all to its workers, however long they take to start.

    Others answer here meanwhile.
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
    """For every worker all that it needs to build its host."""
    plain = {
        "experiment": site.federation.experiment.plain(),
        "numerics": site.federation.experiment.numerics,
        "data": None if site.data_dir is None else str(site.data_dir),
        "folder": str(site.folder.absolute()),
        "seen_from": None if site.federation.seen_from is None else str(site.federation.seen_from),
    }
    devices = dealt(site.federation.device, site.workers)
    return [json.dumps({**plain, "device": str(device)}).encode() for device in devices]


def build_worker_host(specification: bytes) -> ClientHost:
    plain = json.loads(specification)
    numerics.apply(plain["numerics"])  # a worker of another framework may not inherit our environment
    torch.set_num_threads(1)
    keep_freed_memory()
    data_dir, seen_from = (None if plain[key] is None else Path(plain[key]) for key in ("data", "seen_from"))
    device = torch.device(plain["device"])
    make_repeatable(device)
    federation = load_federation(Experiment.parse(plain["experiment"]), data_dir, device, seen_from)
    return client_side(federation, Path(plain["folder"]))
