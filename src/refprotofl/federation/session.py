"""A run from its beginning to its summary: the folder first, then the data, then the loop."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from refprotofl.core import devices, numerics
from refprotofl.core.errors import DataError, DiskFull, InputError, MachineError
from refprotofl.core.escaping import for_file_name
from refprotofl.core.process import keep_freed_memory, one_compute_thread
from refprotofl.engines.local.store import check_state
from refprotofl.experiment import Experiment
from refprotofl.federation import simulation
from refprotofl.federation.callbacks import Callback, Event
from refprotofl.federation.loop import Loop, put_back
from refprotofl.federation.provenance import origin_of, refuse_changed
from refprotofl.federation.resolution import prepare, resolve_alike
from refprotofl.federation.server_side import ServerSide
from refprotofl.federation.simulation import OpenEngine, Site, open_engine
from refprotofl.methods.catalogue import find_method
from refprotofl.records.checkpoint import Checkpoint
from refprotofl.records.folder import RunFolder, is_longer, refuse_deployed, seen_from
from refprotofl.records.manifest import kept_name
from refprotofl.records.rollback import choose, go_back
from refprotofl.records.summary import Summary
from refprotofl.records.verify import check_experiment

__all__ = ["Callback", "Event", "RunResult", "Workers", "default_folder", "run", "worker_count"]

Workers = int | Literal["auto"]


@dataclass(frozen=True)
class RunResult:
    """A finished run: its summary as in summary.json, and where it lies."""

    summary: Summary
    folder: Path
    reused: bool = False  # it was finished before, and has only been read


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
    """Runs an experiment, or goes on with one, and gives its summary.

    The result does not depend on `workers`. Without `out` a new folder under runs/ is made. `watcher` is told of what
    happens, such as `refprotofl.ProgressCallback()`. `engine` opens what asks the clients. `from_round` goes back to a
    round whose checkpoint is kept. With `numerics = "portable"`, InputError if torch has computed natively before.
    """
    started = time.perf_counter()
    too_late = numerics.attempt(experiment.numerics)  # before user code is imported, which may compute with torch
    callback = callback or Callback()
    check_workers(workers)
    data_dir = None if data is None else Path(data).expanduser()
    folder = RunFolder(Path(out).expanduser() if out is not None else default_folder(experiment))
    keep_freed_memory()
    with ExitStack() as cleanup, one_compute_thread(), _full_disks_explained():
        cleanup.callback(callback.on_close)
        device = devices.choose(experiment.device)
        cleanup.callback(devices.make_repeatable(device))
        experiment = prepare(experiment)
        refuse_deployed(folder.path)
        cleanup.callback(folder.close)
        finished = enter(folder, experiment, resume, data_dir, from_round)
        if finished is not None:
            callback.on_reuse()
            return finished
        if too_late is not None:
            raise too_late
        note = numerics.caveat(experiment.numerics)
        if note:
            callback.on_note(note)
        federation = simulation.load_federation(experiment, data_dir, device, seen_from(folder.path))
        for note in federation.data.notes:
            callback.on_note(note)
        side = simulation.server_side(federation)
        planned = folder.take(federation.experiment)
        stand(folder, federation.experiment, from_round, callback)
        checkpoint = Checkpoint(folder.checkpoint, side.initial_digests, federation.experiment.keep_checkpoints)
        restore(side, checkpoint)
        count = worker_count(workers, federation.experiment, device)
        opened = engine(
            Site(federation, checkpoint.records, checkpoint.folder, data_dir, count, checkpoint.kept_records)
        )
        cleanup.callback(opened.close)
        steps, costs = partial(simulation.steps_of_round, federation), partial(simulation.spent_after, federation)
        loop = Loop(side, opened, checkpoint, folder, callback, steps, costs)
        origin = origin_of(federation.experiment, data_dir, seen_from(folder.path), experiment.numerics)
        loop.begin(origin, planned, count, devices.describe(device, count), federation.data.partition_record())
        return RunResult(loop.run(started), folder.path)


@contextmanager
def _full_disks_explained() -> Iterator[None]:
    """A full disk ends a run of this machine, which is resumed once there is room; on a node it costs a turn."""
    try:
        yield
    except DiskFull as problem:
        raise MachineError(f"{problem} The run then resumes with --resume.") from None


def enter(
    folder: RunFolder,
    experiment: Experiment,
    resume: bool,
    data_dir: Path | None,
    from_round: int | None,
    alike: Callable[[Experiment, Experiment], Experiment] = resolve_alike,
) -> RunResult | None:
    """Opens the folder, if it may be used for this experiment. A run that is finished needs no more.

    `alike` fills the experiment in as the stored one was.
    """
    stored = folder.open(resume)
    if stored is None:
        if from_round is not None:
            raise InputError(f"--from-round {from_round} goes back in a run, but there is none in {folder.path}.")
        return None
    wanted = alike(experiment, stored)
    longer = is_longer(stored, wanted)
    if longer:
        refuse_dependent(folder, stored, wanted)
    else:
        folder.refuse_other(stored, wanted)
    refuse_changed(folder.path, stored, data_dir, experiment.numerics)
    summary = None if longer or from_round is not None else folder.read_summary()
    return None if summary is None else RunResult(summary, folder.path, reused=True)


def refuse_dependent(folder: RunFolder, stored: Experiment, wanted: Experiment) -> None:
    """More rounds end as if they had been planned; not so where the first rounds depend on how many there are."""
    if find_method(stored.method).depends_on_rounds:
        raise InputError(
            f"The run in {folder.path} was planned for rounds = {stored.rounds} and cannot go on to {wanted.rounds}: "
            f"what method = {stored.method!r} does in a round depends on the number of all rounds. Use another --out."
        )


def stand(folder: RunFolder, experiment: Experiment, from_round: int | None, callback: Callback) -> None:
    """Brings the folder to the checkpoint that the run goes on from; tells if that is not the newest."""
    chosen = choose(folder, from_round, check_state)
    if not chosen.manifest:
        return
    check_experiment(folder.path, experiment, chosen.manifest)
    if not chosen.reason:
        return
    rollback = go_back(folder, chosen)
    round = chosen.manifest["progress"]["round"]
    if rollback is not None:
        why = "" if from_round is not None else f"{chosen.reason} "
        callback.on_note(
            f"{why}The run goes on from round {round}, not {rollback['before']}; what was told of later "
            f"rounds is in {rollback['events']}."
        )
    elif from_round is None:
        callback.on_note(f"{chosen.reason} Its copy, {kept_name(round)}, is whole and was put in its place.")


def restore(side: ServerSide, checkpoint: Checkpoint) -> None:
    """The server goes on from the last committed round, if there is one."""
    try:
        put_back(side.server, checkpoint)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as problem:
        raise DataError(
            f"The server's state in {checkpoint.folder} does not fit the experiment ({problem}); is it of another run?"
        ) from None


def default_folder(experiment: Experiment) -> Path:
    """A new one for each call, for those of the same second too: what is random about it has no say in the run."""
    method, dataset = for_file_name(experiment.method), for_file_name(Path(experiment.dataset).stem)
    begun = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
    return Path("runs") / f"{begun}-{method}-{dataset}-seed{experiment.seed}"


def check_workers(workers: Workers) -> None:
    if workers != "auto" and (type(workers) is not int or workers < 1):
        raise InputError(f"workers = {workers!r}: allowed are auto or a whole number of at least 1.")


def worker_count(workers: Workers, experiment: Experiment, device: torch.device) -> int:
    return min(devices.process_count(device) if workers == "auto" else workers, experiment.clients)
