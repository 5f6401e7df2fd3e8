"""What a run's server ended up with, from the checkpoint of a run folder."""

from dataclasses import dataclass
from pathlib import Path

from refprotofl.basics.state import State
from refprotofl.data import FederatedData
from refprotofl.errors import DataError
from refprotofl.experiment import Experiment
from refprotofl.experiment.references import references, refuse_code
from refprotofl.handover.trained import read_committed
from refprotofl.models import SplitModel
from refprotofl.records.folder import seen_from
from refprotofl.records.states import load_state
from refprotofl.simulation.assembly import load_federation, server_side
from refprotofl.simulation.origin import refuse_changed


@dataclass(frozen=True)
class Aggregated:
    model: SplitModel | None  # the one model of all, in evaluation mode; None if the method leaves clients their own
    experiment: Experiment
    state: State  # the server's
    data: FederatedData


def load_aggregated(run_folder: Path, data: Path | None = None, trust_code: bool = False) -> Aggregated:
    """The server after the run's last committed round; it is built from the run's data, which must be as they were.

    A folder may name code of its own, for the data too; it is only imported with `trust_code`.
    """
    experiment, manifest = read_committed(run_folder)
    refuse_code(references(experiment.plain()), run_folder, trusted=trust_code)
    refuse_changed(run_folder, experiment, data)
    federation = load_federation(experiment, data, seen_from=seen_from(run_folder))
    server, kept = server_side(federation).server, manifest["server"]
    state = load_state(run_folder / "checkpoint" / kept["file"], kept["digest"])
    try:
        server.restore(state)
        model = server.global_model()
    except (LookupError, RuntimeError, TypeError, ValueError, AttributeError) as problem:
        raise DataError(
            f"The server's state in {run_folder / 'checkpoint'} does not fit the experiment ({problem}); is it of "
            "another run?"
        ) from None
    return Aggregated(None if model is None else model.eval(), experiment, state, federation.data)
