"""The run folder as a whole: who may write to it, what the run is, what happened."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import filelock

from refprotofl.errors import DataError, InputError
from refprotofl.experiment import Experiment, differences
from refprotofl.records.files import make_folders, remove_empty, remove_parts, write_error, write_whole
from refprotofl.records.summary import Summary, read_summary


class RunFolder:
    """`experiment.json`, `events.jsonl`, `checkpoint/`, `summary.json`, and a lock that dies with its holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path / ".lock", blocking=False)
        self._made: list[Path] = []  # folders that were not there before

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def open(self, resume: bool) -> Experiment | None:
        """Takes the folder for this process and gives the experiment of the run in it, if there is one."""
        self._made = make_folders(self.path)
        self._refuse_foreign()
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise InputError(f"Another process is running in {self.path}; wait for it or use another --out.") from None
        except OSError as problem:
            raise InputError(f"Cannot use {self.path} as the run folder: {problem.strerror}.") from None
        if not self._holds_run:
            return None
        if not resume:
            raise InputError(f"{self.path} holds a run already; go on with --resume, or use another --out.")
        return read_experiment(self.path)

    @property
    def _holds_run(self) -> bool:
        return (self.path / "experiment.json").exists()

    def _refuse_foreign(self) -> None:
        """Before anything is put into it, the lock too."""
        names = [entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")]
        if names and "experiment.json" not in names:
            raise InputError(f"{self.path} is not empty and holds no run ({names[0]}, …); use another --out.")

    def refuse_other(self, stored: Experiment, experiment: Experiment) -> None:
        """Refuses to go on with an experiment that is not the stored one; both are resolved."""
        changed = differences(stored.plain(), experiment.plain())
        if changed:
            raise InputError(f"{self.path} holds a run of another experiment; it differs in {', '.join(changed)}.")

    def take(self, experiment: Experiment) -> None:
        """From now on the folder holds a run of this experiment, which is resolved."""
        remove_parts(self.path)
        if self._holds_run:
            self.refuse_other(read_experiment(self.path), experiment)
            return
        plain = {"hash": experiment.hash, **experiment.plain()}
        write_whole(self.path / "experiment.json", (json.dumps(plain, indent=2) + "\n").encode())

    def close(self) -> None:
        """A folder in which no run has begun is left as it was found."""
        try:
            if self._lock.is_locked and not self._holds_run:
                with suppress(OSError):  # not every system lets it go while it is held
                    (self.path / ".lock").unlink()
        finally:
            self._lock.release()
        if not self._holds_run:
            remove_empty(self._made)

    def append(self, events: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(event) + "\n" for event in events)
        path = self.path / "events.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            raise write_error(path, problem) from None

    def mend_events(self, committed: int, events: list[dict[str, Any]]) -> None:
        """After a crash: a torn last line goes, and what the last committed round had to tell is there once."""
        path = self.path / "events.jsonl"
        data = path.read_bytes() if path.exists() else b""
        try:
            told = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
            kept = [event for event in told if event.get("round", 0) <= committed and event["event"] != "end"]
        except (ValueError, AttributeError, KeyError, RecursionError):
            raise DataError(f"{path} has a damaged line before its last one; remove that line to go on.") from None
        if events and events[-1] not in kept:
            kept = [event for event in kept if event.get("round", 0) < committed] + events
        write_whole(path, "".join(f"{json.dumps(event)}\n" for event in kept).encode())

    def write_summary(self, summary: Summary) -> None:
        write_whole(self.path / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())

    def read_summary(self) -> Summary | None:
        path = self.path / "summary.json"
        return read_summary(path) if path.exists() else None


def read_experiment(folder: Path) -> Experiment:
    """The experiment of a run folder."""
    path = folder / "experiment.json"
    try:
        plain = json.loads(path.read_bytes())
    except OSError:
        raise InputError(f"{folder} is not a run folder: it has no experiment.json.") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path} is damaged: it is not valid JSON.") from None
    try:
        stored = plain.pop("hash", None)
        experiment = Experiment.parse(plain)
        if experiment.hash == stored:
            return experiment
    except (AttributeError, TypeError, InputError):
        pass  # it is not even an experiment any more
    raise DataError(f"{path} was changed after the run began: its hash does not match.")


def read_events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        raise InputError(f"{folder} is not a run folder: it has no events.jsonl.") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path} has a damaged line; a run that was cut off is mended by --resume.") from None
