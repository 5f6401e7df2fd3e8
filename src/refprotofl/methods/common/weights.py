"""What all methods that average weights have in common: the shared vector down, its change up, the mean.

Between client and server stands the compressor of [compress], for every method alike.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor

from refprotofl.core import streams
from refprotofl.core.state import State
from refprotofl.experiment import Experiment
from refprotofl.methods.aggregators.aggregation import Upload, aggregate_uploads, apply_update
from refprotofl.methods.base import guards
from refprotofl.methods.base.broadcast import held, hold
from refprotofl.methods.base.client import Client
from refprotofl.methods.base.cohort import Cohort
from refprotofl.methods.base.schema import Dense, Fields, Lost, MessageSchema, Scope, ValidatedMessage, Whole, declare
from refprotofl.methods.base.server import Server
from refprotofl.methods.compressors import compressors
from refprotofl.wire import Message, Sparse

# The fields


def shared_vector(scope: Scope, *, optional: bool = False) -> Dense:
    return Dense((scope.shared,), kind="parameters", optional=optional)


def broadcast(scope: Scope) -> Fields:
    """The shared vector down, or under STC the step to it from the last one."""
    step = step_fields(scope)
    return {"shared": shared_vector(scope, optional=bool(step)), **step}


def step_fields(scope: Scope) -> Fields:
    """What a client that holds the last broadcast is sent under STC."""
    if scope.experiment.compress.name != "stc":
        return {}
    return {"base": Whole(optional=True), **compressors.step_fields()}


def change(scope: Scope) -> Fields:
    """What a client sends up after training."""
    table = scope.experiment.compress
    return {"shared": shared_vector(scope)} if table.name == "none" else compressors.fields(table, scope.shared)


def message_schemas(scope: Scope) -> dict[str, MessageSchema]:
    """Training and evaluation of methods that exchange weights and nothing else."""
    return declare(
        scope, evaluate={"shared": shared_vector(scope)}, train=MessageSchema(broadcast(scope), change(scope))
    )


# A client's side


def load_shared(client: Client, message: ValidatedMessage) -> Tensor:
    """Puts the client's private part and the received shared vector (P,) into its model."""
    received = rebuilt(client.state, "shared", message) if "base" in message else message.tensor("shared")
    if client.context.feedback == "ef21" and "memory" not in client.state:
        raise Lost
    client.load(received)
    return received


def rebuilt(state: State, name: str, message: ValidatedMessage) -> Tensor:
    """The broadcast that a message gives as a step from the one before; a client without that one is lost."""
    before, sent = held(state, name, message["base"]), message.get(name)
    if before is None:
        raise Lost
    if isinstance(sent, Sparse):
        return before.index_copy(0, sent.indices, sent.values)
    return before + compressors.read_ternary(message, len(before), len(before))


def write_update(client: Client, round: int, received: Tensor, trained: Tensor) -> Message:
    """What a client sends up after training."""
    guards.part_moved(received, trained, "shared weights")
    if client.experiment.compress.name == "none":
        return {"shared": trained}
    if client.experiment.compress.name == "stc":
        hold(client.state, "shared", received, round)
    return write_change(client, round, trained - received)


def write_change(client: Client, round: int, change: Tensor) -> Message:
    """The change (P,) through the compressor, whose memory is private."""
    memory = client.state.get("memory")
    before = memory if isinstance(memory, Tensor) else torch.zeros_like(change)
    draw = _draw(client.experiment, client.context.client_id, round)
    message, after = compressors.compress(client.experiment.compress, change, before, draw)
    if client.context.feedback != "none":
        client.state["memory"] = after
    return message


def _draw(experiment: Experiment, client: int, round: int) -> compressors.Draw:
    return partial(streams.stream, experiment.seed, experiment.compress.name, client=client, round=round)


# The server's side


def averaged_training(server: Server, cohort: Cohort, shared: Tensor) -> Tensor:
    """A round of averaging: everyone trains from the shared vector (P,); what comes of it is the next one."""
    requested = requests(server, cohort.round, shared)
    changes = server.ask(cohort, "train", requested, partial(read_change, server, cohort.round, shared))
    return step(server, cohort.round, shared, changes)


def requests(server: Server, round: int, shared: Tensor, extra: Message | None = None) -> Callable[[int], Message]:
    """What each client is sent: `extra` and the shared vector, or under STC the step to it from the last one."""
    extra = extra or {}
    if not len(server.remembered.holds):
        whole: Message = {**extra, "shared": shared}
        return lambda client: whole
    return server.remembered.requests(round, extra, {"shared": shared}, ternary_step(server))


def ternary_step(server: Server) -> Message | None:
    """STC's downlink: the step from the last broadcast but one to the last."""
    step = server.remembered.step
    return compressors.write_ternary(step) if len(step) else None


def read_change(server: Server, round: int, reference: Tensor, client: int, answer: ValidatedMessage) -> Tensor:
    """How far a client's shared part moved, (P,)."""
    table = server.experiment.compress
    if table.name == "none":
        return answer.tensor("shared").to(torch.float64) - reference.to(torch.float64)
    return compressors.expand(table, answer, len(reference), _draw(server.experiment, client, round))


def step(server: Server, round: int, reference: Tensor, changes: Iterable[tuple[int, Tensor]]) -> Tensor:
    """The next shared vector: the reference moved by the mean of the clients' changes, weighted by data size."""
    uploads = (
        Upload(change.to(torch.float64), float(server.samples[client]))
        for client, change in counted(server, round, changes)
    )
    return next_broadcast(
        server, reference, apply_update(reference, aggregate_uploads(server.aggregator, len(reference), uploads))
    )


def counted(server: Server, round: int, changes: Iterable[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """The changes that make up the next vector, taken note of as they come: the participants'.

    Under EF21 everyone's latest, so that who is absent counts with its last one.
    """
    remembered = server.remembered
    for client, change in changes:
        remembered.take(client, round, change)
        if not len(remembered.memory):
            yield client, change
    if len(remembered.memory):
        for client in server.samples.nonzero().squeeze(1).tolist():
            yield client, remembered.memory[client]


def next_broadcast(server: Server, reference: Tensor, target: Tensor) -> Tensor:
    """The target, or under STC as much of the way as a ternary step goes; the rest is owed."""
    table, remembered = server.experiment.compress, server.remembered
    if table.name != "stc":
        return target
    owed = compressors.wanted(table.feedback, target - reference, remembered.residual, table.decay)
    remembered.step = compressors.ternarise(owed, table.keep)
    remembered.residual = compressors.remembered(table.feedback, owed, remembered.step, remembered.residual)
    return reference + remembered.step
