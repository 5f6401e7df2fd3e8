"""The run folder as a whole: its lock, its experiment, its events and its summary."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import filelock

from refprotofl.core import DataError, InputError, Reference, references, refuse_code, search_code_in
from refprotofl.data.loading import is_relative
from refprotofl.experiment import Experiment, differences
from refprotofl.records.atomic_files import make_folders, remove_empty, remove_parts, sync_folder, write_whole
from refprotofl.records.events import EventLog, read_events
from refprotofl.records.relay_traffic import FILE as WIRE
from refprotofl.records.safe_io import CHECKPOINT, check_file, check_run_folder, read_json
from refprotofl.records.summary import Summary, read_summary, summary_bytes

__all__ = ["Busy", "RunFolder", "is_longer", "read_events", "read_experiment"]

SEEN_FROM = "seen-from"  # in experiment.json, no key of the experiment
NODES = "nodes.json"  # the clients of the nodes of a deployment


class Busy(InputError):
    """Another process is running in the folder."""


class RunFolder:
    """`experiment.json`, `events.jsonl`, `checkpoint/`, `summary.json`, and a lock that ends with its holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path / ".lock", mode=0o644, blocking=False)
        self.events = EventLog(path / "events.jsonl")
        self._made: list[Path] = []  # folders that did not exist before

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    def open(self, resume: bool) -> Experiment | None:
        """Lock the folder for this process, and return the experiment of the run in it, if there is one."""
        self._made = make_folders(self.path)
        self._refuse_foreign()
        check_run_folder(self.path)  # the lock is opened for writing, too
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise Busy(f"Another process is running in {self.path}; wait for it or use another --out.") from None
        except OSError as problem:
            raise InputError(f"Cannot use {self.path} as the run folder: {problem.strerror}.") from None
        if not self._holds_run:
            return None
        if not resume:
            raise InputError(f"{self.path} already holds a run: continue it with --resume, or use another --out.")
        return read_experiment(self.path)

    @property
    def _holds_run(self) -> bool:
        return os.path.lexists(self.path / "experiment.json")

    def _refuse_foreign(self) -> None:
        """Refuse a folder with other files before anything is written; the counts of a relay may be there."""
        names = [entry.name for entry in self.path.iterdir() if not entry.name.startswith(".") and entry.name != WIRE]
        if names and "experiment.json" not in names:
            raise InputError(f"{self.path} is not empty and holds no run ({names[0]}, …); use another --out.")

    def refuse_other(self, stored: Experiment, experiment: Experiment) -> None:
        """Refuse an experiment that is not the stored one; both are resolved."""
        changed = differences(stored.plain(), experiment.plain())
        if changed and stored.hash != experiment.hash:
            raise InputError(f"{self.path} holds a run of another experiment; it differs in {', '.join(changed)}.")

    def take(self, experiment: Experiment) -> int:
        """Store this resolved experiment as that of the folder; return the number of rounds it had before."""
        remove_parts(self.path.resolve())  # the path to it may be a link
        stored = read_experiment(self.path) if self._holds_run else experiment
        longer = is_longer(stored, experiment)
        if longer:
            self.drop_summary()  # first, because the run is not finished any more
        else:
            self.refuse_other(stored, experiment)
        if longer or not self._holds_run:
            plain = {"hash": experiment.hash, **self._place(experiment), **experiment.plain()}
            write_whole(self.path / "experiment.json", (json.dumps(plain, indent=2) + "\n").encode())
        return stored.rounds

    def _place(self, experiment: Experiment) -> dict[str, str]:
        """Return the folder that the run is started in, where relative paths or user code depend on it.

        The experiment's hash does not cover this entry.
        """
        names = (experiment.dataset, experiment.public.dataset, experiment.test.dataset)
        if not any(is_relative(name) for name in names if name) and not references(experiment.plain()):
            return {}
        return {SEEN_FROM: str(seen_from(self.path) or Path.cwd())}

    def drop_summary(self) -> None:
        (self.path / "summary.json").unlink(missing_ok=True)
        sync_folder(self.path)

    def close(self) -> None:
        """Release the folder; one in which no run has begun is left as it was found."""
        try:
            if self._lock.is_locked and not self._holds_run:
                with suppress(OSError):  # some systems do not remove a file that is locked
                    (self.path / ".lock").unlink()
        finally:
            self._lock.release()
        if not self._holds_run:
            remove_empty(self._made)

    def write_summary(self, summary: Summary) -> None:
        write_whole(self.path / "summary.json", summary_bytes(summary))

    def read_summary(self) -> Summary | None:
        path = self.path / "summary.json"
        return read_summary(path) if check_file(path) else None


def refuse_deployed(folder: Path) -> None:
    """Raise InputError if the run is that of a deployment, which resumes over its nodes alone."""
    if os.path.lexists(folder / NODES):
        raise InputError(
            f"{folder} holds the run of a deployment, whose clients' states are on its nodes: continue with refprotofl "
            "deploy run and the same --out."
        )


def is_longer(stored: Experiment, experiment: Experiment) -> bool:
    """Return whether the resolved experiment is the stored one with more rounds."""
    alike = experiment.model_copy(update={"rounds": stored.rounds})
    return experiment.rounds > stored.rounds and alike.hash == stored.hash


def read_experiment(folder: Path) -> Experiment:
    """Return the experiment of a run folder."""
    try:
        return read_experiment_file(folder / "experiment.json")
    except OSError:
        raise InputError(f"{folder} is not a run folder: it has no experiment.json.") from None


def read_experiment_file(path: Path) -> Experiment:
    """Return the experiment in an experiment.json or a copy of it; raise OSError if there is no such file."""
    try:
        plain = read_json(path)
    except (ValueError, RecursionError):
        raise DataError(f"{path} is damaged: it is not valid JSON.") from None
    try:
        plain.pop(SEEN_FROM, None)
        stored = plain.pop("hash", None)
        experiment = Experiment.parse(plain)
        if experiment.hash == stored and experiment.input is not None:
            return experiment
    except (AttributeError, TypeError, InputError):
        pass  # it is no longer an experiment
    raise DataError(f"{path} was changed after the run began: its hash does not match.")


def seen_from(folder: Path) -> Path | None:
    """Return the folder that the run was started in, if relative paths or user code depend on it; else None."""
    try:
        place = read_json(folder / "experiment.json").get(SEEN_FROM)
    except (DataError, OSError, ValueError, AttributeError):
        return None
    return Path(place) if isinstance(place, str) else None


def allow_code(named: Sequence[Reference], folder: Path, *, trusted: bool) -> None:
    """Raise InputError for user code that is not declared trusted; other code may also be where the run was started."""
    refuse_code(named, folder, trusted=trusted)
    if named:
        search_code_in(seen_from(folder))
