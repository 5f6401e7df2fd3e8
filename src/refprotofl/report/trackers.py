"""Writers of a run's numbers to TensorBoard, MLflow or a CSV file, each by its name. Nothing here needs torch."""

import csv
import math
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from refprotofl.core import InputError, MachineError, for_csv, for_terminal
from refprotofl.records.atomic_files import write_error

Scalar = tuple[str, int, float]  # name, round, value


class Tracker(StrEnum):
    """The trackers by name; a package that one needs is the extra of that name."""

    tensorboard = "tensorboard"
    mlflow = "mlflow"
    csv = "csv"


_NAME = re.compile(r"[^\w/. -]+", re.ASCII)  # not allowed in names by MLflow
_LONGEST = 250  # characters of a setting's value


class Writer(Protocol):
    def __init__(self, out: Path, name: str, settings: Mapping[str, object]) -> None: ...

    def write(self, scalar: Scalar) -> None: ...

    def flush(self) -> None: ...

    def close(self, finished: bool) -> None: ...


class _Csv:
    """One line per number: name, round, value."""

    def __init__(self, out: Path, name: str, settings: Mapping[str, object]) -> None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            self._file = out.open("w", newline="", encoding="utf-8")
        except OSError as problem:
            raise InputError(f"Cannot write {out}: {problem.strerror}.") from None
        self._path = out
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._rows.writerow(("name", "round", "value"))

    def write(self, scalar: Scalar) -> None:
        try:
            self._rows.writerow([for_csv(cell) for cell in scalar])
        except OSError as problem:
            raise write_error(self._path, problem) from None

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as problem:
            raise write_error(self._path, problem) from None

    def close(self, finished: bool) -> None:
        self._file.close()


class _TensorBoard:
    def __init__(self, out: Path, name: str, settings: Mapping[str, object]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise _missing("tensorboard", "tensorboardX") from None
        self._writer = SummaryWriter(str(out))
        lines = "\n".join(f"    {for_terminal(key)} = {for_terminal(value)}" for key, value in settings.items())
        self._writer.add_text("experiment", lines)

    def write(self, scalar: Scalar) -> None:
        name, number, value = scalar
        if math.isfinite(value):
            self._writer.add_scalar(_plain(name), value, number)

    def flush(self) -> None:
        self._writer.flush()

    def close(self, finished: bool) -> None:
        self._writer.close()


class _MLflow:
    """One run of the experiment `refprotofl`, in a local store or at MLFLOW_TRACKING_URI."""

    def __init__(self, out: Path, name: str, settings: Mapping[str, object]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("DO_NOT_TRACK", "true")
        try:
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise _missing("mlflow", "mlflow-skinny") from None
        address = os.environ.get("MLFLOW_TRACKING_URI") or _local_store(out)
        self._failed: type[Exception] = MlflowException
        try:
            self._client: Any = MlflowClient(tracking_uri=address)
            known = self._client.get_experiment_by_name("refprotofl")
            experiment = known.experiment_id if known else self._client.create_experiment("refprotofl")
            self._run = self._client.create_run(experiment, run_name=_plain(name)[:_LONGEST]).info.run_id
            for key, value in settings.items():
                self._client.log_param(self._run, _plain(key)[:_LONGEST], for_terminal(value)[:_LONGEST])
        except self._failed as problem:
            raise MachineError(f"MLflow at {for_terminal(address)} rejected the run: {_first(problem)}") from None

    def write(self, scalar: Scalar) -> None:
        name, number, value = scalar
        if math.isfinite(value):
            try:
                self._client.log_metric(self._run, _plain(name), value, step=number)
            except self._failed as problem:
                raise MachineError(f"MLflow rejected a number: {_first(problem)}") from None

    def flush(self) -> None:
        """Do nothing: every number is stored when it is written."""

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if finished else "RUNNING")


def _local_store(out: Path) -> str:
    """Return the address of a file store, the only one that mlflow-skinny has without a server."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    out.mkdir(parents=True, exist_ok=True)
    return out.absolute().as_uri()


def _plain(name: str) -> str:
    return _NAME.sub("-", name)


def _first(problem: Exception) -> str:
    return for_terminal(str(problem).partition("\n")[0][:200])


def _missing(extra: str, package: str) -> InputError:
    return InputError(f"--to {extra} needs {package}: pip install 'refprotofl[{extra}]'.")


WRITERS: dict[Tracker, type[Writer]] = {Tracker.tensorboard: _TensorBoard, Tracker.mlflow: _MLflow, Tracker.csv: _Csv}
