"""What all methods that average weights have in common: the shared vector down, its change up, the mean.

Between client and server stands the compressor of [compress], for every method alike.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from refprotofl.basics import streams
from refprotofl.basics.state import State
from refprotofl.experiment import Experiment
from refprotofl.methods import compressors, guards
from refprotofl.methods.base import Client, Cohort, Lost, Refused, Server
from refprotofl.methods.link import held, hold
from refprotofl.models import SplitModel
from refprotofl.wire import Message, Sparse
from refprotofl.wire.ledger import Kind

KINDS: dict[str, Kind] = {"shared": "parameters"}

Change = tuple[Tensor, float]  # (P,) float64, weight


def averaged_training(server: Server, cohort: Cohort, shared: Tensor) -> Tensor:
    """A round of averaging: everyone trains from the shared vector (P,); what comes of it is the next one."""
    read = partial(read_change, server, cohort.round, shared)
    return step(server, shared, server.ask(cohort, "train", requests(server, cohort.round, shared), read))


def global_model(server: Server, shared: Tensor) -> SplitModel | None:
    """The aggregated model, if nothing of a model is private: neither a part nor batch statistics."""
    if server.model.read_private(server.parts):
        return None
    server.model.write(server.parts, shared)
    return server.model


def read_values(message: Message, name: str, shape: Sequence[int]) -> Tensor:
    """A float32 tensor of the shape that was asked for."""
    values = message[name]
    if not isinstance(values, Tensor) or values.dtype != torch.float32 or values.shape != tuple(shape):
        size = f"vector of {shape[0]}" if len(shape) == 1 else f"tensor of {' x '.join(map(str, shape))}"
        raise Refused(f"{name} is not a float32 {size} values")
    return values


def requests(server: Server, round: int, shared: Tensor, extra: Message | None = None) -> Callable[[int], Message]:
    """What each client is sent: `extra` and the shared vector, or under STC the step to it from the last one."""
    extra = extra or {}
    if not len(server.link.holds):
        whole: Message = {**extra, "shared": shared}
        return lambda client: whole
    return server.link.requests(round, extra, {"shared": shared}, ternary_step(server))


def ternary_step(server: Server) -> Message | None:
    """STC's downlink: the step from the last broadcast but one to the last."""
    return compressors.write_ternary(server.link.step) if len(server.link.step) else None


def rebuilt(state: State, name: str, message: Message) -> Tensor | None:
    """The broadcast that a message gives as a step from the one before; None if the client does not hold that one."""
    before, sent = held(state, name, message["base"]), message.get(name)
    if before is None:
        return None
    if isinstance(sent, Sparse):
        return before.index_copy(0, sent.indices, sent.values)
    return before + compressors.read_ternary(message, len(before), len(before))


def load_shared(client: Client, message: Message) -> Tensor:
    """Puts the client's private part and the received shared vector (P,) into its model."""
    received = rebuilt(client.state, "shared", message) if "base" in message else message["shared"]
    if received is None or (client.experiment.feedback == "ef21" and "memory" not in client.state):
        raise Lost
    size = sum(client.model.sizes(client.parts))
    if not isinstance(received, Tensor) or received.shape != (size,):
        raise Refused(f"shared is not a vector of {size} values")
    client.model.write_private(client.state)
    client.model.write(client.parts, received)
    return received


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
    memory = client.state.get("memory", torch.zeros_like(change))
    draw = _draw(client.experiment, client.seat.number, round)
    message, memory = compressors.compress(client.experiment.compress, change, memory, draw)  # type: ignore[arg-type]
    if client.experiment.feedback != "none":
        client.state["memory"] = memory
    return message


def read_change(server: Server, round: int, reference: Tensor, client: int, message: Message) -> Tensor:
    """How far a client's shared part moved, (P,) in float64; to be called last of all that reads the message."""
    table, link = server.experiment.compress, server.link
    if table.name == "none":
        values = read_values(message, "shared", reference.shape)
        return values.to(torch.float64) - reference.to(torch.float64)
    change = compressors.expand(table, message, len(reference), _draw(server.experiment, client, round))
    if len(link.holds):
        link.holds[client] = round
    if len(link.memory):
        link.memory[client] += change
        change = link.memory[client]
    return change.to(torch.float64)


def _draw(experiment: Experiment, client: int, round: int) -> compressors.Draw:
    return partial(streams.stream, experiment.seed, experiment.compress.name, client=client, round=round)


# The next broadcast


def step(server: Server, reference: Tensor, changes: Iterable[tuple[int, Tensor]]) -> Tensor:
    """The next shared vector: the reference moved by the mean of the clients' changes, weighted by data size."""
    weighted = ((change, float(server.samples[client])) for client, change in latest(server, changes))
    return settle(server, reference, average(reference, weighted))


def latest(server: Server, changes: Iterable[tuple[int, Tensor]]) -> Iterable[tuple[int, Tensor]]:
    """The participants' changes; under EF21 everyone's latest, so that who is absent counts with its last one."""
    memory = server.link.memory  # (clients, P)
    if not len(memory):
        return changes
    for _ in changes:  # reading them brings the memory up to date
        pass
    joined = server.samples.nonzero().squeeze(1).tolist()
    return ((client, memory[client].to(torch.float64)) for client in joined)


def average(reference: Tensor, changes: Iterable[Change]) -> Tensor:
    """The reference moved by the weighted mean change; summed in float64, in the order of the changes."""
    moved, total = torch.zeros_like(reference, dtype=torch.float64), 0.0
    for change, weight in changes:
        moved += weight * change
        total += weight
    return (reference.to(torch.float64) + moved / total).to(reference.dtype) if total else reference


def settle(server: Server, reference: Tensor, target: Tensor) -> Tensor:
    """The next broadcast: the target, or under STC as much of the way as a ternary step goes; the rest is owed."""
    table, link = server.experiment.compress, server.link
    if table.name != "stc":
        return target
    owed = compressors.wanted(table.feedback, target - reference, link.residual, table.decay)
    link.step = compressors.ternarise(owed, table.keep)
    link.residual = compressors.remembered(table.feedback, owed, link.step, link.residual)
    return reference + link.step
