"""Export of a run's events to TensorBoard, MLflow or a CSV file, after the run or during it."""

import csv
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from refprotofl.core import InputError, MachineError, for_csv, for_terminal
from refprotofl.records.atomic_files import write_error
from refprotofl.records.events import Event
from refprotofl.report.page.collect import is_run
from refprotofl.report.page.run_page import flat
from refprotofl.report.page.run_reader import RunReader

Scalar = tuple[str, int, float]  # name, round, value


class Scalars:
    """Turns events into named numbers per round; bytes are cumulative."""

    def __init__(self) -> None:
        self._sent = {"up": 0, "down": 0, "one_off": 0}
        self._dropped = 0  # in the current round

    def of(self, event: Event) -> Iterator[Scalar]:
        number = int(event.get("round", 0))
        if event["event"] == "evaluation":
            for protocol, share in event["accuracy"].items():
                if share is not None:
                    yield f"accuracy/{protocol}", number, share
            for protocol, metrics in event.get("metrics", {}).items():
                yield from ((f"{name}/{protocol}", number, one) for name, one in metrics.items() if name != "accuracy")
        elif event["event"] == "round":
            yield from self._round(number, event)
        elif event["event"] == "client-failed":
            self._dropped += 1

    def _round(self, number: int, event: Event) -> Iterator[Scalar]:
        for row in event.get("traffic", ()):
            if row["purpose"] != "evaluation":
                self._sent[row["direction"] if row["purpose"] == "training" else "one_off"] += row["payload_bytes"]
        for way, total in self._sent.items():
            yield f"bytes/{way}", number, float(total)
        yield "clients/participants", number, float(len(event.get("participants", [])))
        yield "clients/dropped", number, float(self._dropped)
        self._dropped = 0
        if "seconds" in event:
            yield "seconds/round", number, event["seconds"]
        for name, seconds in event.get("spent", {}).items():
            yield f"seconds/{name}", number, seconds
        masks = event.get("masks")
        if masks is not None:
            if masks["overlap"] is not None:
                yield "masks/overlap", number, masks["overlap"]
            sent = sum(part["sent"] for part in masks["parts"].values()) or 1
            for name, part in masks["parts"].items():
                yield f"masks/share-{name}", number, part["sent"] / sent


Tracker = Literal["tensorboard", "mlflow", "csv"]

_NAME = re.compile(r"[^\w/. -]+", re.ASCII)  # not allowed in names by MLflow
_LONGEST = 250  # characters of a setting's value


class Writer(Protocol):
    def __init__(self, out: Path, name: str, settings: Mapping[str, object]) -> None: ...

    def write(self, scalar: Scalar) -> None: ...

    def flush(self) -> None: ...

    def close(self, finished: bool) -> None: ...


def open_writer(to: Tracker, out: Path, name: str, settings: Mapping[str, object]) -> Writer:
    """Open a writer. `out`: a folder, or the CSV file; `settings`: the experiment's, by dotted key."""
    kinds: dict[Tracker, type[Writer]] = {"tensorboard": _TensorBoard, "mlflow": _MLflow, "csv": _Csv}
    return kinds[to](out, name, settings)


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


POLL = 1.0


def export_log(
    run_folder: Path, to: Tracker, out: Path, follow: bool = False, wait: Callable[[float], object] = time.sleep
) -> int:
    """Write a run's numbers and return their count; with `follow`, until the run has ended."""
    if not is_run(run_folder):
        raise InputError(f"{run_folder} is not a run folder: it has no experiment.json.")
    reader, scalars, written = RunReader(run_folder), Scalars(), 0
    writer = open_writer(to, out, run_folder.absolute().name, flat(reader.run.experiment.plain()))
    try:
        while True:
            for _, event in reader.read():
                for scalar in scalars.of(event):
                    writer.write(scalar)
                    written += 1
            writer.flush()
            if not follow or reader.run.ended:
                return written
            wait(POLL)
    finally:
        writer.close(reader.run.ended)
