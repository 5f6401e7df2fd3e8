"""`report`, `watch`, `export-log`, and what `run` and `compare` write of themselves."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.cli.conftest import Command


def test_a_report_is_written_into_the_run_folder_and_says_where(refprotofl: Command, finished_copy: Path) -> None:
    outcome = refprotofl("report", finished_copy)
    assert outcome.code == 0
    assert f"Report: {finished_copy}/report.html" in outcome.out
    assert (finished_copy / "report.html").read_text().startswith("<!doctype html>")
    assert refprotofl("verify", finished_copy).code == 0  # it does not disturb the run


def test_figures_and_links_come_with_it(refprotofl: Command, finished_copy: Path, tmp_path: Path) -> None:
    links = ("--link", "lte", "--link", "wifi;1:up=1kbit/s,down=2kbit/s,latency=1s")
    page, figures = tmp_path / "a" / "page.html", tmp_path / "figures"
    outcome = refprotofl("report", finished_copy, "--out", page, "--figures", figures, *links)
    assert outcome.code == 0, outcome.err
    drawn = {path.name for path in figures.iterdir()}
    assert {"accuracy-by-round.png", "accuracy-by-round.pdf", "accuracy-over-link-2.svg"} <= drawn
    assert "Accuracy over link time: lte" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("report", "nowhere"), "Path not found: nowhere"),
        (("report", "."), "is not a run folder and contains none"),
        (("report", "{run}", "--out", "page.pdf"), "the report is an HTML page"),
        (("report", "{run}", "--link", "pigeon"), "--link pigeon: allowed: wifi, lte, nb-iot, lora"),
        (("watch", "nowhere"), "Path not found: nowhere"),
        (("watch", "{run}", "--host", "no.such.host.invalid"), "Cannot listen at no.such.host.invalid"),
        (("export-log", ".", "--to", "csv"), "is not a run folder"),
    ],
)
def test_what_is_wrong_is_an_error_message(
    refprotofl: Command, finished_copy: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    outcome = refprotofl(*(one.format(run=finished_copy) for one in arguments))
    assert outcome.code == 2
    assert sentence in outcome.err.replace("\n", " ")


def test_a_tracker_that_is_not_installed_is_an_error_message(
    refprotofl: Command, finished_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorboardX", "mlflow", "mlflow.exceptions", "mlflow.tracking"):
        monkeypatch.setitem(sys.modules, name, None)
    for to in ("tensorboard", "mlflow"):
        outcome = refprotofl("export-log", finished_copy, "--to", to)
        assert outcome.code == 2
        assert f"pip install 'refprotofl[{to}]'" in outcome.err


def test_a_run_s_numbers_are_written_to_its_folder(refprotofl: Command, finished_copy: Path) -> None:
    outcome = refprotofl("export-log", finished_copy, "--to", "csv")
    assert outcome.code == 0
    assert (finished_copy / "log.csv").read_text().startswith("name,round,value\n")


def test_a_damaged_run_is_an_error_message(refprotofl: Command, finished_copy: Path) -> None:
    (finished_copy / "events.jsonl").write_text("\x1b[31mred\n")
    outcome = refprotofl("report", finished_copy)
    assert outcome.code == 3
    assert "line 1 is not a valid event" in outcome.err
    assert "\x1b" not in outcome.err


def test_run_reports_and_is_watched_where_that_is_asked_for(refprotofl: Command, tiny: Path, tmp_path: Path) -> None:
    outcome = refprotofl("run", tiny, "--workers", 1, "--out", tmp_path / "run", "--report", "--watch", "--json")
    assert outcome.code == 0, outcome.err
    assert "Live report: http://127.0.0.1:" in outcome.err
    assert f"Report: {tmp_path / 'run'}/report.html" in outcome.err
    assert json.loads(outcome.out)["rounds_done"] == 2
    assert (tmp_path / "run" / "report.html").stat().st_size < 3_000_000


def test_compare_reports_under_the_names_that_were_asked_for(refprotofl: Command, tiny: Path, tmp_path: Path) -> None:
    outcome = refprotofl(
        *("compare", tiny, "--methods", "fedavg:share=full,local", "--seeds", "0,1", "--workers", 1),
        *("--out", tmp_path / "grid"),
    )
    assert outcome.code == 0, outcome.err
    assert f"Report: {tmp_path / 'grid'}/report.html" in outcome.err
    page = (tmp_path / "grid" / "report.html").read_text()
    assert '"fedavg:share=full"' in page


def test_watch_serves_until_it_is_interrupted(finished_copy: Path) -> None:
    command = [sys.executable, "-c", "from refprotofl.cli import main; main()", "watch", str(finished_copy)]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert watching.stdout is not None
        address = watching.stdout.readline().removeprefix("Live report: ").strip()
        with urllib.request.urlopen(f"{address}page.json", timeout=30) as answer:
            assert json.load(answer)["progress"]["ended"] is True
        watching.send_signal(signal.SIGTERM)
        assert watching.wait(60) == 0
    finally:
        watching.kill()
        watching.communicate()
