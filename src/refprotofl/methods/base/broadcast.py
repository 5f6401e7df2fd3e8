"""The shared vector's way down to the clients, what they hold of it, and the changes that came up."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from refprotofl.core import State, digest_value, tensor_of
from refprotofl.methods.base.schema import Lost, ValidatedMessage
from refprotofl.methods.feedback import Feedback
from refprotofl.wire import Message, Sparse

if TYPE_CHECKING:
    from refprotofl.methods.base.client import Client

NONE_HELD = -1
MISSED = "missed"  # the field with the steps before the last one, for clients that missed broadcasts
FROM_SEED = "initial_"  # with a field's name: that of the fingerprint that is sent instead of the initial weights


def fingerprint(vector: Tensor) -> str:
    """Return a few characters by which both sides see that they mean the same initial weights (P,)."""
    return digest_value(vector)[:16]


class Downlink:
    """A broadcast of the whole vector to each client.

    Clients derive the initial weights from the seed, unless `first-weights = "sent"`: they are only named.
    """

    names: ClassVar[tuple[str, ...]] = ()  # the attributes that must outlive a round
    derived: str = ""  # fingerprint of the weights that follow from the seed
    initial: str = ""  # the same where clients derive them; empty: they are sent

    @property
    def state(self) -> State:
        return {name: getattr(self, name) for name in self.names}

    def restore(self, state: State) -> None:
        for name in self.names:
            setattr(self, name, state[name])

    def requests(self, round: int, name: str, vector: Tensor, extra: Message) -> Callable[[int], Message]:
        """Return what each client is sent: `extra`, and the vector (P,) as the field `name`."""
        whole = self.whole(round, name, vector, extra)
        return lambda client: whole

    def whole(self, round: int, name: str, vector: Tensor, extra: Message) -> Message:
        """Return the message with the vector (P,), or with its fingerprint where clients have it from the seed."""
        if round == 1 and self.initial and fingerprint(vector) == self.initial:
            return {**extra, FROM_SEED + name: self.initial}
        return {**extra, name: vector}

    def advance(self, round: int, reference: Tensor, target: Tensor) -> Tensor:
        """Return the broadcast (P,) after that of `round`, the `reference`, on the way to the `target`."""
        return target

    def mark_held(self, clients: Sequence[int], round: int) -> None:
        """Note that these clients hold the round's broadcast."""

    def forget(self, client: int) -> None:
        """Note that a client that joins holds nothing."""


class StepDownlink(Downlink):
    """A broadcast that is sent once: clients that hold the one before are sent the step from it, if there is one."""

    names: ClassVar[tuple[str, ...]] = ("holds",)

    def __init__(self, clients: int) -> None:
        self.holds = torch.full((clients,), NONE_HELD)  # the round whose broadcast each client holds

    def step_message(self, name: str, vector: Tensor) -> Message | None:
        """Return the step from the last broadcast to `vector`; None: it is sent as a whole."""
        return None

    def missed_steps(self, held: int, round: int, name: str) -> Message | None:
        """Return what brings a client from the broadcast that it holds to the one before the last step.

        None: the whole vector is shorter, or the steps are not kept.
        """
        return None

    def requests(self, round: int, name: str, vector: Tensor, extra: Message) -> Callable[[int], Message]:
        """Return what each client is sent: `extra`, and the vector unless it got that in this round already."""
        whole, step = self.whole(round, name, vector, extra), self.step_message(name, vector)
        by_held: dict[int, Message] = {round: extra}

        def message_from(held: int) -> Message:
            missed = self.missed_steps(held, round, name) if step is not None and held < round - 1 else None
            if step is None or (held < round - 1 and missed is None):
                return whole
            return {**extra, **step, "base": round - 1, **(missed or {})}

        def request(client: int) -> Message:
            held = int(self.holds[client])
            if held not in by_held:
                by_held[held] = message_from(held)
            return by_held[held]

        return request

    def mark_held(self, clients: Sequence[int], round: int) -> None:
        self.holds[list(clients)] = round

    def forget(self, client: int) -> None:
        self.holds[client] = NONE_HELD


def hold(state: State, name: str, vector: Tensor, round: int) -> None:
    """Keep the round's broadcast at a client, so that the next one can build on it."""
    state[name], state[f"{name}_round"] = vector, round


def held(state: State, name: str, round: object) -> Tensor | None:
    """Return that round's broadcast if it is the one that the client keeps."""
    kept = state.get(name)
    return kept if isinstance(kept, Tensor) and state[f"{name}_round"] == round else None


def load_shared(client: "Client", message: ValidatedMessage) -> Tensor:
    """Load the client's private part and the received shared vector (P,) into its model."""
    received = rebuild(client, "shared", message) if "base" in message else message.tensor("shared")
    if client.context.feedback.server_memory and "memory" not in client.state:
        raise Lost
    client.load(received)
    return received


def rebuild(client: "Client", name: str, message: ValidatedMessage) -> Tensor:
    """Return the broadcast (P,) that steps lead to from the one that the client holds; without that it is lost.

    A vector in full in the message, the initial weights, is held as well.
    """
    base, sent = message.whole("base"), message.get(name)
    before = sent if isinstance(sent, Tensor) else held(client.state, name, base)
    if before is None:
        raise Lost
    if isinstance(sent, Sparse):
        return before.index_copy(0, sent.indices, sent.values)
    for step in (*client.compressor.read_missed(message, len(before)), message):
        draw = client.compressor.step_stream(client.experiment.seed, base)
        before = before + client.compressor.decode(step, len(before), draw).to(torch.float32)
        base += 1
    return before


class Changes:
    """The changes of a round, which count as they come."""

    @property
    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Take over what outlived a round: nothing."""

    def forget(self, client: int) -> None:
        """Forget what is known of a client that joins: nothing."""

    def counted(self, changes: Iterable[tuple[int, Tensor]], samples: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield the clients and changes (P,) that make up the next vector; `samples` (clients,): 0 has not joined."""
        yield from changes

    def known(self, clients: Iterable[int]) -> list[Tensor]:
        """Return what is known of these clients' changes from earlier rounds."""
        return []


class LatestChanges(Changes):
    """Everyone's latest change, as both sides know it (EF21): absent clients count with their last one."""

    def __init__(self, clients: int, size: int) -> None:
        self.memory = torch.zeros(clients, size)  # (clients, P)

    @property
    def state(self) -> State:
        return {"memory": self.memory}

    def restore(self, state: State) -> None:
        self.memory = tensor_of(state, "memory")

    def forget(self, client: int) -> None:
        self.memory[client] = 0

    def counted(self, changes: Iterable[tuple[int, Tensor]], samples: Tensor) -> Iterator[tuple[int, Tensor]]:
        for client, correction in changes:
            self.memory[client] += correction
        for client in samples.nonzero().squeeze(1).tolist():
            yield client, self.memory[client]

    def known(self, clients: Iterable[int]) -> list[Tensor]:
        return [self.memory[client] for client in clients]


def create_changes(feedback: Feedback, clients: int, size: int) -> Changes:
    return LatestChanges(clients, size) if feedback.server_memory else Changes()
