"""The command that most likely comes next, which a command prints at its end, on stderr."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.cli.output import notes, say

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment

EXPERIMENT = "experiment.json"


def show_next(words: Sequence[str]) -> None:
    """Print a command as it can be pasted into a shell."""
    say(f"Next: {shlex.join(words)}", notes)


def with_settings(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def comparison(
    experiment: "Experiment", file: Path | None, preset: str | None, settings: Sequence[str], folder: Path
) -> list[str]:
    """Return the command that compares a run's method with FedAvg and with training alone, on the same data."""
    methods = ",".join(dict.fromkeys([experiment.method, "fedavg", "local"]))
    named = [*([] if file is None else [str(file)]), *([] if preset is None else ["--preset", preset])]
    kept = [one for one in settings if one.partition("=")[0].strip() not in ("method", "seed")]
    words = ["refprotofl", "compare", *named, "--methods", methods, "--seeds", "0,1,2", *with_settings(kept)]
    return [*words, "--out", f"{folder}-compared"]


def prediction(place: Path) -> list[str] | None:
    """Return the command that predicts with a client of the run in a folder, or of the first run below it."""
    from refprotofl.records import read_experiment

    places = [place, *(sorted(place.iterdir()) if place.is_dir() else [])]
    folder = next((one for one in places if (one / EXPERIMENT).is_file()), None)
    if folder is None:
        return None
    experiment = read_experiment(folder)
    client = experiment.client_name(0)
    return ["refprotofl", "predict", str(folder), "--client", client, experiment.dataset, "--out", "labels.csv"]


def onnx_export(folder: Path, client: str) -> list[str]:
    out = folder.with_name(f"{folder.name}-onnx")
    return ["refprotofl", "export", str(folder), "--client", client, "--format", "onnx", "--out", str(out)]
