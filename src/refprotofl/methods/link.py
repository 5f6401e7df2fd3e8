"""What a server remembers of the shared vector's way to and from its clients, and what clients hold of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from refprotofl.basics.state import State
from refprotofl.experiment import Experiment
from refprotofl.wire import Message

NONE_HELD = -1


def _nothing() -> Tensor:
    return torch.zeros(0)


@dataclass
class Link:
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
        """A client that joins holds nothing, and nothing is known of its changes."""
        if len(self.holds):
            self.holds[client] = NONE_HELD
        if len(self.memory):
            self.memory[client] = 0

    def requests(self, round: int, extra: Message, whole: Message, update: Message | None) -> Callable[[int], Message]:
        """What each client is sent: `extra`, and the `whole` vector unless it got that in this round already.

        Who holds the broadcast of the round before gets the `update` from that one instead.
        """
        whole = {**extra, **whole}
        short = whole if update is None else {**extra, **update, "base": round - 1}

        def request(client: int) -> Message:
            held = int(self.holds[client])
            return extra if held == round else short if held == round - 1 else whole

        return request


def open_link(experiment: Experiment, size: int) -> Link:
    """A link for a shared vector of `size` values that nobody holds yet."""
    link = Link()
    if experiment.feedback == "ef21":
        link.memory = torch.zeros(experiment.clients, size)
    if experiment.compress.name == "stc":
        link.holds = nobody(experiment.clients)
        link.residual, link.step = torch.zeros(size), torch.zeros(size)
    return link


def nobody(clients: int) -> Tensor:
    return torch.full((clients,), NONE_HELD)


def hold(state: State, name: str, vector: Tensor, round: int) -> None:
    """A client keeps the round's broadcast, so that the next one can build on it."""
    state[name], state[f"{name}_round"] = vector, round


def held(state: State, name: str, round: object) -> Tensor | None:
    """The broadcast of that round, if it is the one that the client keeps."""
    kept = state.get(name)
    return kept if isinstance(kept, Tensor) and state[f"{name}_round"] == round else None
