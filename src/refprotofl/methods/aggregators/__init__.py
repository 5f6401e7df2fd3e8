"""Aggregators by name: each module of this folder is one, a user's own is `module:Class`.

Nothing here needs torch until an aggregator is made.
"""

from typing import TYPE_CHECKING

from refprotofl.core.discovery import find_class, names_in

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.methods.base.aggregation import Aggregator, Normalise

MEAN = "mean"
NAMES = names_in(__path__, first=MEAN)


def create_aggregator(experiment: "Experiment", normalise: "Normalise" = "senders") -> "Aggregator":
    """Return the aggregator that the keys `aggregate`, `trim`, `clip` and `min-senders` name."""
    kind = find_class(experiment.aggregate, __name__, "refprotofl.methods.base.aggregation:Aggregator", "aggregate")
    made: Aggregator = kind.create(experiment, normalise)
    return made.with_quorum(experiment.min_senders)
