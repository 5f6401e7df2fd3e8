"""The common part of all methods that average weights: the shared vector down, its change up, the mean.

The compressor of [compress] encodes both directions, for every method alike.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor

from refprotofl.methods import (
    Client,
    Cohort,
    Dense,
    Fields,
    MessageSchema,
    Scope,
    Server,
    Upload,
    ValidatedMessage,
    Whole,
    aggregate_uploads,
    apply_update,
    create_compressor,
    declare,
    hold,
)
from refprotofl.methods.base import guards
from refprotofl.methods.base.broadcast import load_shared as load_shared
from refprotofl.methods.base.broadcast import rebuild as rebuild
from refprotofl.wire import Message

# The fields


def shared_vector(scope: Scope, *, optional: bool = False) -> Dense:
    return Dense((scope.shared,), kind="parameters", optional=optional)


def broadcast(scope: Scope) -> Fields:
    """Return the fields of a broadcast: the shared vector, or the step to it from the last one."""
    step = step_fields(scope)
    return {"shared": shared_vector(scope, optional=bool(step)), **step}


def step_fields(scope: Scope) -> Fields:
    """Return the fields of a step from the last broadcast, where the compressor sends such."""
    step = create_compressor(scope.experiment).step_fields(scope.shared)
    return {"base": Whole(optional=True), **step} if step else {}


def change(scope: Scope) -> Fields:
    """Return the fields of a client's upload after training."""
    return create_compressor(scope.experiment).fields(scope.shared)


def message_schemas(scope: Scope) -> dict[str, MessageSchema]:
    """Return the schemas of methods that exchange weights and nothing else."""
    trained = MessageSchema(broadcast(scope), change(scope))
    return declare(scope, evaluate={"shared": shared_vector(scope)}, train=trained, finetune=finetuning(scope))


def finetuning(scope: Scope) -> MessageSchema:
    """Return the schema of the stage after the last round, in which clients get the common model."""
    return MessageSchema(broadcast(scope))


# The client's side


def write_update(client: Client, round: int, received: Tensor, trained: Tensor) -> Message:
    """Encode what a client sends after training from `received` to `trained`, both (P,)."""
    guards.part_moved(received, trained, "shared weights")
    if client.compressor.compresses_downlink:
        hold(client.state, "shared", received, round)
    return encode_update(client, round, received, trained)


def encode_update(client: Client, round: int, received: Tensor, trained: Tensor) -> Message:
    draw = client.compressor.stream(client.experiment.seed, client.context.client_id, round)
    return client.compressor.write_update(trained, received, client.state, draw)


def sent_change(client: Client, round: int, received: Tensor, answer: Message) -> Tensor:
    """Return the change (P,) from `received` as the server will read it in the client's answer."""
    draw = client.compressor.stream(client.experiment.seed, client.context.client_id, round)
    return client.compressor.read_update(ValidatedMessage(answer), received, draw)


# The server's side


def averaged_training(server: Server, cohort: Cohort, shared: Tensor) -> Tensor:
    """Run a round of averaging: all clients train from the shared vector (P,). Return the next one."""
    return advance(server, cohort.round, shared, mean_change(server, cohort, shared))


def mean_change(server: Server, cohort: Cohort, shared: Tensor) -> Tensor:
    """Let all clients train from the shared vector (P,), and return the mean of their changes, (P,) in float64."""
    requested = requests(server, cohort.round, shared)
    changes = server.ask(cohort, "train", requested, partial(read_change, server, cohort.round, shared))
    return aggregated(server, cohort.round, len(shared), changes)


def requests(server: Server, round: int, shared: Tensor, extra: Message | None = None) -> Callable[[int], Message]:
    """Return what each client is sent: `extra` and the shared vector (P,), or the step to it."""
    return server.downlink.requests(round, "shared", shared, extra or {})


def read_change(server: Server, round: int, reference: Tensor, client: int, answer: ValidatedMessage) -> Tensor:
    """Return how far a client's shared part moved from the reference, (P,)."""
    draw = server.compressor.stream(server.experiment.seed, client, round)
    return server.compressor.read_update(answer, reference, draw)


def step(server: Server, round: int, reference: Tensor, changes: Iterable[tuple[int, Tensor]]) -> Tensor:
    """Return the next broadcast: the reference moved by the mean of the clients' changes, weighted by data size."""
    return advance(server, round, reference, aggregated(server, round, len(reference), changes))


def aggregated(server: Server, round: int, size: int, changes: Iterable[tuple[int, Tensor]]) -> Tensor:
    """Return the mean of the clients' changes, weighted by data size: (size,) in float64."""
    uploads = (
        Upload(change.to(torch.float64), float(server.samples[client]))
        for client, change in counted(server, round, changes)
    )
    return aggregate_uploads(server.aggregator, size, uploads)


def population(server: Server) -> float:
    """Return the sum of all clients' weights in a mean; one that has not joined counts as the mean of the others."""
    weights = server.aggregator.client_weights(server.samples)  # (clients,)
    joined = int((server.samples > 0).sum())
    return float(weights.sum()) * (server.num_clients / max(joined, 1))


def turnout(server: Server, cohort: Cohort) -> float:
    """Return the weight of the clients over which the last mean was taken, as a share of `population`."""
    weights = server.aggregator.client_weights(server.samples[list(cohort.clients)])
    return server.aggregator.divisor(weights) / population(server)


def advance(server: Server, round: int, reference: Tensor, move: Tensor) -> Tensor:
    """Return the next broadcast: the reference (P,) moved by `move` (P,), as far as it can be sent."""
    return server.downlink.advance(round, reference, apply_update(reference, move))


def counted(server: Server, round: int, changes: Iterable[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """Yield the clients and changes (P,) that make up the next vector; who sent one holds the round's broadcast."""
    return server.changes.counted(_marked(server, round, changes), server.samples)


def _marked(server: Server, round: int, changes: Iterable[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    for client, change in changes:
        server.downlink.mark_held([client], round)
        yield client, change
