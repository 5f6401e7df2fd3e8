"""The server side of a method: its context, the state that outlives a round, and how it asks its clients."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from refprotofl.core import Parts, State
from refprotofl.experiment import Experiment
from refprotofl.methods.aggregators import create_aggregator
from refprotofl.methods.base.aggregation import Aggregator, Normalise
from refprotofl.methods.base.broadcast import Downlink, create_changes, fingerprint
from refprotofl.methods.base.cohort import Answers, Cohort
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.schema import (
    MessageSchemas,
    Refused,
    Scope,
    ValidatedMessage,
    class_ids,
    declare,
    is_lost,
    kinds,
    read_answer,
    read_scores,
)
from refprotofl.methods.base.screening import Screening, accepted, norm
from refprotofl.methods.compressors import create_compressor
from refprotofl.methods.declaration import FINETUNE
from refprotofl.methods.feedback import Feedback
from refprotofl.models import SplitModel
from refprotofl.privacy import create_mechanism
from refprotofl.wire import Counted, Kind, Message

Content = TypeVar("Content")
Rest = TypeVar("Rest")


@dataclass(frozen=True)
class ServerContext:
    """All that a server is given."""

    experiment: Experiment
    model: SplitModel
    parts: Parts  # shared with the clients
    public: Samples | None = None
    pooled: Samples | None = None  # all clients' samples, for a method without federation
    test: tuple[Tensor, Tensor] | None = None  # inputs (T, …), labels (T,)
    options: Any = None  # the method's own
    feedback: Feedback = field(default_factory=Feedback)
    most_samples: int | None = None  # of any client, where that is known
    own_tested: Sequence[int] | None = None  # test samples of each client's own, where they are known

    @property
    def num_clients(self) -> int:
        """The number of clients in the federation."""
        return self.experiment.clients

    @property
    def scope(self) -> Scope:
        return Scope(self.experiment, self.model, self.parts, self.options)


def set_aside(
    answers: Iterable[tuple[int, tuple[Content, Rest]]], rest: dict[int, Rest]
) -> Iterator[tuple[int, Content]]:
    """Yield the first half of each answer's content as it comes, and put the other into `rest`."""
    for client, (content, other) in answers:
        rest[client] = other
        yield client, content


