"""Trained models from the checkpoint of a run folder: one client's, and the server's aggregated one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from refprotofl.core import DataError, InputError, State, for_terminal, read_whole, references
from refprotofl.data import FederatedData
from refprotofl.engines import read_if_here
from refprotofl.experiment import Experiment
from refprotofl.federation import initial_states, load_federation, model_of, refuse_changed
from refprotofl.federation.simulation import server_side
from refprotofl.methods import find_method
from refprotofl.models import SplitModel
from refprotofl.records import allow_code, check_run_folder, load_state, read_experiment, read_manifest, seen_from


@dataclass(frozen=True)
class AggregatedModel:
    """The server of a finished run."""

    model: SplitModel | None  # the common model, in evaluation mode; None if the method has only clients' own
    experiment: Experiment
    state: State  # the server's
    data: FederatedData


def load_aggregated(run_folder: Path, data: Path | None = None, trust_code: bool = False) -> AggregatedModel:
    """Load the server after the run's last committed round; it is built from the run's data, which must be unchanged.

    A folder may name user code, also for the data; it is only imported with `trust_code`.
    """
    experiment, manifest = read_committed(run_folder)
    allow_code(references(experiment.plain()), run_folder, trusted=trust_code)
    refuse_changed(run_folder, experiment, data)
    federation = load_federation(experiment, data, seen_from=seen_from(run_folder))
    server, kept = server_side(federation).server, manifest["server"]
    state = load_state(run_folder / "checkpoint" / kept["file"], kept["digest"])
    try:
        server.restore(state)
        model = server.global_model()
    except (LookupError, RuntimeError, TypeError, ValueError, AttributeError) as problem:
        raise DataError(
            f"The server's state in {run_folder / 'checkpoint'} does not fit the experiment ({problem}). It may be of "
            "another run."
        ) from None
    return AggregatedModel(None if model is None else model.eval(), experiment, state, federation.data)


@dataclass(frozen=True)
class TrainedModel:
    """A client's private backbone with the newest shared part, in evaluation mode, and their origin."""

    model: SplitModel
    experiment: Experiment
    client: int
    folder: Path
    rounds_done: int
    state_digest: str
    communication: dict[str, dict[str, int]] | None  # of all clients, as in summary.json; unknown to a node

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.experiment.known_input.class_names

    @property
    def client_name(self) -> str:
        return self.experiment.client_name(self.client)

    @property
    def backbone(self) -> str:
        """Return the name of this client's backbone."""
        return self.experiment.backbones[self.client]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample."""
        return self.experiment.known_input.shape


def find_clients(run_folder: Path, wanted: str) -> list[int]:
    """Return the numbers of the wanted clients: `all`, or one by name or number, where a name comes first."""
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
        f"There is no client {wanted} in {run_folder}. Its clients are 0 to {experiment.clients - 1}{named}."
    )


def read_committed(run_folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """Read a run's experiment and the manifest of its last committed round."""
    check_run_folder(run_folder)
    experiment = read_experiment(run_folder)
    manifest = read_manifest(run_folder / "checkpoint")
    if not manifest:
        raise InputError(f"{run_folder} has no committed round, and so no model yet. Continue the run with --resume.")
    return experiment, manifest


def load_trained(run_folder: Path, client: int, trust_code: bool = False) -> TrainedModel:
    """Load the model that `client` has after the run's last committed round; the data set is not needed.

    A folder may name user code, as module:function; it is only imported with `trust_code`.
    """
    experiment, manifest = read_committed(run_folder)
    if not 0 <= client < experiment.clients:
        raise InputError(f"There is no client {client} in {run_folder}. Its clients are 0 to {experiment.clients - 1}.")
    model = build_final(
        experiment, client, run_folder, trust_code, partial(_read_states, run_folder / "checkpoint", manifest, client)
    )
    return TrainedModel(
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
    """Build a client's final model; `read` maps its initial state to the shared state and the client's own."""
    name = experiment.backbones[client]
    code = [one for one in references(experiment.plain()) if one[0] == "method" or one == ("model.name", name)]
    allow_code(code, where, trusted=trust_code)
    model = model_of(experiment, client)
    shared, own = read(initial_states(experiment, {name: model})[name])
    try:
        method = find_method(experiment.method)
        method.client.load_final(model, method.shared(experiment), shared, own)
    except (LookupError, RuntimeError, TypeError, ValueError, AttributeError) as problem:
        raise DataError(
            f"The states in {where / 'checkpoint'} do not fit model.name = {name!r} ({problem}). "
            "They may be of another version of the model."
        ) from None
    model.cut_head(experiment.known_input.num_classes)  # extra outputs of a method are not predictions
    return model.eval()


def _read_states(checkpoint: Path, manifest: dict[str, Any], client: int, initial: State) -> tuple[State, State]:
    """Read the server's state and the client's; one that never trained has the initial state and no file."""
    server, record = manifest["server"], manifest["clients"].get(str(client))
    own = read_if_here(checkpoint, record) if record else initial
    if own is None:
        node = for_terminal(record.get("node") or "")
        raise InputError(
            f"Client {client}'s private part is not here but in the store of its node {node}. Run predict or export "
            "there, on that store instead of a run folder."
        )
    return load_state(checkpoint / server["file"], server["digest"]), own
