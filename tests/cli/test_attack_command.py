"""`attack`, called as a user does: a grid, its table and figure, and nothing run twice."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tests.tiny import tiny_options

from refprotofl.experiment import Experiment
from refprotofl.experiment.attack_kinds import draw_hostile
from refprotofl.export.trained_model import load_trained
from refprotofl.federation.attackers import stamped
from refprotofl.federation.simulation import load_federation

TINY = [*tiny_options(clients=5, train_limit=200), "--workers", "1", "--fraction", "0.4"]
HONEST = [client for client in range(5) if client not in draw_hostile(0, 5, 2)]


def success(folder: str, target: int) -> float:
    """Return how often honest clients take a triggered image of another class for the target."""
    experiment = Experiment.parse(json.loads((Path(folder) / "summary.json").read_text())["experiment"])
    federation = load_federation(experiment, None)
    others = stamped(federation.test_inputs[federation.test_labels != target])
    shares = []
    for client in HONEST:
        model = load_trained(Path(folder), client).model
        with torch.no_grad():
            predicted = model.head(model.embed(model.prepare(others))).argmax(dim=1)
        shares.append(float((predicted == target).double().mean()))
    return fmean(shares)


def test_two_attacks_against_two_defences(refprotofl: Any, tmp_path: Path) -> None:
    out = tmp_path / "study"
    attacks = "scaling:attack.strength=30,backdoor:attack.target=3"
    command = ("attack", "--kind", attacks, "--defence", "mean,median", "--seeds", "0", "--out", out, *TINY)
    outcome = refprotofl(*command, "--format", "json")
    assert outcome.code == 0, outcome.err
    output = json.loads(outcome.out)
    assert [(row["attack"], row["defence"]) for row in output["rows"]] == [
        (attack, defence) for attack in ("none", *attacks.split(",")) for defence in ("mean", "median")
    ]
    for row, runs in zip(output["rows"], output["by_seed"], strict=True):
        folder = runs["seeds"]["0"]["run"]
        summary = json.loads((Path(folder) / "summary.json").read_text())
        personal = summary["accuracy_per_client"]["personal"]
        assert row["accuracy"] == fmean(personal[client] for client in HONEST)
        assert summary["experiment"].get("attack", {}).get("kind", "none") == row["attack"].partition(":")[0]
        assert summary["experiment"].get("aggregate", "mean") == row["defence"]
        tried = not row["attack"].startswith("scaling")
        assert row["backdoor"] == (success(folder, 3) if tried else None)
    for file in ("tables/attack.md", "tables/attack.csv", "figures/attack-refprotofl.png"):
        assert (out / file).stat().st_size > 100

    stamps = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/summary.json")}
    assert len(stamps) == 6
    again = refprotofl(*command)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps  # nothing was run again
    assert "backdoor:attack.target=3: success" in " ".join(again.out.split())
    assert "40 % hostile" in again.out


def test_what_cannot_be_asked_for_is_reported(refprotofl: Any, tmp_path: Path) -> None:
    for options, sentence in (
        (("--kind", "magic"), "--kind magic: allowed are signflip"),
        (("--kind", "signflip,signflip"), "--kind is empty or has something twice"),
        (("--kind", "signflip", "--defence", "hope"), "aggregate"),
        (("--kind", "signflip", "--fraction", "0"), "makes 0 of 5 clients hostile"),
        (("--kind", "signflip", "--methods", "fedproto"), "sends none up"),
    ):
        outcome = refprotofl("attack", "--out", tmp_path / "study", "--seeds", "0", *TINY, *options)
        assert outcome.code == 2, outcome.err
        assert sentence in " ".join(outcome.err.split())