class Server(ABC):
    """A method's server. Its state is plain data, so a checkpoint is that and nothing else."""

    # What fields that are not declared by `exchanges` are counted as; every other number is an "other value".
    kinds: ClassVar[Mapping[str, Kind | Counted]] = {}
    # Whether clients send up how far the shared weights moved, which [compress] can shorten.
    sends_weights: ClassVar[bool] = False
    # Whether uploads are averaged by `aggregator`, or as class prototypes, so that the key `aggregate` has an effect.
    averages: ClassVar[bool] = False
    options: Any

    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self.experiment = context.experiment
        self.model = context.model
        self.public = context.public
        self.parts = context.parts
        self.options = context.options
        self.num_classes = context.experiment.known_input.num_classes
        self.messages = self.message_schemas(context.scope)
        self.samples = torch.zeros(context.experiment.clients, dtype=torch.int64)  # 0: has not joined yet
        self.privacy = create_mechanism(context.experiment)
        compares = context.experiment.max_step > 0 and self.privacy.compares_answers
        self.screening = Screening(context.experiment.max_step, compares, self.steps_in_epoch, self.usual_memory)
        # Both are the one that the experiment names; [privacy] adds noise to changes of the shared vector alone.
        named = create_aggregator(context.experiment, self.normalise)
        self.prototype_aggregator: Aggregator = named
        self.named_aggregator: Aggregator = self.privacy.aggregator(named, lambda: self.screening.round)
        self.aggregator: Aggregator = self.named_aggregator  # how the clients' changes become one
        self.compressor = create_compressor(context.experiment)
        size, clients = context.scope.shared, context.experiment.clients
        # The tensors of these two are part of the state.
        compressed = self.compressor.create_downlink(clients, size, context.experiment.seed)
        self.downlink = compressed or self.create_downlink()
        if context.parts:
            self.downlink.derived = fingerprint(context.model.read(context.parts))
            self.downlink.initial = self.downlink.derived if context.experiment.first_weights == "seed" else ""
        self.changes = create_changes(context.feedback, clients, size)

    def create_downlink(self) -> Downlink:
        """Return the way of the shared vector down to the clients, unless the compressor has its own."""
        return Downlink()

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        """Return the fields of each verb's messages; verbs without an entry are not checked.

        A server that declares none may add fields to the messages that all methods have.
        """
        return {verb: replace(exchange, open=True) for verb, exchange in declare(scope).items()}

    @property
    @abstractmethod
    def state_names(self) -> Sequence[str]:
        """The attributes that must outlive a round: tensors, numbers, texts."""

    @property
    def state(self) -> State:
        own = {name: getattr(self, name) for name in self.state_names}
        return own | self.downlink.state | self.changes.state

    def restore(self, state: State) -> None:
        for name in self.state_names:
            setattr(self, name, state[name])
        self.downlink.restore(state)
        self.changes.restore(state)

    @abstractmethod
    def round(self, cohort: Cohort) -> None: ...

    def close(self, cohort: Cohort) -> None:
        """Run after the last round, for all clients that ever joined: they fine-tune where [finetune] asks for it."""
        if self.experiment.finetune.passes:
            for _ in self.ask(cohort, FINETUNE, self.common_model(cohort.round), lambda _, answer: answer):
                pass

    def common_model(self, round: int) -> Callable[[int], Message]:
        """Return what each client is sent after the last round: the common model, or the step to it."""
        model = self.global_model()
        assert model is not None, "[finetune] is refused for methods without a common model"
        return self.downlink.requests(round + 1, "shared", model.read(self.parts), {})

    @abstractmethod
    def evaluation(self) -> Message:
        """Return the message with which a client evaluates the newest shared part."""

    def global_model(self) -> SplitModel | None:
        """Return the one aggregated model, where the method has one."""
        return None

    def whole_model(self, shared: Tensor) -> SplitModel | None:
        """Return the model with this shared vector (P,), unless a part or batch statistics are private to clients."""
        if self.model.read_private(self.parts):
            return None
        self.model.write(self.parts, shared)
        return self.model

    def facts(self, round: int) -> dict[str, float | int | str]:
        """Return facts that an accuracy must be read with; from the state, recorded with the evaluation of a round."""
        return {}

    def observed(self) -> dict[str, Any]:
        """Return observations of the round for its event: no part of the state, 1 kB of JSON at most."""
        return {}

    @property
    def observations(self) -> State:
        """The running totals behind `observed`; checkpoints keep them next to the state, no digest covers them."""
        return {}

    def recall(self, observations: State) -> None:
        """Restore stored observations."""
        raise ValueError(f"{self.experiment.method} keeps no observations")

    @property
    def counted_as(self) -> dict[str, Kind | Counted]:
        """The ledger's category of the fields of all messages."""
        return {**self.kinds, **kinds(self.messages)}

    @property
    def normalise(self) -> Normalise:
        """The clients over which a coordinate is averaged that not all of them sent."""
        return "senders"

    @property
    def ships_public_set(self) -> bool:
        """True where a client that joins is given the public set."""
        return self.experiment.public.train_on

    def join(self, cohort: Cohort, clients: Iterable[int]) -> None:
        """Greet clients that join; each answers with its number of samples."""
        for client, answer in self.ask_once(cohort, "join", self.greeting(), clients, self._read_joined):
            self.welcome(client, answer)

    def greeting(self) -> Message:
        """Return the message to a client that joins: the public set, if the method ships it."""
        if self.public is None or not self.ships_public_set:
            return {}
        labels = class_ids(self.public.own_labels, self.num_classes)
        return {self.experiment.known_input.field: self.public.inputs[self.public.rows], "labels": labels}

    def join_newcomers(self, cohort: Cohort) -> None:
        self.join(cohort, [client for client in cohort.clients if self.samples[client] == 0])

    def _read_joined(self, client: int, answer: ValidatedMessage) -> ValidatedMessage:
        """A number of samples is believed once, within bounds, and stays: it is the weight of all that comes later."""
        reported, before = answer.whole("samples"), int(self.samples[client])
        most = self.experiment.max_samples or self.context.most_samples
        if most is not None and reported > most:
            raise Refused(f"samples = {reported} is more than any client has, max-samples = {most}")
        if before not in (0, reported):
            raise Refused(f"samples = {reported}, but it joined with {before} before")
        return self.read_joined(client, answer)

    def read_joined(self, client: int, answer: ValidatedMessage) -> ValidatedMessage:
        """Check what a client reports when it joins."""
        return answer

    def welcome(self, client: int, answer: ValidatedMessage) -> None:
        self.samples[client] = answer.whole("samples")
        self.downlink.forget(client)
        self.changes.forget(client)

    def ask(
        self,
        cohort: Cohort,
        verb: str,
        message: Message | Callable[[int], Message],
        read: Callable[[int, ValidatedMessage], Content],
    ) -> Answers[Content]:
        """Ask the clients of a round, and return what `read` made of each answer, in client order.

        A client that lost its store joins anew and is asked once more. No answer is returned before all were compared
        (`Screening`). `read` must not change anything: the caller decides what becomes of the answers, and iterates
        over them once.
        """
        self.screening.begin(cohort.round)
        return Answers(verb, self._screened(cohort, verb, self._answers(cohort, verb, message), read))

    def ask_once(
        self,
        cohort: Cohort,
        verb: str,
        message: Message | Callable[[int], Message],
        clients: Iterable[int],
        read: Callable[[int, ValidatedMessage], Content],
    ) -> Answers[Content]:
        """Ask some clients for something that does not recur every round."""
        self.screening.begin(cohort.round)
        return Answers(verb, self._screened(cohort, verb, cohort.ask(verb, message, to=clients, once=True), read))

    def _answers(
        self, cohort: Cohort, verb: str, message: Message | Callable[[int], Message]
    ) -> Iterator[tuple[int, Message]]:
        for client, first in cohort.ask(verb, message):
            answer: Message | None = first
            if is_lost(first):
                self.join(cohort, [client])
                answer = dict(cohort.ask(verb, message, to=[client])).get(client)
            if answer is not None:
                yield client, answer

    def _screened(
        self,
        cohort: Cohort,
        verb: str,
        answers: Iterable[tuple[int, Message]],
        read: Callable[[int, ValidatedMessage], Content],
    ) -> Iterator[tuple[int, Content]]:
        return self.screening.screen(cohort, verb, answers, lambda client, one: read(client, self.checked(verb, one)))

    @property
    def num_clients(self) -> int:
        """The number of clients in the federation."""
        return self.context.num_clients

    def public_steps(self, cohort: Cohort) -> int:
        """Return the optimiser steps that the clients of this round took on the public set alone."""
        return 0

    def local_steps(self, round: int, client: int) -> int:
        """Return the number of steps that a client's `fit` takes in a round, by the samples that it joined with."""
        return self.experiment.train_in_round(round).steps(int(self.samples[client]))

    def steps_in_epoch(self, client: int) -> int:
        """Return the steps of a client's epoch, by the number of samples it joined with; 1 if that is unknown.

        With `train.local-steps` all clients take as many steps as each other.
        """
        settings = self.experiment.train
        return 1 if settings.local_steps else max(1, settings.steps_per_epoch(int(self.samples[client])))

    def usual_memory(self, clients: Iterable[int]) -> float:
        """Return the usual size of changes under EF21, in which old clients send little and new ones all of it."""
        known = [norm(change) for change in self.changes.known(clients)]
        return sorted(known)[len(known) // 2] if known else 0.0

    def scores(self, cohort: Cohort) -> Iterator[tuple[int, ValidatedMessage]]:
        """Yield each client's counts of its predictions with the newest shared part."""

        def read(client: int, answer: Message) -> ValidatedMessage:
            return self._read_scores(client, self.checked("evaluate", answer))

        for client, answer in cohort.ask("evaluate", self.evaluation()):
            yield from accepted(cohort, client, "evaluate", answer, read)

    def _read_scores(self, client: int, counts: ValidatedMessage) -> ValidatedMessage:
        """Refuse scores on more samples than the client can have been tested on."""
        for name, most in self._most_tested(client).items():
            if counts.whole(name) > most:
                raise Refused(f"{name} = {counts[name]} is more than the {most} samples there are to test on")
        return read_scores(client, counts)

    def _most_tested(self, client: int) -> dict[str, int]:
        """The sizes that are known: of the common test set, and of the client's own test data.

        A deployment's server does not see a node's own test data; there max-samples bounds them, where it is set.
        """
        context, most = self.context, {}
        if context.test is not None:
            most["tested"] = len(context.test[1])
        if context.own_tested is not None:
            most["own_tested"] = context.own_tested[client]
        elif self.experiment.max_samples:
            most["own_tested"] = self.experiment.max_samples
        return most

    def checked(self, verb: str, answer: Message) -> ValidatedMessage:
        """Return the answer, checked against the fields that the verb declares."""
        return read_answer(self.messages, verb, answer)
