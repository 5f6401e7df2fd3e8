"""Running trials, each once, in however many processes: those of a `WorkerPool`, and other terminals at one folder.

Worker processes of a run take longer to start than a short run takes. Short runs therefore run several at once.
"""

import json
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType

import torch

from refprotofl.core import (
    BudgetError,
    MachineError,
    RefProtoFLError,
    RunError,
    interrupts_ignored,
    live_with_parent,
    main_hidden,
)
from refprotofl.core.devices import choose, process_count
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, Workers, current_folder, keep_last_round, run
from refprotofl.records import Busy, read_experiment
from refprotofl.studies.results import KeptResults, Result, result_of
from refprotofl.studies.trials import Trial, folder_name

POLL = 1.0  # seconds between looks at a run of another process
WORTH_PROCESSES = 30.0  # seconds of trials below which starting more processes costs more than they save


@dataclass(frozen=True)
class TrialResult:
    """A trial with its result; the trial's folder is the one that the run is in."""

    trial: Trial
    result: Result
    reused: bool = False  # the run was finished before


@dataclass(frozen=True)
class TrialFailure:
    """A trial whose run failed."""

    trial: Trial
    problem: RunError | BudgetError


def run_trials(
    trials: Sequence[Trial],
    data: Path | None,
    workers: Workers | Callable[[Trial], Workers],
    watch: Callable[[Trial], Callback],
    kept: KeptResults | None = None,
) -> Iterator[TrialResult | TrialFailure]:
    """Run trials and yield what comes of each; a finished run is read, an interrupted one resumed.

    A run whose data or user code changed since gets a new folder. A run that another process is busy with is put off,
    and waited for in the end. Results in `kept` count as finished, and new ones are added to it. A problem of the
    machine, such as a full disk, is raised: the next run would meet it, too.
    """
    workers_of = workers if callable(workers) else lambda trial: workers
    waiting, put_off = deque(trials), 0
    while waiting:
        trial = waiting.popleft()
        outcome: TrialResult | TrialFailure
        try:
            outcome = _run_once(trial, data, workers_of(trial), partial(watch, trial), kept)
        except Busy:
            waiting.append(trial)
            put_off += 1
            if put_off >= len(waiting):  # other processes are busy with all that is left
                time.sleep(POLL)
                put_off = 0
            continue
        except MachineError:
            raise
        except (RunError, BudgetError) as problem:
            outcome = TrialFailure(trial, problem)
        put_off = 0
        yield outcome


def _run_once(
    trial: Trial, data: Path | None, workers: Workers, watch: Callable[[], Callback], kept: KeptResults | None
) -> TrialResult:
    found = None if kept is None else kept.find(trial, data)
    if found is not None:
        watch().on_reuse()
        return TrialResult(trial, found, reused=True)
    placed = placed_for(trial, data)
    ran = run(trial.experiment, out=placed.folder, data=data, workers=workers, resume=True, callback=watch())
    result = result_of(ran.folder, trial.experiment, ran.summary)
    if not ran.reused and "keep_checkpoints" not in trial.experiment.model_fields_set:
        keep_last_round(ran.folder)  # the earlier rounds of a grid would fill the disk
    if kept is not None:
        kept.add(result)
    return TrialResult(placed, result, ran.reused)


def placed_for(trial: Trial, data: Path | None) -> Trial:
    """Return the trial in the folder that it can use: of the same data and code, and not of a longer run."""
    folder = current_folder(trial.folder, trial.experiment, data)
    if (folder / "experiment.json").exists() and read_experiment(folder).rounds > trial.experiment.rounds:
        own = trial.folder.with_name(folder_name(trial.experiment))
        folder = current_folder(own, trial.experiment, data)
    return replace(trial, folder=folder)


def processes_for(trials: Sequence[Trial], seconds: float) -> int:
    """Return how many processes to add to this one, for trials that take `seconds` in one."""
    on_cpu = all(choose(trial.experiment.device).type == "cpu" for trial in trials)
    cores = process_count(torch.device("cpu"))
    return min(cores, len(trials)) - 1 if on_cpu and seconds > WORTH_PROCESSES else 0


class WorkerPool:
    """Processes that run trials from the end of the list, as another terminal would.

    A trial that fails in one of them is left to this process, which meets the same failure and reports it.
    """

    def __init__(self, count: int, trials: Sequence[Trial], data: Path | None, kept: KeptResults | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        for number in range(count):
            share = _share(trials, number, count, data, kept)
            process = context.Process(target=_run_share, args=(share,), daemon=True)
            with interrupts_ignored(), main_hidden():
                process.start()
            self._processes.append(process)

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Runs that are interrupted by this are resumed with the study."""
        for process in self._processes:
            process.kill()
            process.join()


def _share(trials: Sequence[Trial], number: int, count: int, data: Path | None, kept: KeptResults | None) -> bytes:
    """Return the trials from the end as JSON; each process begins at another one."""
    ordered = [*trials[::-1][number::count], *trials[::-1]]
    return json.dumps(
        {
            "trials": [
                {"name": trial.name, "folder": str(trial.folder), "experiment": trial.experiment.asked()}
                for trial in {trial.hash: trial for trial in ordered}.values()
            ],
            "data": None if data is None else str(data),
            "kept": None if kept is None else [str(kept.file), *map(str, kept.others)],
        }
    ).encode()


def _run_share(share: bytes) -> None:
    live_with_parent()
    plain = json.loads(share)
    data = None if plain["data"] is None else Path(plain["data"])
    file, *others = map(Path, plain["kept"] or [""])
    kept = KeptResults(file, tuple(others)) if plain["kept"] else None
    trials = [Trial(one["name"], Experiment.parse(one["experiment"]), Path(one["folder"])) for one in plain["trials"]]
    with suppress(RefProtoFLError):
        for _ in run_trials(trials, data, 1, lambda trial: Callback(), kept):
            pass
