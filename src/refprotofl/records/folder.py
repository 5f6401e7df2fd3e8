"""The run folder as a whole: who may write to it, what the run is, what happened."""

import json
from pathlib import Path
from typing import Any

import filelock

from refprotofl.errors import DataError, InputError
from refprotofl.experiment import Experiment, differences
from refprotofl.records.files import make_folder, write_error, write_whole


class RunFolder:
    """`experiment.json`, `events.jsonl`, `checkpoint/`, `summary.json`, and a lock that dies with its holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path / ".lock", blocking=False)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def open(self, experiment: Experiment, resume: bool) -> None:
        """Takes the folder for this experiment; refuses one that holds another run."""
        make_folder(self.path)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise InputError(f"Another process is running in {self.path}; wait for it or use another --out.") from None
        except OSError as problem:
            raise InputError(f"Cannot use {self.path} as the run folder: {problem.strerror}.") from None
        try:
            self._enter(experiment, resume)
        except BaseException:
            self.close()
            raise

    def _enter(self, experiment: Experiment, resume: bool) -> None:
        if (self.path / "experiment.json").exists():
            if not resume:
                raise InputError(f"{self.path} holds a run already; go on with --resume, or use another --out.")
            stored = read_experiment(self.path).plain()
            changed = differences(stored, experiment.plain())
            if changed:
                raise InputError(f"{self.path} holds a run of another experiment; it differs in {', '.join(changed)}.")
            return
        strangers = [entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")]
        if strangers:
            raise InputError(f"{self.path} is not empty and holds no run ({strangers[0]}, …); use another --out.")
        plain = {"hash": experiment.hash, **experiment.plain()}
        write_whole(self.path / "experiment.json", (json.dumps(plain, indent=2) + "\n").encode())

    def close(self) -> None:
        self._lock.release()

    def append(self, events: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(event) + "\n" for event in events)
        path = self.path / "events.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as problem:
            raise write_error(path, problem) from None

    def mend_events(self, committed: int, events: list[dict[str, Any]]) -> None:
        """After a crash: a torn last line goes, and what the last committed round had to tell is there once."""
        path = self.path / "events.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        kept = [line for line in whole.splitlines() if json.loads(line).get("round", 0) < max(committed, 1)]
        kept += [json.dumps(event) for event in events]
        write_whole(path, "".join(f"{line}\n" for line in kept).encode())

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_whole(self.path / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())

    def read_summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json"
        if not path.exists():
            return None
        try:
            summary: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError:
            raise DataError(f"{path} is damaged; delete it and run again with --resume.") from None
        return summary


def read_experiment(folder: Path) -> Experiment:
    """The experiment of a run folder."""
    path = folder / "experiment.json"
    try:
        plain = json.loads(path.read_bytes())
    except OSError:
        raise InputError(f"{folder} is not a run folder: it has no experiment.json.") from None
    except ValueError:
        raise DataError(f"{path} is damaged: it is not valid JSON.") from None
    stored = plain.pop("hash", None)
    experiment = Experiment.parse(plain)
    if experiment.hash != stored:
        raise DataError(f"{path} was changed after the run began: its hash does not match.")
    return experiment


def read_events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        raise InputError(f"{folder} is not a run folder: it has no events.jsonl.") from None
    except ValueError:
        raise DataError(f"{path} has a damaged line; a run that was cut off is mended by --resume.") from None
