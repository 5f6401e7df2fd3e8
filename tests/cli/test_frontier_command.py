"""`frontier`, called as a user does."""

import json
import shlex
from pathlib import Path
from typing import Any

TINY = [
    *("--preset", "quick", "--set", "train-limit=100", "--set", "clients=2", "--set", "model.embedding=8"),
    *("--set", "public.per-class=2", "--seeds", "7", "--workers", "1", "--schedules", "4x1,3x1", "--ends", "2"),
]
METHODS = "thin,fedavg:share=full,local"


def test_from_a_budget_to_the_run_of_the_winner(refprotofl: Any, tmp_path: Path) -> None:
    out = tmp_path / "frontier"
    command = ("frontier", "--methods", METHODS, "--budget", "1 MB", "--out", out, *TINY)
    first = refprotofl(*command)
    assert first.code == 0, first.err
    assert "5 candidates with 1 seed" in first.err
    record = json.loads((out / "frontier.json").read_text())
    by_name = {(one["method"], one["rounds"]): one for one in record["candidates"]}
    assert len(by_name) == 5
    assert by_name["fedavg:share=full", 4]["share"] > 1  # whole weights do not fit
    winner = record["winner"]
    assert winner["share"] <= 1
    assert winner["rounds_run"] == winner["rounds"]
    finished = [one for one in record["candidates"] if one["rounds_run"] == one["rounds"] and one["share"] <= 1]
    assert winner["accuracy"] == max(one["accuracy"] for one in finished)
    assert "Run the best: " + record["command"] in first.out.replace("\n", " ")
    assert (out / "report.html").exists()
    assert (out / "figures" / "frontier.png").exists()
    assert {path.suffix for path in (out / "tables").iterdir()} == {".md", ".tex", ".csv", ".json"}
    kept = [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()]
    assert {one["summary"]["experiment"]["validation"] for one in kept} == {0.1} == {record["experiment"]["validation"]}

    stamp = (out / "cells.jsonl").stat().st_mtime_ns
    again = refprotofl(*command, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out) == record
    assert (out / "cells.jsonl").stat().st_mtime_ns == stamp

    words = shlex.split(record["command"])[1:]
    assert refprotofl(*words, "--workers", 1, "--out", tmp_path / "run").code == 0


def test_what_is_allowed_is_said_in_one_way(refprotofl: Any, tmp_path: Path) -> None:
    for wrong, sentence in (
        ((), "Give one limit: --budget"),
        (("--budget", "1 MB", "--round-budget", "1 kB"), "Give one limit: --budget"),
        (("--link", "lte"), "--link and --deadline need each other"),
        (("--link", "lte", "--deadline", "nan"), "allowed are seconds"),
        (("--link", "wifi;3:lte", "--deadline", "9"), 'latency=50ms".'),
        (("--budget", "much"), "allowed are sizes such as"),
        (("--budget", "9" * 5000), "allowed are sizes such as"),
        (("--budget", "9" * 18 + " kB"), "allowed are sizes such as"),
        (("--budget", "1 MB", "--schedules", "6"), "rounds x epochs"),
        (("--budget", "1 MB", "--methods", "fedagv"), "did you mean 'fedavg'"),
    ):
        outcome = refprotofl("frontier", "--preset", "quick", "--out", tmp_path / "none", *wrong)
        assert outcome.code == 2
        assert sentence in outcome.err.replace("\n", " ")
    assert not (tmp_path / "none").exists()


def test_nothing_within_the_deadline_is_reported(refprotofl: Any, tmp_path: Path) -> None:
    link = "up=1kbit/s,down=1kbit/s,latency=0ms"
    limit = ("--link", link, "--deadline", "0.5")
    outcome = refprotofl("frontier", "--methods", "thin,fedavg", *limit, "--out", tmp_path / "frontier", *TINY)
    assert outcome.code == 0
    sentence = f"No candidate that ran all its rounds keeps within 0.5 s on {link}: raise the limit"
    assert sentence in outcome.err.replace("\n", " ")
    assert json.loads((tmp_path / "frontier" / "frontier.json").read_text())["command"] is None


def test_what_cannot_be_made_small_enough_fails_by_itself(refprotofl: Any, tmp_path: Path) -> None:
    """The bytes that a message may have are ours, not the user's: the others are searched all the same."""
    methods = "local,thin:thin.uplink-budget=fit:thin.downlink-budget=fit"
    outcome = refprotofl("frontier", "--methods", methods, "--budget", "1 kB", "--out", tmp_path / "frontier", *TINY)
    assert outcome.code == 0, outcome.err
    assert "bytes is too small" in outcome.err.replace("\n", " ")
    record = json.loads((tmp_path / "frontier" / "frontier.json").read_text())
    assert record["winner"]["name"] == "local"
    assert all("too small" in one["failed"] for one in record["candidates"] if one["name"] != "local")


def test_a_limit_that_no_message_fits_is_refused_before_anything_is_trained(refprotofl: Any, tmp_path: Path) -> None:
    outcome = refprotofl("frontier", "--budget", "10", "--out", tmp_path / "frontier", *TINY)
    assert outcome.code == 2
    assert "10 B in all is too small for any candidate" in outcome.err.replace("\n", " ")
    assert not (tmp_path / "frontier").exists()
