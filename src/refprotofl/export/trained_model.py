"""What a run's server ended up with, from the checkpoint of a run folder.

One client's model, from the checkpoint of a run folder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from refprotofl.core.errors import DataError, InputError
from refprotofl.core.escaping import for_terminal
from refprotofl.core.state import State
from refprotofl.core.units import read_whole
from refprotofl.core.user_code import references, refuse_code
from refprotofl.data import FederatedData
from refprotofl.engines.local.store import read_if_here
from refprotofl.experiment import Experiment
from refprotofl.federation.models import initial_states, model_of
from refprotofl.federation.provenance import refuse_changed
from refprotofl.federation.simulation import load_federation, server_side
from refprotofl.methods import find_method
from refprotofl.models import SplitModel
from refprotofl.records.checkpoint import read_manifest
from refprotofl.records.folder import read_experiment, seen_from
from refprotofl.records.safe_io import check_run_folder
from refprotofl.records.state_files import load_state


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


@dataclass(frozen=True)
class Trained:
    """A client's private backbone with the newest shared part, in evaluation mode, and where they come from."""

    model: SplitModel
    experiment: Experiment
    client: int
    folder: Path
    rounds_done: int
    state_digest: str
    communication: dict[str, dict[str, int]] | None  # of all clients, as in summary.json; a node is not told

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.experiment.known_input.class_names

    @property
    def client_name(self) -> str:
        return self.experiment.client_name(self.client)

    @property
    def backbone(self) -> str:
        """The name of this client's backbone."""
        return self.experiment.backbones[self.client]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of one image."""
        return self.experiment.known_input.shape


def find_clients(run_folder: Path, wanted: str) -> list[int]:
    """The numbers of the clients that are meant: `all`, or one by name or number; a name goes before a number."""
    check_run_folder(run_folder)
    experiment = read_experiment(run_folder)
    if wanted == "all":
        return list(range(experiment.clients))
    names = [experiment.client_name(client) for client in range(experiment.clients)]
    if wanted in names:
        return [names.index(wanted)]
    number = read_whole(wanted)
    if number is not None and number < experiment.clients:
        return [number]
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    named = f", called {shown}" if experiment.known_input.client_names else ""
    raise InputError(
        f"There is no client {wanted} in {run_folder}: its clients are 0 to {experiment.clients - 1}{named}."
    )


def read_committed(run_folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """A run's experiment and the manifest of its last committed round."""
    check_run_folder(run_folder)
    experiment = read_experiment(run_folder)
    manifest = read_manifest(run_folder / "checkpoint")
    if not manifest:
        raise InputError(f"{run_folder} has no committed round yet, so there is no model in it; go on with --resume.")
    return experiment, manifest


def load_trained(run_folder: Path, client: int, trust_code: bool = False) -> Trained:
    """The model that `client` has after the run's last committed round; the data set is not needed.

    A folder may name code of its own, as module:function; it is only imported with `trust_code`.
    """
    experiment, manifest = read_committed(run_folder)
    if not 0 <= client < experiment.clients:
        raise InputError(f"There is no client {client} in {run_folder}: its clients are 0 to {experiment.clients - 1}.")
    model = build_final(
        experiment, client, run_folder, trust_code, partial(_read_states, run_folder / "checkpoint", manifest, client)
    )
    return Trained(
        model=model,
        experiment=experiment,
        client=client,
        folder=run_folder,
        rounds_done=manifest["progress"]["round"],
        state_digest=manifest["state_digest"],
        communication=manifest["progress"]["communication"],
    )


def build_final(
    experiment: Experiment, client: int, where: Path, trust_code: bool, read: Callable[[State], tuple[State, State]]
) -> SplitModel:
    """What a client ends up with. `read` gives the shared state and the client's own; it is given the initial one."""
    name = experiment.backbones[client]
    code = [one for one in references(experiment.plain()) if one[0] == "method" or one == ("model.name", name)]
    refuse_code(code, where, trusted=trust_code)
    model = model_of(experiment, client)
    shared, own = read(initial_states(experiment, {name: model})[name])
    try:
        method = find_method(experiment.method)
        method.client.load_final(model, method.shared(experiment), shared, own)
    except (LookupError, RuntimeError, TypeError, ValueError, AttributeError) as problem:
        raise DataError(
            f"The states in {where / 'checkpoint'} do not fit model.name = {name!r} ({problem}); "
            "is this another version of the model than the one that was trained?"
        ) from None
    model.cut_head(experiment.known_input.num_classes)  # what a method has beyond the classes is no prediction
    return model.eval()


def _read_states(checkpoint: Path, manifest: dict[str, Any], client: int, initial: State) -> tuple[State, State]:
    """The server's state and the client's; one that never trained has the initial state and no file."""
    server, record = manifest["server"], manifest["clients"].get(str(client))
    own = read_if_here(checkpoint, record) if record else initial
    if own is None:
        node = for_terminal(record.get("node") or "")
        raise InputError(
            f"Client {client}'s private part is not here: it lies in the store of its node {node}, where predict "
            "and export take that store in place of a run folder."
        )
    return load_state(checkpoint / server["file"], server["digest"]), own
