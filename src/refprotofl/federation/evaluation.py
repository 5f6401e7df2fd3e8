"""The evaluation of a round: every client scores the newest models, and the scores become one event."""

import numpy as np

from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.evaluation.scoring import client_metrics, mean_metrics
from refprotofl.federation.callbacks import Event
from refprotofl.federation.server_side import ServerSide
from refprotofl.methods.base.cohort import Cohort
from refprotofl.privacy.accounting import Spent


def evaluate(side: ServerSide, cohort: Cohort, privacy: Spent | None) -> Event:
    """Return the `evaluation` event: each protocol's mean over the clients, and each client's own numbers."""
    server = side.server
    scores: dict[int, dict[str, dict[str, float]]] = {}  # by client, protocol and metric
    confusion = np.zeros((server.num_classes, server.num_classes), np.int64)
    for client, counts in server.scores(cohort):
        scores[client] = client_metrics(counts)
        confusion += counts.tensor("confusion").numpy() if "confusion" in counts else 0
    per_client = {
        protocol: [
            scores.get(client, {}).get(protocol, {}).get("accuracy") for client in range(side.experiment.clients)
        ]
        for protocol in PROTOCOLS
        if any(protocol in score for score in scores.values())
    }
    metrics = mean_metrics([scores[client] for client in sorted(scores)]) | {"global": side.global_metrics()}
    return {
        "event": "evaluation",
        "round": cohort.round,
        "accuracy": {protocol: metrics.get(protocol, {}).get("accuracy") for protocol in PROTOCOLS},
        "metrics": {protocol: metrics[protocol] for protocol in PROTOCOLS if metrics.get(protocol)},
        **({} if privacy is None else {"privacy": privacy}),
        "loss": metrics.get("personal", {}).get("loss"),
        "clients": sorted(scores),
        "trained_clients": sum("personal_before" in score for score in scores.values()),
        "per_client": per_client,
        "confusion": confusion.tolist(),
        "facts": server.facts(),
    }
