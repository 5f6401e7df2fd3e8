"""A metric that is only declared appears in messages, events, summary, comparisons, the page and trackers."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import tiny_experiment

from refprotofl.evaluation.metrics import METRICS, ScoredSamples, metric
from refprotofl.federation import run
from refprotofl.records.events import read_events
from refprotofl.report.comparison import tabulate
from refprotofl.report.export_log import export_log
from refprotofl.report.formats import as_csv, as_json, as_markdown
from refprotofl.report.page.collect import gather
from refprotofl.report.page.elements import Table
from refprotofl.report.trackers import Tracker
from refprotofl.studies.results import result_of
from refprotofl.studies.trials import Trial


@pytest.fixture
def added() -> Iterator[None]:
    """One metric of the confusion matrix, and one that needs logits and is no share."""

    @metric("missed classes")
    def missed_classes(samples: ScoredSamples) -> float:
        return float((samples.confusion.sum(axis=0) == 0).mean())

    @metric("mean logit", needs_logits=True, low=-1e9, high=1e9)
    def mean_logit(samples: ScoredSamples) -> float | None:
        return None if samples.logits is None else float(np.mean(samples.logits))

    yield
    del METRICS["missed_classes"], METRICS["mean_logit"]


@pytest.mark.usefixtures("added")
def test_a_declared_metric_is_carried_everywhere(tmp_path: Path) -> None:
    experiment, folder = tiny_experiment(method="fedavg", share="full"), tmp_path / "run"
    run(experiment, out=folder, workers=1)
    result = result_of(folder, experiment)
    names = {"accuracy", "balanced_accuracy", "macro_f1", "loss", "missed_classes", "mean_logit"}
    expected = result["summary"]["metrics"]
    assert set(expected["personal"]) == set(expected["global"]) == names
    assert [one["metrics"] for one in read_events(folder) if one["event"] == "evaluation"][-1] == expected

    rows = tabulate([(Trial("fedavg", experiment, folder), result)])
    (row,) = json.loads(as_json(rows))
    assert row["metrics"]["personal"]["mean_logit"]["mean"] == expected["personal"]["mean_logit"]
    assert float(next(csv.DictReader(as_csv(rows).splitlines()))["global_mean_logit"]) == pytest.approx(
        expected["global"]["mean_logit"]
    )
    assert "missed classes" in as_markdown(rows, "")

    page = gather([folder])
    headings = [
        part.headings
        for section in page.sections
        for part in section.parts
        if isinstance(part, Table) and part.title == "Evaluation protocols"
    ]
    titles = ("accuracy", "balanced accuracy", "macro-F1", "cross-entropy", "missed classes", "mean logit")
    assert headings == [("protocol", "definition", *titles)]
    export_log(folder, Tracker.csv, tmp_path / "log.csv")
    with (tmp_path / "log.csv").open() as file:
        logged = {(one["name"], int(one["round"])): float(one["value"]) for one in csv.DictReader(file)}
    assert logged["mean_logit/personal", 2] == expected["personal"]["mean_logit"]
