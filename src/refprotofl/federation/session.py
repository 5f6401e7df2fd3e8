"""A session: a run from its folder to its summary, on this machine or over the nodes of a deployment.

The folder comes first: one that is refused, finished or of another experiment is reported before any data are loaded.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import torch

from refprotofl.core import (
    DiskFull,
    MachineError,
    devices,
    for_file_name,
    keep_freed_memory,
    numerics,
    one_compute_thread,
)
from refprotofl.experiment import Experiment
from refprotofl.federation.callbacks import Callback
from refprotofl.federation.local_run import OpenEngine, Simulation, Workers, check_workers, open_engine
from refprotofl.federation.loop import Loop, Setup
from refprotofl.federation.provenance import origin_of
from refprotofl.federation.resolution import prepare
from refprotofl.federation.resume import open_run, restore, rollback
from refprotofl.models import check_precision, precision_caveat
from refprotofl.records import Checkpoint, RunFolder, Summary, seen_from


@dataclass(frozen=True)
class RunResult:
    """A finished run: its summary as in summary.json, and its folder."""

    summary: Summary
    folder: Path
    reused: bool = False  # it was finished before, and has only been read


class Runtime(Protocol):
    """The differences between a simulation and a deployment: `local_run.Simulation`, `deploy.run.Deployment`."""

    @property
    def resume_hint(self) -> str: ...

    def check(self, experiment: Experiment) -> None:
        """Raise InputError for an experiment or a folder that cannot be run this way."""

    def resolve_alike(self, experiment: Experiment, stored: Experiment) -> Experiment:
        """Return the experiment as the data of the stored one would fill it in."""

    def set_up(self, experiment: Experiment, device: torch.device, note: Callable[[str], None]) -> Setup:
        """Load the data and build the server side; `note` is called with what the user should know about them."""


def run(
    experiment: Experiment,
    *,
    out: Path | str | None = None,
    data: Path | str | None = None,
    workers: Workers = 1,
    resume: bool = False,
    from_round: int | None = None,
    callback: Callback | None = None,
    engine: OpenEngine = open_engine,
) -> RunResult:
    """Run an experiment on this machine, or resume its run, and return the result.

    The result does not depend on `workers`. Without `out` a new folder under runs/ is made. `callback` observes the
    run, for example `refprotofl.ProgressCallback()`. `engine` opens the engine that asks the clients. `from_round`
    goes back to a round whose checkpoint is kept. With `numerics = "portable"`, InputError if torch has computed
    natively before.
    """
    check_workers(workers)
    data_dir = None if data is None else Path(data).expanduser()
    folder = RunFolder(Path(out).expanduser() if out is not None else default_folder(experiment))
    simulation = Simulation(folder.path, data_dir, workers, engine)
    return run_session(simulation, experiment, folder, data_dir, callback or Callback(), resume, from_round)


def run_session(
    runtime: Runtime,
    experiment: Experiment,
    folder: RunFolder,
    data_dir: Path | None,
    callback: Callback,
    resume: bool = True,
    from_round: int | None = None,
) -> RunResult:
    """Run an experiment in a folder, or resume the run that is in it."""
    started = time.perf_counter()
    too_late = numerics.attempt(experiment.numerics)  # before user code is imported, which may compute with torch
    keep_freed_memory()
    with ExitStack() as cleanup, one_compute_thread(), _full_disks_explained(runtime.resume_hint):
        cleanup.callback(callback.on_close)
        device = devices.choose(experiment.device)
        cleanup.callback(devices.make_repeatable(device))
        experiment = prepare(experiment)
        runtime.check(experiment)
        cleanup.callback(folder.close)
        summary = open_run(folder, experiment, resume, data_dir, from_round, runtime.resolve_alike)
        if summary is not None:
            callback.on_reuse()
            return RunResult(summary, folder.path, reused=True)
        if too_late is not None:
            raise too_late
        check_precision(experiment.train.precision, experiment.numerics)
        caveats = (numerics.caveat(experiment.numerics), precision_caveat(experiment.train.precision, device))
        for note in filter(None, caveats):
            callback.on_note(note)
        setup = runtime.set_up(experiment, device, callback.on_note)
        experiment = setup.side.experiment
        planned = folder.take(experiment)
        rollback(folder, experiment, from_round, callback)
        checkpoint = Checkpoint(folder.checkpoint, setup.side.initial_digests, experiment.keep_checkpoints)
        restore(setup.side, checkpoint)
        engine = setup.open_engine(checkpoint)
        cleanup.callback(engine.close)
        loop = Loop(setup, engine, checkpoint, folder, callback)
        loop.begin(origin_of(experiment, data_dir, seen_from(folder.path), experiment.numerics), planned)
        setup.wait()
        return RunResult(loop.run(started), folder.path)


@contextmanager
def _full_disks_explained(resume_hint: str) -> Iterator[None]:
    """Say how to resume a run that a full disk of this machine ended; on a node it only costs a turn."""
    try:
        yield
    except DiskFull as problem:
        raise MachineError(f"{problem} Then {resume_hint}.") from None


def default_folder(experiment: Experiment) -> Path:
    """Return a new folder for each call, in the same second too; its random part does not affect the run."""
    method, dataset = for_file_name(experiment.method), for_file_name(Path(experiment.dataset).stem)
    begun = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
    return Path("runs") / f"{begun}-{method}-{dataset}-seed{experiment.seed}"
