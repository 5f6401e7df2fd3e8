"""The display of a run in progress."""

import io
from pathlib import Path

from rich.console import Console

from refprotofl.cli.progress import ProgressCallback
from refprotofl.core.units import size
from refprotofl.experiment import Experiment
from refprotofl.federation import run

FAST = {
    "method": "fast",
    "train-limit": 150,
    "clients": 3,
    "rounds": 2,
    "min-size": 10,
    "public": {"per-class": 2},
    "model": {"name": "mlp", "embedding": 8},
    "evaluate": {"every": 2, "test-limit": 20},
}


def test_what_is_sent_once_or_to_be_scored_is_no_uplink(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    callback = ProgressCallback(console)
    summary = run(Experiment.parse(FAST), out=tmp_path / "run", callback=callback).summary
    callback.on_close()
    sent = summary["communication"]["uplink"]["payload_bytes"]
    assert f"{size(sent)} so far" in console.file.getvalue()  # type: ignore[attr-defined]
    untrained = sum(summary["communication"][bucket]["payload_bytes"] for bucket in ("one_off", "evaluation"))
    assert size(sent + untrained) != size(sent)
