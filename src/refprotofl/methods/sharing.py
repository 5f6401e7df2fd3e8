"""What all methods that average weights have in common: the shared vector down, the trained one up, the mean."""

from collections.abc import Iterable

import torch
from torch import Tensor

from refprotofl.methods.base import Client, Refused, Server
from refprotofl.models import SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind

KINDS: dict[str, Kind] = {"shared": "parameters"}

Change = tuple[Tensor, float]  # (P,) float64, weight


def load_shared(client: Client, message: Message) -> Tensor:
    """Puts the client's private part and the received shared vector (P,) into its model."""
    received = message["shared"]
    size = sum(client.model.sizes(client.parts))
    if not isinstance(received, Tensor) or received.shape != (size,):
        raise Refused(f"shared is not a vector of {size} values")
    client.model.write_private(client.state)
    client.model.write(client.parts, received)
    return received


def global_model(server: Server, shared: Tensor) -> SplitModel | None:
    """The aggregated model, if nothing of a model is private: neither a part nor batch statistics."""
    if server.model.read_private(server.parts):
        return None
    server.model.write(server.parts, shared)
    return server.model


def write_update(client: Client, round: int, received: Tensor, trained: Tensor) -> Message:
    """What a client sends up after training."""
    return {"shared": trained}


def read_change(server: Server, round: int, reference: Tensor, client: int, message: Message) -> Tensor:
    """How far a client's shared part moved, (P,) in float64."""
    values = message["shared"]
    if not isinstance(values, Tensor) or values.dtype != torch.float32 or values.shape != reference.shape:
        raise Refused(f"shared is not a float32 vector of {len(reference)} values")
    return values.to(torch.float64) - reference.to(torch.float64)


def average(reference: Tensor, changes: Iterable[Change]) -> Tensor:
    """The reference moved by the weighted mean change; summed in float64, in the order of the changes."""
    moved, total = torch.zeros_like(reference, dtype=torch.float64), 0.0
    for change, weight in changes:
        moved += weight * change
        total += weight
    return (reference.to(torch.float64) + moved / total).to(reference.dtype) if total else reference
