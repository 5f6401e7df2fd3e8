"""What every method is made of: a server, a client, and the one verb between them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np
from torch import Tensor

from refprotofl import streams
from refprotofl.errors import RefProtoFLError
from refprotofl.evaluation import TestSet, adapter_predictions, backbone_features, count_correct
from refprotofl.experiment import Experiment
from refprotofl.methods import guards
from refprotofl.methods.training import Samples
from refprotofl.models import SplitModel
from refprotofl.models.split import BACKBONE
from refprotofl.state import State
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind

Read = TypeVar("Read")

LOST = "lost"  # a client's answer when its store does not hold what the request builds on


class Refused(RefProtoFLError):
    """A client's message is well formed, but not what the experiment asks for."""


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

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None) -> None:
        self.experiment = experiment
        self.model = model
        self.public = public

    @property
    @abstractmethod
    def state(self) -> State:
        """Everything that must outlive a round."""

    @abstractmethod
    def restore(self, state: State) -> None: ...

    @abstractmethod
    def round(self, cohort: Cohort) -> None: ...

    @abstractmethod
    def evaluation(self) -> Message:
        """What a client is sent when it is to evaluate the newest shared part."""

    def greeting(self) -> Message:
        """What a client gets once, when it joins or has lost its store."""
        return {}

    def welcome(self, client: int, answer: Message) -> None:  # noqa: B027 - most methods need not know
        """Takes note of a client that has just joined."""

    def ask(
        self,
        cohort: Cohort,
        verb: str,
        message: Callable[[int], Message],
        read: Callable[[int, Message], Read],
    ) -> Iterator[tuple[int, Read]]:
        """`cohort.ask` with each answer read; who lost its store joins anew and is asked once more."""
        for client, first in cohort.ask(verb, message):
            answer: Message | None = first
            if LOST in first:
                self.join(cohort, [client])
                answer = dict(cohort.ask(verb, message, to=[client])).get(client)
            if answer is not None:
                yield from self.accepted(cohort, client, verb, answer, read)

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

    def join(self, cohort: Cohort, clients: Iterable[int]) -> None:
        greeting = self.greeting()
        for client, answer in cohort.ask("join", greeting, to=clients, once=True):
            for _ in self.accepted(cohort, client, "join", answer, self.welcome):
                pass


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
    initial_adapter: Tensor  # (d,), common to all
    shelf: Shelf


class Client(ABC):
    """A method's client. It answers by name; `state` is private and never leaves it as a whole."""

    verbs: ClassVar[tuple[str, ...]] = ("join", "train", "evaluate")

    def __init__(self, seat: Seat, state: State) -> None:
        self.seat = seat
        self.experiment = seat.experiment
        self.model = seat.model
        self.samples = seat.samples
        self.state = state

    def answer(self, verb: str, round: int, message: Message) -> Message:
        if verb not in self.verbs:
            raise Refused(f"there is no {verb!r} to ask this client for")
        handler: Callable[[int, Message], Message] = getattr(self, verb)
        return handler(round, message)

    def stream(self, purpose: str, round: int) -> np.random.Generator:
        return streams.stream(self.experiment.seed, purpose, client=self.seat.number, round=round)

    def join(self, round: int, message: Message) -> Message:
        return {}

    @abstractmethod
    def train(self, round: int, message: Message) -> Message: ...

    @abstractmethod
    def evaluate(self, round: int, message: Message) -> Message: ...

    @staticmethod
    def load_final(model: SplitModel, server: State, own: State) -> None:
        """Writes what a client ends up with into a model that has its initial weights: private + newest shared part."""
        model.write_backbone(own)  # type: ignore[arg-type]
        model.write_adapter(server["adapter"])  # type: ignore[arg-type]

    def load_backbone(self) -> None:
        self.model.write_backbone(self.state)  # type: ignore[arg-type]

    def keep_backbone(self) -> None:
        """Keeps the trained backbone; one that should have moved and did not is an error."""
        trained = self.model.read_backbone()
        names = [
            BACKBONE + name for name, parameter in self.model.backbone.named_parameters() if parameter.requires_grad
        ]
        guards.backbone_moved([(self.state[name], trained[name]) for name in names])  # type: ignore[misc]
        self.state |= trained

    def score(self, adapter: Tensor, before: Tensor | None, anchors: Tensor | None, defined: Tensor | None) -> Message:
        """Correct predictions by protocol: with `adapter`, and `before` it where the client trained in this round."""
        self.load_backbone()
        features = backbone_features(self.model, self.seat.test.images)
        self.model.write_adapter(adapter)
        counts = count_correct(adapter_predictions(self.model, features, anchors, defined), self.seat.test)
        if before is not None:
            self.model.write_adapter(before)
            predicted = adapter_predictions(self.model, features)
            counts["personal_before"] = count_correct(predicted, self.seat.test)["personal"]
        return dict(counts)
