"""A client's masked update under every switch of [refprotofl]: composed, packed and read; and the masks of a run.

Statistics of the masks (shares of the model's parts, overlap between clients, how long a coordinate goes unsent) are
computed at the server from the masks that it receives. They are no part of the state, but are stored next to it, so
that a resumed run continues them; without a stored one they count from the round of resumption, which they report.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import BudgetError, State
from refprotofl.experiment import Experiment
from refprotofl.methods import FEEDBACKS, LOST, Fields, Real, Refused, SparseVector, ValidatedMessage, apud, norm
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.refprotofl import Options
from refprotofl.methods.common.prototypes import Prototypes, write_prototypes
from refprotofl.wire import Message, Sparse, encode, largest_within

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}


@dataclass(frozen=True)
class Update:
    """One client's upload as the server reads it."""

    reference: Tensor  # (d,)
    indices: Tensor  # (sent,), ascending
    sent_values: Tensor  # (sent,)
    sent_change: Tensor  # (sent,)

    def sizes(self) -> dict[str, float]:
        return {"change": norm(self.sent_change)}

    @property
    def change(self) -> Tensor:
        """The change (d,), 0 where nothing was sent; as precise as what was sent."""
        nothing = torch.zeros(len(self.reference), dtype=self.sent_change.dtype)
        return nothing.index_copy_(0, self.indices, self.sent_change)


def sends_prototypes(table: Options, round: int) -> bool:
    """Return whether prototypes come along with the update: those of the last warm-up round are the first ones used."""
    return table.erpa and table.timing == "post-train" and round >= table.warmup_rounds


def sends_change(table: Options) -> bool:
    """Return whether changes are sent instead of values, as the paper does.

    A narrow type would round a weight by more than it moved, and EF21 is about changes.
    """
    return table.value_type != "float32" or table.error_feedback == "ef21"


def compose(
    table: Options,
    sizes: Sequence[int],
    local: Tensor,
    reference: Tensor,
    memory: Tensor,
    stream: Callable[[], np.random.Generator],
    extra: Message,
    spent: int,
    length: Callable[[Message], int] = lambda message: len(encode(message)),
) -> tuple[Message, Tensor]:
    """Run Algorithm 1 on one client: return the message, `extra` included, and the memory for the next round.

    `memory` (d,) is kept by error feedback: the unsent rest (`ef`), or what the server already has (`ef21`).
    `spent` bytes of the round's budget are used; each attempt draws from a fresh `stream`, so their number does not
    matter. `length` returns a message's bytes.
    """
    feedback = FEEDBACKS[table.error_feedback]
    target = feedback.target(local, memory)

    def attempt(keep: int) -> tuple[Message, Tensor, Tensor]:
        mask = choose(table, sizes, target, reference, keep, stream())
        message, sent = pack(table, target, reference, mask)
        return {**extra, **message}, sent, mask

    if table.share is not None:
        keep = apud.number_to_send(table.share, len(local))
    else:
        left = (table.uplink_budget or 0) - spent
        value_bytes = DTYPES[table.value_type].itemsize
        keep = largest_within(lambda keep: length(attempt(keep)[0]), left, len(local), value_bytes)
    message, sent, mask = attempt(keep)
    guards.announced_number_sent(mask, keep)
    return message, feedback.remember(target - reference, sent, memory)


def choose(
    table: Options,
    sizes: Sequence[int],
    target: Tensor,
    reference: Tensor,
    keep: int,
    generator: np.random.Generator,
) -> Tensor:
    """Return the mask (d,) of the `keep` coordinates to send, by `select` and `selection-scope`."""
    by_tensor = table.selection_scope == "per-tensor"
    spans = list(sizes) if by_tensor else [sum(sizes)]
    counts = apud.split_by_tensor(keep, sizes) if by_tensor else [keep]
    masks = []
    for count, local, before in zip(counts, target.split(spans), reference.split(spans), strict=True):
        if count == 0:
            masks.append(torch.zeros(len(local), dtype=torch.bool))
        elif table.select == "top":
            masks.append(apud.select(local, before, count))
        elif table.select == "random":
            masks.append(apud.select_random(len(local), count, generator))
        else:
            masks.append(apud.select_probabilistic(local, before, count, generator))
    return torch.cat(masks)


def check_selection(table: Options, sizes: Sequence[int], draw: np.random.Generator, update: Update) -> None:
    """Refuse coordinates other than those that `draw` gives all clients: a client's own would reveal its data."""
    zeros, sent = torch.zeros(sum(sizes)), len(update.indices)
    if not choose(table, sizes, zeros, zeros, sent, draw).nonzero().squeeze(1).equal(update.indices):
        raise Refused("it sends other coordinates than those that were drawn for all")


def pack(table: Options, target: Tensor, reference: Tensor, mask: Tensor) -> tuple[Message, Tensor]:
    """Return the message, and the change (d,) that the server will read from it."""
    indices = mask.nonzero().squeeze(1)
    change = torch.where(mask, target - reference, 0.0)
    if not sends_change(table):
        return {"adapter": Sparse(indices, target[indices], len(target))}, change
    message: Message = {}
    values = change[indices]
    if table.value_type == "int8":
        message["scale"] = scale = float(values.abs().max()) / 127 or 1.0
        values = (values / scale).round().clamp(-127, 127)
    narrow = values.to(DTYPES[table.value_type])
    message["change"] = Sparse(indices, narrow, len(target))
    return message, change.index_copy(0, indices, _widen(narrow, message.get("scale")))


