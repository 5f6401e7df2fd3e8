"""The server's memory of the shared vector's way to and from its clients, and the broadcast that a client keeps."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from refprotofl.core.state import State
from refprotofl.experiment import Experiment
from refprotofl.methods.declaration import Feedback
from refprotofl.wire import Message

NONE_HELD = -1


def _nothing() -> Tensor:
    return torch.zeros(0)


@dataclass
class Remembered:
    """Plain tensors; an empty one is something that the experiment does not need."""

    holds: Tensor = field(default_factory=_nothing)  # (clients,), the round whose broadcast a client has
    memory: Tensor = field(default_factory=_nothing)  # (clients, P), EF21: each client's change as both sides know it
    residual: Tensor = field(default_factory=_nothing)  # (P,), STC: what the broadcasts still owe
    step: Tensor = field(default_factory=_nothing)  # (P,), STC: the last broadcast minus the one before

    @property
    def state(self) -> State:
        return {name: kept for name, kept in vars(self).items() if kept.numel()}

    def restore(self, state: State) -> None:
        for name in self.state:
            setattr(self, name, state[name])

    def forget(self, client: int) -> None:
        """Reset a client that joins: it holds nothing, and nothing is known of its changes."""
        if len(self.holds):
            self.holds[client] = NONE_HELD
        if len(self.memory):
            self.memory[client] = 0

    def take(self, client: int, round: int, change: Tensor) -> None:
        """Record an accepted change of a client that now holds the round's broadcast."""
        if len(self.holds):
            self.holds[client] = round
        if len(self.memory):
            self.memory[client] += change

    def requests(self, round: int, extra: Message, whole: Message, update: Message | None) -> Callable[[int], Message]:
        """Return each client's request: `extra`, and the `whole` vector unless it received that in this round already.

        A client that holds the broadcast of the round before gets the `update` from that one instead.
        """
        whole = {**extra, **whole}
        short = whole if update is None else {**extra, **update, "base": round - 1}

        def request(client: int) -> Message:
            held = int(self.holds[client])
            return extra if held == round else short if held == round - 1 else whole

        return request


def remember(experiment: Experiment, feedback: Feedback, size: int) -> Remembered:
    """Return the memory for a shared vector of `size` values that no client holds yet."""
    remembered = Remembered()
    if feedback == "ef21":
        remembered.memory = torch.zeros(experiment.clients, size)
    if experiment.compress.name == "stc":
        remembered.holds = nobody(experiment.clients)
        remembered.residual, remembered.step = torch.zeros(size), torch.zeros(size)
    return remembered


def nobody(clients: int) -> Tensor:
    return torch.full((clients,), NONE_HELD)


def hold(state: State, name: str, vector: Tensor, round: int) -> None:
    """Store the round's broadcast in a client's state, so that the next one can build on it."""
    state[name], state[f"{name}_round"] = vector, round


def held(state: State, name: str, round: object) -> Tensor | None:
    """Return the broadcast of that round, if it is the one that the client keeps."""
    kept = state.get(name)
    return kept if isinstance(kept, Tensor) and state[f"{name}_round"] == round else None
