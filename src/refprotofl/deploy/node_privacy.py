"""A node's own account of what it has released under sample-level privacy; the server cannot ask for more."""

import json
from contextlib import suppress

from refprotofl.core import DataError
from refprotofl.deploy.headers import Route
from refprotofl.deploy.log import log
from refprotofl.deploy.node_store import NodeStore
from refprotofl.experiment import Experiment
from refprotofl.methods import Refused, find_method
from refprotofl.privacy import OwnEntropy, create_mechanism, epsilon_sentence, new_secret
from refprotofl.records import parse_json

ENTROPY, RELEASED = "entropy", "released.json"


def protects_samples(experiment: Experiment) -> bool:
    """Return whether single samples of a node are protected."""
    return create_mechanism(experiment).unit == "sample"


def own_entropy(store: NodeStore) -> OwnEntropy:
    """Return the node's noise for a run; its secret is made now if there is none."""
    secret = store.read(ENTROPY)
    if secret is None:
        store.prepare()
        secret = new_secret()
        store.write(ENTROPY, secret)
    return OwnEntropy(secret)


class Account:
    """The noised answers of a run: one for each verb and round, and none after the last round."""

    def __init__(self, store: NodeStore, experiment: Experiment, entropy: OwnEntropy, samples: int) -> None:
        self._store, self._experiment, self._entropy, self._samples = store, experiment, entropy, samples
        self._uses = find_method(experiment.method).planned_uses(experiment)

    def enter(self, route: Route, key: str) -> None:
        """Enter a request before it is answered; raise Refused if its answer is not accounted for."""
        self._entropy.request = key
        if route.verb not in self._uses:
            return
        known = self._read()
        if not 1 <= route.round <= self._experiment.rounds:
            raise Refused(f"There is no round {route.round}: epsilon is that of {self._experiment.rounds} rounds.")
        entry = f"{route.verb} {route.round}"
        if known.get(entry, key) != key:
            raise Refused(
                f"{route.verb!r} was asked again in round {route.round}, with another request: a second noised answer "
                "is not accounted for. This node takes part again from the next round on."
            )
        if entry not in known:
            self._store.write(RELEASED, json.dumps({**known, entry: key}).encode())

    def rounds(self) -> int:
        """Return the number of rounds in which the node has answered with noise."""
        return len({entry.rpartition(" ")[2] for entry in self._read()})

    def show(self, round: int) -> None:
        """Write what was spent so far to the node's log, as often as models are scored."""
        if not self._experiment.is_evaluated(round):
            return
        spent = create_mechanism(self._experiment).spent(round, [self._samples], [self.rounds()])
        if spent is not None:
            log(f"{epsilon_sentence(spent)}, for this node's {self._samples} samples.", "privacy", **spent)

    def _read(self) -> dict[str, str]:
        data = self._store.read(RELEASED)
        if data is None:
            return {}
        with suppress(ValueError, AttributeError):
            return {str(entry): str(key) for entry, key in parse_json(data).items()}
        raise DataError(f"{self._store.folder / RELEASED} is damaged: what this node has released is unknown.")
