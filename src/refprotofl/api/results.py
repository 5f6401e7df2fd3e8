"""A finished run: its numbers, its models, and its view in a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refprotofl.api.frames import as_curve, as_frame, as_html
from refprotofl.api.words import python_words
from refprotofl.core import InputError, percent, size
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult as FinishedRun
from refprotofl.records import check_run_folder, read_events, read_experiment, read_summary

if TYPE_CHECKING:
    import pandas

    from refprotofl.export import Predictions
    from refprotofl.models import SplitModel


@dataclass(frozen=True)
class RunResult(FinishedRun):
    """A finished run: `summary` as in summary.json, the `folder` of the run, and whether it was `reused`.

    >>> result = run(Experiment.preset("quick", rounds=2), out="runs/a")
    >>> result.accuracy["personal"], result.bytes["total"]
    >>> result.to_frame()
    """

    trusted: bool = False  # the code that the folder names may be imported

    @property
    def experiment(self) -> Experiment:
        """The experiment, with what was filled in from its data."""
        return Experiment.parse(self.summary["experiment"])

    @property
    def accuracy(self) -> dict[str, float | None]:
        """The accuracy after the last round by protocol; None where the method has none."""
        return dict(self.summary["accuracy"])

    @property
    def bytes(self) -> dict[str, int]:
        """The bytes of all clients and rounds: `uplink`, `downlink`, `one_off`, and their `total`."""
        sent = self.summary["communication"]
        one_off = sent["one_off"]["payload_bytes"]
        up, down = sent["uplink"]["payload_bytes"], sent["downlink"]["payload_bytes"]
        return {"uplink": up, "downlink": down, "one_off": one_off, "total": up + down + one_off}

    @property
    def digest(self) -> str:
        """The digest of all final states: equal for equal experiments."""
        return self.summary["state_digest"]

    @property
    def history(self) -> list[dict[str, Any]]:
        """The evaluations in the order of rounds: round, accuracy by protocol, bytes and seconds until then."""
        from refprotofl.studies.results import curve_of

        return [
            {"round": one["round"], **one["accuracy"], "bytes": one["bytes"], "seconds": one.get("seconds")}
            for one in curve_of(read_events(self.folder))
        ]

    @python_words
    def to_frame(self) -> "pandas.DataFrame":
        """Return the history as a data frame (needs pandas), a row for each evaluation."""
        return as_frame(self.history)

    @python_words
    def model(self, client: int | str | None = None) -> "SplitModel":
        """Return the final model of a client, by number or name, as a torch module; without one, the common model.

        >>> result.model(3)(images)  # logits (N, classes)
        """
        from refprotofl.export import find_clients, load_trained
        from refprotofl.export.trained_model import load_aggregated

        if client is not None:
            return load_trained(self.folder, find_clients(self.folder, str(client))[0], self.trusted).model.eval()
        common = load_aggregated(self.folder, trust_code=self.trusted).model
        if common is None:
            raise InputError(f"{self.experiment.method} has no common model, only one of each client: name a client.")
        return common

    @python_words
    def predict(self, x: Any, client: int | str = 0) -> "Predictions":
        """Classify samples with the final model of a client, by number or name.

        `x` is an array (N, …), a file or folder of samples, or the name of a data set, whose test split is taken.

        >>> made = result.predict(images, client=3)
        >>> made.predicted, made.probabilities, made.accuracy
        """
        import numpy as np

        from refprotofl.export import find_clients, load_trained, predict

        trained = load_trained(self.folder, find_clients(self.folder, str(client))[0], self.trusted)
        return predict(trained, x if isinstance(x, str | Path) else np.asarray(x))

    def report(self, path: Path | str | None = None) -> Path:
        """Write the report page of the run, by default into its folder, and return its path."""
        from refprotofl.api.reporting import report

        return report(self.folder, out=path, trust_code=self.trusted)

    def _repr_html_(self) -> str:
        experiment = self.experiment
        title = (
            f"{experiment.method} on {experiment.dataset}, seed {experiment.seed}, {self.summary['rounds_done']} rounds"
        )
        rows = [("accuracy", name, percent(value)) for name, value in self.accuracy.items() if value is not None]
        rows += [("bytes", name.replace("_", "-"), size(sent)) for name, sent in self.bytes.items()]
        known = [(one["round"], one["personal"]) for one in self.history if one["personal"] is not None]
        table = as_html(title, ("", "", ""), rows, [f"Run folder: {self.folder}"])
        return table + as_curve(known, "personal accuracy")


@python_words
def load(folder: Path | str, *, trust_code: bool = False) -> RunResult:
    """Return the finished run in a folder.

    A folder may name user code, as module:function: `trust_code` allows `model` and `predict` to import it.

    >>> load("runs/a").accuracy["personal"]
    """
    path = Path(folder).expanduser()
    check_run_folder(path)
    if not (path / "summary.json").exists():
        rounds = read_experiment(path).rounds
        raise InputError(f"The run in {path} is not finished: continue it with --resume, to {rounds} rounds.")
    return RunResult(read_summary(path / "summary.json"), path, reused=True, trusted=trust_code)


def loaded(folders: Sequence[Path | str], trusted: bool = True) -> list[RunResult]:
    """Return the finished runs of a study, whose code the user has just named."""
    return [load(folder, trust_code=trusted) for folder in folders]
