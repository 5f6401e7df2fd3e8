"""A device's own model, from the store of its node: its private part with the shared part that it received last."""

from pathlib import Path

from refprotofl.core import DataError, InputError, State, digest_state
from refprotofl.deploy.node_store import EXPERIMENT, RUNS, NodeStore, runs_in
from refprotofl.engines import ClientStore
from refprotofl.experiment import Experiment
from refprotofl.export.trained_model import TrainedModel, build_final
from refprotofl.records import check_file
from refprotofl.wire import WireError, decode


def is_node_store(folder: Path) -> bool:
    """Return True if a folder is a node's store and not a run folder."""
    return not check_file(folder / EXPERIMENT) and (folder / RUNS).is_dir() and bool(runs_in(folder))


def load_own(folder: Path, trust_code: bool = False) -> TrainedModel:
    """Load the node's model in the run that it took part in last."""
    store = runs_in(folder)[0]
    client, experiment = _known(store)
    newest = store.newest()
    digest = newest[0] if newest is not None and newest[0] in store.held() else next(reversed(store.held()), "")
    if not digest:
        raise InputError(
            f"{folder} has no model yet: its node has not trained in the last run that it was assigned to."
        )

    def read(initial: State) -> tuple[State, State]:
        states = ClientStore(store.states, lambda _: initial)
        own = states.load(client, store.held()[digest]).state
        if digest_state(own) != digest:
            raise DataError(f"The node's state in {store.states} is truncated or was changed.")
        return _shared(store, digest, own), own

    model = build_final(experiment, client, store.folder, trust_code, read)
    done = newest[1] if newest is not None and newest[0] == digest else 0
    return TrainedModel(model, experiment, client, store.folder, done, digest, None)


def _known(store: NodeStore) -> tuple[int, Experiment]:
    assignment = store.assignment
    if assignment is None:
        raise DataError(f"{store.folder / EXPERIMENT} is damaged; the server will send it again.")
    if not 0 <= assignment.client < assignment.experiment.clients:
        raise DataError(f"{store.folder / EXPERIMENT} names a client that is not in its experiment.")
    return assignment.client, assignment.experiment


def _shared(store: NodeStore, digest: str, own: State) -> State:
    """Return the shared part that the node was evaluated with, else that of its own last training."""
    newest = store.newest()
    if newest is not None and newest[0] == digest:
        try:
            return dict(decode(newest[2]))  # type: ignore[arg-type]
        except WireError as problem:
            raise DataError(f"The shared part in {store.folder} is damaged ({problem}).") from None
    return dict.fromkeys(("shared", "adapter"), own["trained"]) if "trained" in own else {}
