"""A run's numbers as trackers have them."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from refprotofl.core.errors import InputError
from refprotofl.report.export_log import Scalars, export_log
from refprotofl.report.trackers import Tracker


@pytest.fixture
def finished(brief_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(brief_run, tmp_path / "run"))


def numbers(path: Path) -> dict[tuple[str, int], float]:
    with path.open() as file:
        return {(row["name"], int(row["round"])): float(row["value"]) for row in csv.DictReader(file)}


def test_csv_ends_in_the_summary(finished: Path, tmp_path: Path) -> None:
    written = export_log(finished, Tracker.csv, tmp_path / "log.csv")
    found, summary = numbers(tmp_path / "log.csv"), json.loads((finished / "summary.json").read_text())
    assert len(found) == written
    assert found["accuracy/personal", 3] == summary["accuracy"]["personal"]
    assert found["bytes/up", 3] == summary["communication"]["uplink"]["payload_bytes"]
    assert found["bytes/down", 3] == summary["communication"]["downlink"]["payload_bytes"]
    assert found["bytes/one_off", 1] == summary["communication"]["one_off"]["payload_bytes"]
    assert 0 < found["masks/share-head", 2] < 1


def test_following_writes_what_comes_until_the_end(finished: Path, tmp_path: Path) -> None:
    path = finished / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    rest = [lines[3], b"".join(lines[4:-1]), lines[-1]]

    def more(_: float) -> None:
        with path.open("ab") as file:
            file.write(rest.pop(0))

    followed = export_log(finished, Tracker.csv, tmp_path / "followed.csv", follow=True, wait=more)
    assert rest == []
    assert followed == export_log(finished, Tracker.csv, tmp_path / "after.csv")
    assert (tmp_path / "followed.csv").read_bytes() == (tmp_path / "after.csv").read_bytes()


def test_tensorboard_has_the_same_numbers(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    export_log(finished, Tracker.csv, tmp_path / "log.csv")
    export_log(finished, Tracker.tensorboard, tmp_path / "board")
    (file,) = (tmp_path / "board").iterdir()
    data = file.read_bytes()
    found: dict[tuple[str, int], float] = {}
    while data:  # length, its checksum, the event, its checksum
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        found |= {
            (one.tag, event.step): one.simple_value for one in event.summary.value if one.HasField("simple_value")
        }
        data = data[16 + size :]
    assert found == pytest.approx(numbers(tmp_path / "log.csv"), rel=1e-6)


def test_mlflow_has_the_same_numbers_and_the_settings(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    export_log(finished, Tracker.csv, tmp_path / "log.csv")
    export_log(finished, Tracker.mlflow, tmp_path / "store")
    client = MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    experiment = client.get_experiment_by_name("refprotofl")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["train.lr"] == "0.01"
    history = client.get_metric_history(found.info.run_id, "accuracy/personal")
    wanted = numbers(tmp_path / "log.csv")
    assert {one.step: one.value for one in history} == {
        step: value for (name, step), value in wanted.items() if name == "accuracy/personal"
    }


def test_dropped_clients_are_counted() -> None:
    scalars = Scalars()
    assert list(scalars.of({"event": "client-failed", "round": 2, "client": 7})) == []
    found = dict((name, value) for name, _, value in scalars.of({"event": "round", "round": 2}))
    assert found["clients/dropped"] == 1
    assert dict((name, value) for name, _, value in scalars.of({"event": "round", "round": 3}))["clients/dropped"] == 0


def test_what_is_no_run_is_an_error_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run folder"):
        export_log(tmp_path, Tracker.csv, tmp_path / "log.csv")
