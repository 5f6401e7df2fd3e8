"""What every method is made of: a server, a client, and the one verb between them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from refprotofl.basics import streams
from refprotofl.basics.state import State, digest_value
from refprotofl.errors import RefProtoFLError
from refprotofl.evaluation.scoring import TestSet, adapter_predictions, backbone_features, count_correct
from refprotofl.experiment import Experiment
from refprotofl.methods import guards
from refprotofl.methods.link import open_link
from refprotofl.methods.training import Samples
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind

Read = TypeVar("Read")

LOST = "lost"  # a client's answer when its store does not hold what the request builds on


class Refused(RefProtoFLError):
    """A client's message is well formed, but not what the experiment asks for."""


class Lost(Exception):
    """A client's store does not hold what the request builds on; the client answers that it is lost."""


class Cohort(Protocol):
    """The clients of one round, wherever they run."""

    round: int

    @property
    def clients(self) -> Sequence[int]:
        """Those still taking part, in id order."""

    def ask(
        self,
        verb: str,
        message: Message | Callable[[int], Message],
        *,
        to: Iterable[int] | None = None,
        once: bool = False,
    ) -> Iterator[tuple[int, Message]]:
        """Answers in client order; who failed or sent something unreadable is absent and out of the round.

        `once` marks traffic that does not recur every round.
        """

    def drop(self, client: int, reason: str) -> None: ...

    def sent(self, client: int) -> int:
        """Bytes that this client's answers took in this round so far, one-off traffic apart."""


class Server(ABC):
    """A method's server. Its state is plain data, so a checkpoint is that and nothing else."""

    # What a message's fields are counted as; every other number is an "other value".
    kinds: ClassVar[Mapping[str, Kind]] = {}
    # Whether clients send up how far the shared weights moved, which [compress] can shorten.
    sends_weights: ClassVar[bool] = False

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        self.experiment = experiment
        self.model = model
        self.public = public
        self.parts = parts
        self.num_classes = experiment.known_input.num_classes
        self.samples = torch.zeros(experiment.clients, dtype=torch.int64)  # 0: has not joined yet
        self.link = open_link(experiment, sum(model.sizes(parts)))  # its tensors are part of the state

    @property
    @abstractmethod
    def state_names(self) -> Sequence[str]:
        """The attributes that must outlive a round: tensors, numbers, texts."""

    @property
    def state(self) -> State:
        return {name: getattr(self, name) for name in self.state_names} | self.link.state

    def restore(self, state: State) -> None:
        for name in self.state_names:
            setattr(self, name, state[name])
        self.link.restore(state)

    @abstractmethod
    def round(self, cohort: Cohort) -> None: ...

    @abstractmethod
    def evaluation(self) -> Message:
        """What a client is sent when it is to evaluate the newest shared part."""

    def global_model(self) -> SplitModel | None:
        """The one aggregated model, where the method has one."""
        return None

    def facts(self) -> dict[str, float | int | str]:
        """What must be known beside an accuracy to read it right; from the state, recorded with every evaluation."""
        return {}

    @property
    def ships_public_set(self) -> bool:
        """Whether a client that joins is given the public set."""
        return self.experiment.public.train_on

    def join(self, cohort: Cohort, clients: Iterable[int]) -> None:
        """Once a client: it gets the public set, if the method wants it to, and tells how many samples it has."""
        greeting: Message = {}
        if self.public is not None and self.ships_public_set:
            labels = class_ids(self.public.own_labels, self.num_classes)
            greeting = {"images": self.public.images[self.public.rows], "labels": labels}
        self.ask_once(cohort, "join", greeting, clients, self.welcome)

    def ask_once(
        self,
        cohort: Cohort,
        verb: str,
        message: Message | Callable[[int], Message],
        clients: Iterable[int],
        read: Callable[[int, Message], None],
    ) -> None:
        """Asks some clients for what does not recur every round; `read` takes it in."""
        for client, answer in cohort.ask(verb, message, to=clients, once=True):
            for _ in self.accepted(cohort, client, verb, answer, read):
                pass

    def join_newcomers(self, cohort: Cohort) -> None:
        self.join(cohort, [client for client in cohort.clients if self.samples[client] == 0])

    def welcome(self, client: int, answer: Message) -> None:
        samples = answer["samples"]
        if type(samples) is not int or samples < 1:
            raise Refused(f"samples = {samples!r} is not a positive whole number")
        self.samples[client] = samples
        self.link.forget(client)

    def ask(
        self,
        cohort: Cohort,
        verb: str,
        message: Message | Callable[[int], Message],
        read: Callable[[int, Message], Read],
    ) -> Iterator[tuple[int, Read]]:
        """`cohort.ask` with each answer read; who lost its store joins anew and is asked once more."""
        asked = set(cohort.clients)
        for client, first in cohort.ask(verb, message):
            answer: Message | None = first
            if LOST in first:
                self.join(cohort, [client])
                answer = dict(cohort.ask(verb, message, to=[client])).get(client)
            if answer is not None:
                yield from self.accepted(cohort, client, verb, answer, read)
        if len(self.link.memory):
            for client in asked.difference(cohort.clients):
                self.samples[client] = 0  # its own memory may have gone on: it joins anew

    def accepted(
        self, cohort: Cohort, client: int, verb: str, answer: Message, read: Callable[[int, Message], Read]
    ) -> Iterator[tuple[int, Read]]:
        """The answer's content, or nothing: whoever sends what was not asked for is out of the round."""
        try:
            if LOST in answer:
                raise Refused("its store is lost and did not come back")
            yield client, read(client, answer)
        except KeyError as field:
            cohort.drop(client, f"{verb}: the field {field} is missing")
        except Refused as problem:
            cohort.drop(client, f"{verb}: {problem}")


