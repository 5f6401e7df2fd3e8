"""How long a round would take over given links, from the bytes that crossed and the seconds that were measured.

Every verb of a round is a barrier: the server goes on when the slowest client has answered. A client's time for a verb
is its request on the way down, its computing, and its answer on the way up.
"""

from collections.abc import Mapping, Sequence

from refprotofl.basics.links import Links
from refprotofl.report.page.events import Posting


def round_seconds(
    traffic: Sequence[Posting],
    spent: Mapping[str, float],
    links: Links,
    workers: int = 1,
    samples: Sequence[int] | None = None,
) -> float:
    """Of a round with joining, without evaluation, which only we want.

    The seconds that this machine waited for a verb are those of all clients, `workers` at a time; a client's part of
    them is as large as its part of the samples, or that of all where `samples` are not known.
    """
    phases: dict[str, dict[int, dict[str, int]]] = {}
    for row in traffic:
        if row["purpose"] != "evaluation":
            crossed = phases.setdefault(row["phase"], {}).setdefault(row["client"], {"up": 0, "down": 0})
            crossed[row["direction"]] += row["payload_bytes"]
    total = spent.get("server", 0.0)
    for phase, clients in phases.items():
        computing = _computing(list(clients), workers * spent.get(phase, 0.0), samples)
        total += max(
            links.of(client).seconds(crossed["up"], crossed["down"]) + computing[client]
            for client, crossed in clients.items()
        )
    return total


def _computing(clients: Sequence[int], seconds: float, samples: Sequence[int] | None) -> dict[int, float]:
    """Each client's part of the seconds that all took one after the other."""
    known = samples is not None and all(client < len(samples) for client in clients)
    weights = {client: samples[client] if known and samples is not None else 1 for client in clients}
    whole = sum(weights.values()) or 1
    return {client: seconds * weight / whole for client, weight in weights.items()}
