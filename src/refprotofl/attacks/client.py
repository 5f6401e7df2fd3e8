"""A hostile client: any method's own, but its data or what leaves it are altered.

Clients that collude (alie, ipm) know what their group would honestly send, no more: each trains on the data of every
member from where it stands itself. The literature often lets them see all honest changes, which makes them stronger.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.attacks import updates
from refprotofl.attacks.data import flipped, poisoned
from refprotofl.attacks.kinds import KINDS, hostile_clients, strength_of
from refprotofl.basics.state import State
from refprotofl.basics.streams import stream
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.methods.core.client import Client, Seat
from refprotofl.methods.core.fields import Dense, Exchanges, SparseVector
from refprotofl.methods.core.private_samples import PrivateSamples, open_samples
from refprotofl.methods.core.samples import Samples
from refprotofl.wire import Message

SPARED = ("join", "evaluate")  # what hostile clients answer as others do
Make = Callable[[Seat, State], Client]


def check_reach(experiment: Experiment, messages: Exchanges) -> None:
    """Whether the method's clients send what the attack alters."""
    kind, table = experiment.attack.kind, experiment.attack
    if kind == "none":
        return
    fields = [(name, field) for verb, one in messages.items() if verb not in SPARED for name, field in one.up.items()]
    sparse = any(
        name in updates.MASKED and isinstance(field, SparseVector) and field.dtype == torch.float32
        for name, field in fields
    )
    found = {
        "mask": sparse,
        "update": sparse or any(name == updates.WHOLE and isinstance(field, Dense) for name, field in fields),
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
) -> "Callable[[Seat, State], Client | HostileClient]":
    """Makes clients: hostile ones where the draw says so. `samples` are those that a client holds."""
    group = hostile_clients(experiment)

    def make(seat: Seat, state: State) -> "Client | HostileClient":
        return HostileClient(seat, state, honest, group, samples) if seat.number in group else honest(seat, state)

    return make


class HostileClient:
    def __init__(
        self, seat: Seat, state: State, honest: Make, group: list[int], samples: Callable[[int], Samples]
    ) -> None:
        self._seat = replace(seat, samples=poison(seat))
        self._before = dict(state)
        self._honest = honest
        self._group = group
        self._samples = samples
        self._client = honest(self._seat, state)
        self._kind, self._strength = seat.experiment.attack.kind, strength_of(seat.experiment)

    @property
    def state(self) -> State:
        return self._client.state

    def answer(self, verb: str, round: int, message: Message) -> Message:
        answer = self._client.answer(verb, round, message)
        if verb in SPARED:
            return answer
        if self._kind == "prototype-shift":
            return answer | self.shifted(verb, answer)
        update = updates.find_update(message, answer, self.state)
        return answer if update is None else answer | self.altered(update, verb, round, message)

    def altered(self, update: updates.Update, verb: str, round: int, message: Message) -> Message:
        """The field of the update as this kind of attack has it; data attacks leave it."""
        kind, strength = self._kind, self._strength
        if kind == "squat":
            return updates.squatted(update, strength, self.draw("squat"))
        if kind in ("alie", "ipm"):
            common = (updates.hidden if kind == "alie" else updates.opposed)(
                [self.sent_with(member, update, verb, round, message) for member in self._group], strength
            )
            return update.written(common if update.places is None else common[update.places])
        if kind == "freerider":
            return update.written(updates.noise(update, strength, self.draw("freerider", round)))
        factors = {"signflip": -strength, "scaling": strength}
        return update.written(factors[kind] * update.change) if kind in factors else {}

    def sent_with(self, member: int, own: updates.Update, verb: str, round: int, message: Message) -> Tensor:
        """The whole change (P,) that this client would honestly send if it had another's data."""
        if member == self._seat.number:
            return own.whole
        client = self._honest(replace(self._seat, samples=self._samples(member)), dict(self._before))
        found = updates.find_update(message, client.answer(verb, round, message), client.state)
        return own.whole if found is None else found.whole

    def shifted(self, verb: str, answer: Message) -> Message:
        """All prototypes of the answer, those of a class in a direction that all hostile clients have in common."""
        fields = self._seat.messages[verb].up if verb in self._seat.messages else {}
        rows = {name: answer.get(name) for name, field in fields.items() if field.kind == "prototype_values"}
        experiment = self._seat.experiment
        shape = (experiment.known_input.num_classes, experiment.model.embedding)
        drawn = torch.from_numpy(stream(experiment.seed, "prototype-shift").standard_normal(shape)).float()
        ways = functional.normalize(drawn)  # (C, m)
        return {
            name: updates.shifted(value, self._strength, ways[classes_of(name, answer, len(value)) % len(ways)])
            for name, value in rows.items()
            if isinstance(value, Tensor)
        }

    def draw(self, purpose: str, round: int | None = None) -> np.random.Generator:
        return stream(self._seat.experiment.seed, purpose, client=self._seat.number, round=round)


def classes_of(name: str, answer: Message, rows: int) -> Tensor:
    """The class of each row of prototypes, (rows,); where the answer does not name them they are in order."""
    named = answer.get("classes") if name in ("prototypes", "local_prototypes") else None
    return named.long() if isinstance(named, Tensor) else torch.arange(rows)


def poison(seat: Seat) -> Samples:
    """What a hostile client trains on: its own samples, unless the attack is one on data."""
    experiment, (samples, mechanism) = seat.experiment, open_samples(seat.samples)
    if experiment.attack.kind == "labelflip":
        samples = flipped(samples, experiment.known_input.num_classes)
    if experiment.attack.kind == "backdoor":
        draw = stream(experiment.seed, "backdoor", client=seat.number)
        samples = poisoned(samples, experiment.attack.target, draw)
    return samples if mechanism is None else PrivateSamples(samples, mechanism)