def fields(table: Options, size: int) -> Fields:
    """Return the fields of the masked update of an adapter of `size` parameters."""
    count = None if table.share is None else apud.number_to_send(table.share, size)
    sent = SparseVector(size, DTYPES[table.value_type], count)
    scale = {"scale": Real()} if table.value_type == "int8" else {}
    return {"change" if sends_change(table) else "adapter": sent, **scale}


def unpack(table: Options, message: ValidatedMessage, reference: Tensor) -> Update:
    sent = message.sparse("change" if sends_change(table) else "adapter")
    before = reference.index_select(0, sent.indices)
    if not sends_change(table):
        return Update(reference, sent.indices, sent.values, sent.values - before)
    wide = _widen(sent.values, message.get("scale"))
    if not torch.isfinite(wide).all():
        raise Refused(f"scale = {message['scale']} makes changes that are not finite")
    return Update(reference, sent.indices, before + wide, wide)


def whole(reference: Tensor, change: Tensor) -> Update:
    """Return an update of every coordinate, as a compressor gives it."""
    return Update(reference, torch.arange(len(reference)), reference + change, change)


def _widen(values: Tensor, scale: object) -> Tensor:
    if values.dtype != torch.int8:
        return values.to(torch.float32)
    if not isinstance(scale, float):
        raise Refused("int8 values come with a scale")
    return values.to(torch.float32) * scale


AGES = (1, 2, 4, 8, 16, 32, 64)  # rounds unsent from which each class of ages but the first begins


class Masks:
    """The masks of one round after another, over a vector that is made of parts of these sizes."""

    def __init__(self, parts: Mapping[str, int]) -> None:
        self._parts = dict(parts)
        self._size = sum(parts.values())
        self._last = torch.zeros(self._size, dtype=torch.int32)  # the round in which each coordinate was sent last
        self._since = 0
        self._round = 0
        self._clients = 0
        self._senders = torch.zeros(0, dtype=torch.int32)  # (d,), of this round

    @property
    def kept(self) -> State:
        return {"last": self._last, "since": self._since}

    def restore(self, kept: State) -> None:
        last, since = kept["last"], kept["since"]
        if not isinstance(last, Tensor) or last.dtype != torch.int32 or last.shape != (self._size,):
            raise ValueError(f"the rounds of the last sending do not cover the {self._size} coordinates")
        if type(since) is not int:
            raise ValueError("the first counted round is no whole number")
        self._last, self._since = last.clone(), since

    def begin(self, round: int) -> None:
        self._since = self._since or round
        self._round, self._clients = round, 0
        self._senders = torch.zeros(self._size, dtype=torch.int32)

    def take(self, indices: Tensor) -> None:
        """Count one client's mask, the indices (sent,) of what it sent."""
        self._clients += 1
        self._senders[indices] += 1
        self._last[indices] = self._round

    def summary(self) -> dict[str, Any]:
        """Return the round's statistics in less than 1 kB of JSON; nothing where no client sent anything."""
        if not self._clients:
            return {}
        return {
            "clients": self._clients,
            "overlap": self._overlap(),
            "since": self._since,
            "ages": [0, *AGES],
            "parts": {name: self._part(senders, last) for name, senders, last in self._by_part()},
        }

    def _overlap(self) -> float | None:
        """Return the share of what a client sent that another sent too, averaged over pairs; 1 client: None."""
        if self._clients < 2:
            return None
        senders = self._senders.double()
        both = float((senders * (senders - 1)).sum())  # over ordered pairs
        return round(both / ((self._clients - 1) * max(1.0, float(senders.sum()))), 4)

    def _by_part(self) -> list[tuple[str, Tensor, Tensor]]:
        sizes = list(self._parts.values())
        return list(zip(self._parts, self._senders.split(sizes), self._last.split(sizes), strict=True))

    def _part(self, senders: Tensor, last: Tensor) -> dict[str, Any]:
        """Return a part's statistics; `unsent` counts coordinates by rounds since they were sent."""
        ever = last > 0
        ages = self._round - last[ever]
        classes = torch.bucketize(ages, torch.tensor(AGES), right=True)
        return {
            "size": len(senders),
            "sent": int(senders.sum()),
            "by_anyone": int((senders > 0).sum()),
            "unsent": torch.bincount(classes, minlength=len(AGES) + 1).tolist(),
            "never": int((~ever).sum()),
        }


def check_least_budget(experiment: Experiment, table: Options, adapter_size: int) -> None:
    """Refuse a budget that could not always carry prototypes, one coordinate, and the report of a lost store."""
    if table.uplink_budget is None:
        return
    num_classes = experiment.known_input.num_classes
    zeros = torch.zeros(adapter_size)
    ends = [zeros.bool().index_fill(0, torch.tensor([end]), True) for end in (0, adapter_size - 1)]
    least = max(len(encode(pack(table, zeros, zeros, end)[0])) for end in ends) + len(encode({LOST: True}))
    if table.erpa:
        covered = list(experiment.public.classes or ())
        counts = torch.ones(num_classes, dtype=torch.int64).index_fill(0, torch.tensor(covered).long(), 0)
        means = torch.zeros(num_classes, experiment.model.embedding)
        least += len(encode(write_prototypes(Prototypes(means[covered], means, counts), DTYPES[table.prototype_type])))
    if table.uplink_budget < least:
        raise BudgetError(
            f"refprotofl.uplink-budget = {table.uplink_budget} bytes is too small: "
            f"prototypes and one parameter take {least} bytes, which is the least that works here."
        )
