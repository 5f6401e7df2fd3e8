"""The plan of an evaluation: which protocols are scored after a round, and how many of the test samples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refprotofl.core import stream
from refprotofl.data import balanced_draw
from refprotofl.data.dataset import Indices
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.experiment import Experiment


@dataclass(frozen=True)
class Plan:
    """The protocols that an evaluation scores, and the seed and the number of the test samples; 0 for all of them."""

    protocols: frozenset[str]
    samples: int
    seed: int

    @property
    def asks_clients(self) -> bool:
        """Return whether any of the protocols is scored by clients."""
        return any(PROTOCOLS[name].per_client for name in self.protocols if name in PROTOCOLS)

    def scores(self, name: str) -> bool:
        return name in self.protocols

    def rows(self, labels: ArrayLike, num_classes: int) -> Indices | None:
        """Return the sorted positions of the scored samples among these labels (T,), the same after every round.

        The draw is class-balanced; None for all samples.
        """
        known = np.asarray(labels, np.int64)
        if not 0 < self.samples < len(known):
            return None
        return balanced_draw(known, num_classes, self.samples, stream(self.seed, "evaluate-subset"))


def plan_of(experiment: Experiment, round: int) -> Plan:
    """Return what is scored after a round.

    The last round is scored whole. So is each round where the clients hold samples out, as these scores may decide
    something: when a run stops, or how long it took to a target. With [stop] any round may be the last.
    """
    table, last = experiment.evaluate, round == experiment.rounds or experiment.stop.enabled
    whole = last or experiment.validation > 0
    named = table.protocols or [name for name, one in PROTOCOLS.items() if last or not one.costly]
    return Plan(frozenset(named), 0 if whole else table.subset, experiment.seed)
