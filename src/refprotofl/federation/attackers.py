"""Hostile clients: clients of any method whose data or answers are altered.

Attacks on data flip labels or add a trigger to images. Others find the update of the shared vector in a client's
answer, and replace it.

Clients that collude (alie, ipm) know what their group would honestly send, no more: each trains on the data of every
member from its own state. The literature often lets them see all honest changes, which makes them stronger.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import InputError, State, stream, tensor_of
from refprotofl.experiment import Experiment
from refprotofl.experiment.attack_kinds import KINDS, hostile_clients, strength_of
from refprotofl.methods import Client, ClientContext, Dense, MessageSchemas, Samples, SparseVector, ValidatedMessage
from refprotofl.privacy import PrivateSamples, open_samples
from refprotofl.wire import Message, Sparse

POISONED = 0.5  # share of a backdoor client's samples that carry the trigger


def flipped(samples: Samples, num_classes: int) -> Samples:
    """Return the samples with the first class labelled as the last, the second as the last but one, and so on."""
    return samples.relabelled(num_classes - 1 - samples.own_labels)


def stamped(images: Tensor) -> Tensor:
    """Return copies of images (N, channels, H, W) uint8 with a bright square in the lower right corner."""
    side = trigger_side(images)
    marked = images.clone()
    marked[..., -side:, -side:] = 255
    return marked


def trigger_side(images: Tensor) -> int:
    """Return the side of the trigger, a seventh of the image: 4 of 28 pixels, 2 of 8."""
    return max(2, min(images.shape[-2:]) // 7)


def poisoned(samples: Samples, target: int, draw: np.random.Generator) -> Samples:
    """Return a copy in which some of the samples carry the trigger and the target's label."""
    images, labels = samples.own_inputs.clone(), samples.own_labels.clone()
    chosen = torch.from_numpy(np.sort(draw.permutation(len(labels))[: max(1, round(POISONED * len(labels)))]))
    images[chosen.to(images.device)] = stamped(images[chosen.to(images.device)])
    labels[chosen] = target
    return Samples(images, labels, torch.arange(len(labels)))


WHOLE, MASKED = "shared", ("adapter", "change")  # the fields that an update is found in


@dataclass(frozen=True)
class Update:
    """The change of the shared vector in a client's answer: all of it, or some coordinates."""

    name: str  # of the field
    change: Tensor  # (P,), or (sent,) at `indices`
    reference: Tensor | None  # (P,), subtracted from sent values; None where the change itself is sent
    size: int
    indices: Tensor | None = None  # (sent,) ascending

    @property
    def whole(self) -> Tensor:
        """The change (P,), 0 where nothing is sent."""
        if self.indices is None:
            return self.change
        return torch.zeros(self.size).index_copy(0, self.indices, self.change)

    def written(self, change: Tensor, indices: Tensor | None = None) -> Message:
        """Return the field with another change, at other coordinates if they are given."""
        indices = self.indices if indices is None else indices
        if self.reference is not None:
            change = change + (self.reference if indices is None else self.reference[indices])
        return {self.name: change if indices is None else Sparse(indices, change, self.size)}


def find_update(request: Message, answer: Message, state: State) -> Update | None:
    """Return the update in an answer. `state`, the client's after it, has an adapter that it was sent before."""
    if isinstance(trained := answer.get(WHOLE), Tensor):
        reference = ValidatedMessage(request).tensor(WHOLE)
        return Update(WHOLE, trained - reference, reference, len(trained))
    for name in MASKED:
        if isinstance(sent := answer.get(name), Sparse):
            base = tensor_of(state, name) if name == "adapter" else None
            change = sent.values if base is None else sent.values - base[sent.indices]
            return Update(name, change, base, sent.size, sent.indices)
    return None


def hidden(changes: Sequence[Tensor], deviations: float) -> Tensor:
    """Return the mean of the group's changes (n, P) minus this many standard deviations: a little is enough."""
    group = torch.stack(list(changes))
    return group.mean(dim=0) - deviations * group.std(dim=0)


def opposed(changes: Sequence[Tensor], factor: float) -> Tensor:
    """Return a change against the mean of the group's changes (n, P): inner-product manipulation."""
    return -factor * torch.stack(list(changes)).mean(dim=0)


def squatted(update: Update, factor: float, draw: np.random.Generator) -> Message:
    """Return as many coordinates as are due, but drawn at random, with large values."""
    count = len(update.change)
    indices = torch.from_numpy(np.sort(draw.choice(update.size, count, replace=False)))
    return update.written(torch.full((count,), factor * float(update.change.abs().max())), indices)


def noise(update: Update, factor: float, draw: np.random.Generator) -> Tensor:
    """Return the change of a client that did not train: small next to the vector, or to its change if that is sent."""
    base = update.change if update.reference is None else update.reference
    scale = factor * float(base.square().mean().sqrt())
    return scale * torch.from_numpy(draw.standard_normal(len(update.change))).to(update.change.dtype)


def shifted(prototypes: Tensor, factor: float, ways: Tensor) -> Tensor:
    """Return rows (n, m), each moved along its direction (n, m) by `factor` times the rows' mean length."""
    return prototypes + factor * float(prototypes.norm(dim=1).mean()) * ways


SPARED = ("join", "evaluate")  # verbs that hostile clients answer as others do
Make = Callable[[ClientContext, State], Client]


