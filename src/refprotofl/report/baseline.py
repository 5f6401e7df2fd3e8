"""What another method gives on the same data, to read a run's own number by: above all training alone."""

from pathlib import Path

from refprotofl.core.errors import RefProtoFLError
from refprotofl.experiment import Experiment
from refprotofl.federation.provenance import changed_since
from refprotofl.methods.catalogue import find_method
from refprotofl.records.safe_io import read_json
from refprotofl.records.summary import Summary, read_summary
from refprotofl.report.comparable import METHOD_KEYS


def baseline_of(experiment: Experiment, method: str) -> Experiment:
    """The same data, partition, model, training and evaluation under another method, as it comes."""
    find_method(method)
    kept = {name: value for name, value in experiment.plain().items() if name not in METHOD_KEYS}
    return Experiment.parse({**kept, "method": method})


def finished_run(place: Path, experiment: Experiment, data: Path | None = None) -> Summary | None:
    """The summary of a finished run of this very experiment, which is resolved, among the run folders in `place`.

    One whose data or code changed since is passed over.
    """
    for file in sorted(place.glob("*/experiment.json")):
        try:
            stored = read_json(file).get("hash")
            if stored == experiment.hash and not changed_since(file.parent, experiment, data):
                return read_summary(file.parent / "summary.json")
        except (OSError, ValueError, AttributeError, RefProtoFLError):
            continue  # somebody else's folder, an unfinished or a damaged one: there is nothing to read by
    return None
