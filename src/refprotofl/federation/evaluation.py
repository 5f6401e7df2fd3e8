"""The evaluation of a round: every client scores the newest models, and the scores become one event."""

import numpy as np

from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.evaluation.scoring import accuracies
from refprotofl.federation.callbacks import Event
from refprotofl.federation.cohort import EngineCohort
from refprotofl.federation.server_side import ServerSide
from refprotofl.privacy.accounting import Spent


def evaluate(side: ServerSide, cohort: EngineCohort, privacy: Spent | None) -> Event:
    """Return the `evaluation` event: each protocol's mean over the clients, and each client's own numbers."""
    server = side.server
    scores: dict[int, dict[str, float]] = {}
    losses: list[float | None] = []
    confusion = np.zeros((server.num_classes, server.num_classes), np.int64)
    for client, counts in server.scores(cohort):
        scores[client] = accuracies(counts)
        losses.append(counts.real("loss") if "loss" in counts else None)
        confusion += counts.tensor("confusion").numpy() if "confusion" in counts else 0
    per_client = {
        protocol: [scores.get(client, {}).get(protocol) for client in range(side.experiment.clients)]
        for protocol in PROTOCOLS
        if any(protocol in score for score in scores.values())
    }
    means = {protocol: mean(per_client.get(protocol, [])) for protocol in PROTOCOLS}
    means["global"] = side.global_accuracy()
    return {
        "event": "evaluation",
        "round": cohort.round,
        "accuracy": means,
        **({} if privacy is None else {"privacy": privacy}),
        "loss": mean(losses),
        "clients": sorted(scores),
        "trained_clients": sum("personal_before" in score for score in scores.values()),
        "per_client": per_client,
        "confusion": confusion.tolist(),
        "facts": server.facts(),
    }


def mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
