"""The update of the shared vector in a client's answer: found, altered, put back."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from refprotofl.basics.state import State, tensor_of
from refprotofl.methods.core.fields import Received
from refprotofl.wire import Message, Sparse

WHOLE, MASKED = "shared", ("adapter", "change")  # the fields that an update is found in


@dataclass(frozen=True)
class Update:
    """How far a client's answer moves the shared vector: all of it, or some places."""

    name: str  # of the field
    change: Tensor  # (P,), or (sent,) at `places`
    reference: Tensor | None  # (P,), what a sent value is measured from; None where the change itself is sent
    size: int
    places: Tensor | None = None  # (sent,) ascending

    @property
    def whole(self) -> Tensor:
        """(P,), 0 where nothing is sent."""
        if self.places is None:
            return self.change
        return torch.zeros(self.size).index_copy(0, self.places, self.change)

    def written(self, change: Tensor, places: Tensor | None = None) -> Message:
        """The field with another change, at other places if they are given."""
        places = self.places if places is None else places
        if self.reference is not None:
            change = change + (self.reference if places is None else self.reference[places])
        return {self.name: change if places is None else Sparse(places, change, self.size)}


def find_update(request: Message, answer: Message, state: State) -> Update | None:
    """`state` is the client's after its answer; there it keeps an adapter that it was sent before."""
    if isinstance(trained := answer.get(WHOLE), Tensor):
        reference = Received(request).tensor(WHOLE)
        return Update(WHOLE, trained - reference, reference, len(trained))
    for name in MASKED:
        if isinstance(sent := answer.get(name), Sparse):
            base = tensor_of(state, name) if name == "adapter" else None
            change = sent.values if base is None else sent.values - base[sent.indices]
            return Update(name, change, base, sent.size, sent.indices)
    return None


def hidden(changes: Sequence[Tensor], deviations: float) -> Tensor:
    """A little is enough: so many standard deviations below the mean of the group's changes (n, P)."""
    group = torch.stack(list(changes))
    return group.mean(dim=0) - deviations * group.std(dim=0)


def opposed(changes: Sequence[Tensor], factor: float) -> Tensor:
    """Inner-product manipulation: against the mean of the group's changes (n, P)."""
    return -factor * torch.stack(list(changes)).mean(dim=0)


def squatted(update: Update, factor: float, draw: np.random.Generator) -> Message:
    """As many coordinates as are due, but those of the draw, and large values there."""
    count = len(update.change)
    places = torch.from_numpy(np.sort(draw.choice(update.size, count, replace=False)))
    return update.written(torch.full((count,), factor * float(update.change.abs().max())), places)


def noise(update: Update, factor: float, draw: np.random.Generator) -> Tensor:
    """What a client sends that has not trained: small beside the vector, or beside its change where that is sent."""
    base = update.change if update.reference is None else update.reference
    scale = factor * float(base.square().mean().sqrt())
    return scale * torch.from_numpy(draw.standard_normal(len(update.change))).to(update.change.dtype)


def shifted(prototypes: Tensor, factor: float, ways: Tensor) -> Tensor:
    """Rows (n, m), each moved along its direction (n, m) by `factor` times the rows' mean length."""
    return prototypes + factor * float(prototypes.norm(dim=1).mean()) * ways
