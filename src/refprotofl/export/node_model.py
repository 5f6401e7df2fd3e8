"""A device's own model, from the store of its node: its private part with the shared part that it received last.

Once the owner has fine-tuned it (`node finetune`), it is the fine-tuned one, until a newer shared part comes.
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from refprotofl.core import DataError, InputError, State, digest_state
from refprotofl.deploy.node_store import EXPERIMENT, RUNS, NodeStore, runs_in
from refprotofl.engines import ClientStore
from refprotofl.experiment import Experiment
from refprotofl.export.trained_model import TrainedModel, build_final
from refprotofl.federation import common_model_problem
from refprotofl.methods import find_method
from refprotofl.records import check_file, save_state, sha256
from refprotofl.records.state_files import map_state
from refprotofl.wire import WireError, decode

FINETUNED = "fine-tuned.safetensors"
ORIGIN = "of"  # the note in its header: what it was made from


def is_node_store(folder: Path) -> bool:
    """Return True if a folder is a node's store and not a run folder."""
    return not check_file(folder / EXPERIMENT) and (folder / RUNS).is_dir() and bool(runs_in(folder))


@dataclass(frozen=True, eq=False)
class Kept:
    """The contents of a store, of the run that its node took part in last."""

    store: NodeStore
    client: int
    experiment: Experiment
    state: str  # the digest of the node's own state; empty if it has not trained
    round: int
    shared: bytes | None  # the newest shared part, encoded; None: that of its own last training

    @property
    def origin(self) -> str:
        return sha256(json.dumps([self.state, self.round]).encode() + (self.shared or b""))


def read_kept(folder: Path) -> Kept:
    """Return what a store holds; raise InputError if it holds neither a state nor a shared part."""
    store = runs_in(folder)[0]
    client, experiment = _known(store)
    newest, held = store.newest(), store.held()
    if newest is not None and (newest[0] in held or not (newest[0] or held)):
        return Kept(store, client, experiment, *newest)
    if not held:
        raise InputError(
            f"{folder} has no model yet: its node has not trained in the last run that it was assigned to."
        )
    return Kept(store, client, experiment, next(reversed(held)), 0, None)


def load_own(folder: Path, trust_code: bool = False) -> TrainedModel:
    """Load the node's model in the run that it took part in last."""
    kept = read_kept(folder)
    tuned = _finetuned(kept)
    if tuned is None and not kept.state and (problem := common_model_problem(kept.experiment)):
        raise InputError(
            f"{folder} has no model of its own yet: its node has not trained, and there is no common model, as "
            f"{problem}. Make one on its own data: refprotofl node finetune KIT"
        )
    return load_kept(kept, trust_code, tuned)


def load_kept(kept: Kept, trust_code: bool, tuned: State | None = None) -> TrainedModel:
    """Build the model that a store holds; `tuned`: the weights of the fine-tuned one."""
    own: list[State] = []
    model = build_final(kept.experiment, kept.client, kept.store.folder, trust_code, partial(_read_states, kept, own))
    if tuned is not None:
        model.write_private(tuned)
    digest = digest_state(own[0] if tuned is None else tuned)
    return TrainedModel(model, kept.experiment, kept.client, kept.store.folder, kept.round, digest, None)


def keep_finetuned(kept: Kept, weights: State) -> Path:
    """Store fine-tuned weights as the device's model, until a newer shared part comes."""
    path = kept.store.folder / FINETUNED
    save_state(path, weights, {ORIGIN: kept.origin})
    return path


def _finetuned(kept: Kept) -> State | None:
    path = kept.store.folder / FINETUNED
    if not check_file(path):
        return None
    weights, notes = map_state(path)
    return weights if notes.get(ORIGIN) == kept.origin else None


def _read_states(kept: Kept, own: list[State], initial: State) -> tuple[State, State]:
    """Return the shared state and the node's own, which is the initial one if it has not trained."""
    found = initial
    if kept.state:
        states = ClientStore(kept.store.states, lambda _: initial)
        found = states.load(kept.client, kept.store.held()[kept.state]).state
        if digest_state(found) != kept.state:
            raise DataError(f"The node's state in {kept.store.states} is truncated or was changed.")
    own.append(found)
    return _shared(kept, found), found


def _known(store: NodeStore) -> tuple[int, Experiment]:
    assignment = store.assignment
    if assignment is None:
        raise DataError(f"{store.folder / EXPERIMENT} is damaged; the server will send it again.")
    if not 0 <= assignment.client < assignment.experiment.clients:
        raise DataError(f"{store.folder / EXPERIMENT} names a client that is not in its experiment.")
    return assignment.client, assignment.experiment


def _shared(kept: Kept, own: State) -> State:
    """Return the newest shared part, else that of the node's own last training."""
    common = find_method(kept.experiment.method).client.common
    if kept.shared is not None:
        try:
            found: State = dict(decode(kept.shared))  # type: ignore[arg-type]
            return found if "shared" not in found else {common: found["shared"], **found}
        except WireError as problem:
            raise DataError(f"The shared part in {kept.store.folder} is damaged ({problem}).") from None
    return dict.fromkeys(("shared", "adapter", common), own["trained"]) if "trained" in own else {}
