"""FedMD (Li and Wang 2019): clients with models of their own teach each other by their logits of public images."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.core import InputError, Parts, State
from refprotofl.methods import (
    Client,
    Cohort,
    Dense,
    MessageSchema,
    MessageSchemas,
    Samples,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    classify,
    declare,
    embed,
)
from refprotofl.methods.builtin.fedmd import Options
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class FedMDServer(Server):
    """Algorithm 1 of the paper, with "communicate" and "aggregate" at the end of a round."""

    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        if context.public is None:
            raise InputError('method = "fedmd" teaches over public images: public.per-class must be above 0.')
        self.public_size = len(context.public)  # D
        self.consensus = torch.zeros(self.public_size, self.num_classes)  # (D, C); 0 before the first round
        self.newcomers: list[int] = []  # of this round
        self.digested = False  # in this round

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        public = scope.experiment.public
        logits = Dense(((public.per_class or 0) * len(public.classes or ()), scope.classes))
        down = {"consensus": replace(logits, optional=True)}  # none in the first round
        return declare(scope, train=MessageSchema(down, {"logits": logits}))

    @property
    def state_names(self) -> Sequence[str]:
        return ("consensus", "samples")

    @property
    def ships_public_set(self) -> bool:
        return True

    def round(self, cohort: Cohort) -> None:
        self.newcomers, self.digested = [], bool(self.consensus.any())
        self.join_newcomers(cohort)
        request: Message = {"consensus": self.consensus} if self.digested else {}
        answers = self.ask(cohort, "train", request, lambda _, answer: answer.tensor("logits"))
        self.consensus = self.aggregator.merge_public(torch.stack([logits for _, logits in answers]))

    def welcome(self, client: int, answer: ValidatedMessage) -> None:
        super().welcome(client, answer)
        self.newcomers.append(client)

    def public_steps(self, cohort: Cohort) -> int:
        digests = self.options.digest_epochs * len(cohort.clients) if self.digested else 0
        passes = self.options.pretrain_epochs * len(self.newcomers) + digests
        return passes * self.experiment.train.steps_per_epoch(self.public_size)

    def evaluation(self) -> Message:
        return {}


class FedMDClient(Client):
    options: Options

    def join(self, round: int, message: ValidatedMessage) -> Message:
        answer = super().join(round, message)
        if self.options.pretrain_epochs:  # transfer learning
            images, labels = self.public_set()
            public, order = Samples(images, labels, torch.arange(len(labels))), self.stream("pretrain", round)
            self.load()
            self.fit(round, samples=public, order=order, epochs=self.options.pretrain_epochs)
            self.state |= self.model.read_private(self.parts)
        return answer

    def train(self, round: int, message: ValidatedMessage) -> Message:
        images, _ = self.public_set()
        self.load()
        if "consensus" in message:
            self.digest(round, images, message.tensor("consensus"))
        self.fit(round)  # "revisit"
        self.keep_trained(round)
        return {"logits": classify(self.model, embed(self.model, images))}

    def digest(self, round: int, images: Tensor, consensus: Tensor) -> None:
        """Train the loaded model to predict the consensus (D, C), by the mean absolute error of its logits."""
        targets = consensus.to(self.model.device)

        def loss(inputs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            error = (self.model(inputs) - targets[rows]).abs().mean()
            return error, error

        rows = torch.arange(len(images))
        public = Samples(images, rows, rows)  # the images' numbers stand in for labels: targets are found by them
        order, epochs, lr = self.stream("digest", round), self.options.digest_epochs, self.options.digest_lr
        self.fit(round, samples=public, order=order, loss=loss, epochs=epochs, lr=lr, augment=False)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, torch.empty(0))

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        model.write_private(own)