def check_reach(experiment: Experiment, messages: MessageSchemas) -> None:
    """Refuse an attack that alters something which the method's clients do not send."""
    kind, table = experiment.attack.kind, experiment.attack
    if kind == "none":
        return
    fields = [(name, field) for verb, one in messages.items() if verb not in SPARED for name, field in one.up.items()]
    sparse = any(
        name in MASKED and isinstance(field, SparseVector) and field.dtype == torch.float32 for name, field in fields
    )
    found = {
        "mask": sparse,
        "update": sparse or any(name == WHOLE and isinstance(field, Dense) for name, field in fields),
        "prototypes": any(field.kind == "prototype_values" for _, field in fields),
        "data": True,
    }
    if not found[KINDS[kind].alters]:
        what = {"mask": "chosen coordinates in float32", "update": "changes of weights in float32"}
        raise InputError(
            f"attack.kind = {kind!r} alters {what.get(KINDS[kind].alters, 'class prototypes')}, of which "
            f"method = {experiment.method!r} with these settings sends none up."
        )
    if table.target >= experiment.known_input.num_classes:
        raise InputError(f"attack.target = {table.target}: classes are 0 to {experiment.known_input.num_classes - 1}.")


def recruited(
    experiment: Experiment, honest: Make, samples: Callable[[int], Samples]
) -> "Callable[[ClientContext, State], Client | HostileClient]":
    """Return a function that makes clients, hostile ones where the draw says so. `samples` returns a client's own."""
    group = hostile_clients(experiment)

    def make(context: ClientContext, state: State) -> "Client | HostileClient":
        return (
            HostileClient(context, state, honest, group, samples)
            if context.client_id in group
            else honest(context, state)
        )

    return make


class HostileClient:
    def __init__(
        self, context: ClientContext, state: State, honest: Make, group: list[int], samples: Callable[[int], Samples]
    ) -> None:
        self._context = replace(context, samples=poison(context))
        self._before = dict(state)
        self._honest = honest
        self._group = group
        self._samples = samples
        self._client = honest(self._context, state)
        self._kind, self._strength = context.experiment.attack.kind, strength_of(context.experiment)

    @property
    def state(self) -> State:
        return self._client.state

    def answer(self, verb: str, round: int, message: Message) -> Message:
        message = self._client.complete(message)
        answer = self._client.answer(verb, round, message)
        if verb in SPARED:
            return answer
        if self._kind == "prototype-shift":
            return answer | self.shifted(verb, answer)
        update = find_update(message, answer, self.state)
        return answer if update is None else answer | self.altered(update, verb, round, message)

    def altered(self, update: Update, verb: str, round: int, message: Message) -> Message:
        """Return the field of the update as the attack alters it; data attacks do not."""
        kind, strength = self._kind, self._strength
        if kind == "squat":
            return squatted(update, strength, self.draw("squat"))
        if kind in ("alie", "ipm"):
            common = (hidden if kind == "alie" else opposed)(
                [self.sent_with(member, update, verb, round, message) for member in self._group], strength
            )
            return update.written(common if update.indices is None else common[update.indices])
        if kind == "freerider":
            return update.written(noise(update, strength, self.draw("freerider", round)))
        factors = {"signflip": -strength, "scaling": strength}
        return update.written(factors[kind] * update.change) if kind in factors else {}

    def sent_with(self, member: int, own: Update, verb: str, round: int, message: Message) -> Tensor:
        """Return the whole change (P,) that this client would honestly send if it had another's data."""
        if member == self._context.client_id:
            return own.whole
        client = self._honest(replace(self._context, samples=self._samples(member)), dict(self._before))
        found = find_update(message, client.answer(verb, round, message), client.state)
        return own.whole if found is None else found.whole

    def shifted(self, verb: str, answer: Message) -> Message:
        """Return the answer's prototypes, each moved in the direction that hostile clients share for its class."""
        fields = self._context.messages[verb].up if verb in self._context.messages else {}
        rows = {name: answer.get(name) for name, field in fields.items() if field.kind == "prototype_values"}
        experiment = self._context.experiment
        shape = (experiment.known_input.num_classes, experiment.model.embedding)
        drawn = torch.from_numpy(stream(experiment.seed, "prototype-shift").standard_normal(shape)).float()
        ways = functional.normalize(drawn)  # (C, m)
        return {
            name: shifted(value, self._strength, ways[classes_of(name, answer, len(value)) % len(ways)])
            for name, value in rows.items()
            if isinstance(value, Tensor)
        }

    def draw(self, purpose: str, round: int | None = None) -> np.random.Generator:
        return stream(self._context.experiment.seed, purpose, client=self._context.client_id, round=round)


def classes_of(name: str, answer: Message, rows: int) -> Tensor:
    """Return the class of each row of prototypes, (rows,); where the answer does not name them they are in order."""
    named = answer.get("classes") if name in ("prototypes", "local_prototypes") else None
    return named.long() if isinstance(named, Tensor) else torch.arange(rows)


def poison(context: ClientContext) -> Samples:
    """Return the samples that a hostile client trains on: its own, altered if the attack is on data."""
    experiment, (samples, noise) = context.experiment, open_samples(context.samples)
    if experiment.attack.kind == "labelflip":
        samples = flipped(samples, experiment.known_input.num_classes)
    if experiment.attack.kind == "backdoor":
        draw = stream(experiment.seed, "backdoor", client=context.client_id)
        samples = poisoned(samples, experiment.attack.target, draw)
    return samples if noise is None else PrivateSamples(samples, noise)