class Shelf(Protocol):
    """Keeps the large constant messages that a client was given; equal ones are kept once."""

    def put(self, message: Message) -> str: ...

    def get(self, digest: str) -> Message | None: ...


@dataclass(frozen=True)
class Seat:
    """What a client has where it lives: its number, its data, a model to compute with, its store."""

    number: int
    experiment: Experiment
    samples: Samples
    test: TestSet
    model: SplitModel
    parts: Parts  # shared with the others
    shelf: Shelf
    memo: dict[str, Tensor]  # common to all clients of a place: features under the newest shared backbone


class Client(ABC):
    """A method's client. It answers by name; `state` is private and never leaves it as a whole."""

    verbs: ClassVar[tuple[str, ...]] = ("join", "train", "evaluate")

    def __init__(self, seat: Seat, state: State) -> None:
        self.seat = seat
        self.experiment = seat.experiment
        self.model = seat.model
        self.parts = seat.parts
        self.samples = seat.samples
        self.state = state

    def answer(self, verb: str, round: int, message: Message) -> Message:
        if verb not in self.verbs:
            raise Refused(f"there is no {verb!r} to ask this client for")
        handler: Callable[[int, Message], Message] = getattr(self, verb)
        try:
            return handler(round, message)
        except Lost:
            return {LOST: True}

    def join(self, round: int, message: Message) -> Message:
        if "images" in message:
            self.state["public"] = self.seat.shelf.put(message)
        if self.experiment.feedback == "ef21":
            self.state["memory"] = torch.zeros(sum(self.model.sizes(self.parts)))  # as the server's: it forgets, too
        return {"samples": len(self.training_samples())}

    @abstractmethod
    def train(self, round: int, message: Message) -> Message: ...

    @abstractmethod
    def evaluate(self, round: int, message: Message) -> Message: ...

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        """Writes what a client ends up with into a model that has its initial weights: private + newest shared part."""
        model.write_private(own)
        if parts:
            model.write(parts, server["shared"])  # type: ignore[arg-type]

    @property
    def num_classes(self) -> int:
        return self.experiment.known_input.num_classes

    def stream(self, purpose: str, round: int) -> np.random.Generator:
        return streams.stream(self.experiment.seed, purpose, client=self.seat.number, round=round)

    def public_set(self) -> tuple[Tensor, Tensor] | None:
        """Public images and labels; None if the experiment has them but the store has not."""
        if not self.experiment.public.classes:
            images = torch.zeros(0, *self.experiment.known_input.shape, dtype=torch.uint8)
            return images, torch.zeros(0, dtype=torch.int64)
        kept = self.seat.shelf.get(str(self.state["public"])) if "public" in self.state else None
        return None if kept is None else (kept["images"], kept["labels"].long())  # type: ignore[return-value, union-attr]

    def training_samples(self) -> Samples:
        """The client's own samples, and the public ones with `public.train-on`."""
        public = self.public_set() if self.experiment.public.train_on else None
        return self.samples if public is None else self.samples.joined(*public)

    def keep_trained(self, round: int) -> Tensor:
        """Keeps what training left in the model: the private part, and the shared vector for `personal_before`."""
        trained = self.model.read_private(self.parts)
        movable = [name for name, parameter in self.model.backbone.named_parameters() if parameter.requires_grad]
        pairs = [
            (self.state[name], trained[name]) for name in (f"backbone.{name}" for name in movable) if name in trained
        ]
        guards.backbone_moved(pairs)  # type: ignore[arg-type]
        self.state |= trained
        local = self.model.read(self.parts)
        self.state["trained"], self.state["trained_round"] = local, round
        return local

    def load_trained(self) -> None:
        """Puts what training left into a model that has the private part already, for `personal_before`."""
        self.model.write(self.parts, self.state["trained"])  # type: ignore[arg-type]

    def test_features(self, newest: Tensor) -> Tensor:
        """What the backbone makes of the test images, (T, width); a backbone that all have is asked once for all."""
        if "backbone" not in self.parts or any(True for _ in self.model.buffers()):
            return backbone_features(self.model, self.seat.test.images)
        memo, key = self.seat.memo, digest_value(newest)
        if key not in memo:
            memo.clear()
            memo[key] = backbone_features(self.model, self.seat.test.images)
        return memo[key]

    def score(
        self, round: int, newest: Tensor, anchors: Tensor | None = None, defined: Tensor | None = None
    ) -> Message:
        """Correct predictions by protocol: with the newest shared part, and with its own after training."""
        self.model.write_private(self.state)
        self.model.write(self.parts, newest)
        test = self.seat.test
        features = self.test_features(newest)
        counts = count_correct(adapter_predictions(self.model, features, self.num_classes, anchors, defined), test)
        if self.state.get("trained_round") == round:
            self.load_trained()
            if "backbone" in self.parts:
                features = backbone_features(self.model, test.images)
            before = count_correct(adapter_predictions(self.model, features, self.num_classes), test)
            counts["personal_before"] = before["personal"]
        return dict(counts)


def class_ids(classes: Tensor, num_classes: int) -> Tensor:
    """Class numbers in the narrowest type that holds them."""
    return classes.to(torch.uint8 if num_classes <= 256 else torch.int16)
