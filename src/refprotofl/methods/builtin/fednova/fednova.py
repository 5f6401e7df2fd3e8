"""FedNova (Wang et al. 2020): each client's change is divided by how far its own steps could have carried it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.methods import (
    Client,
    Cohort,
    MessageSchema,
    MessageSchemas,
    Real,
    Refused,
    Scope,
    Server,
    ServerContext,
    Upload,
    ValidatedMessage,
    Whole,
    aggregate_uploads,
    apply_update,
    proximal_term,
)
from refprotofl.methods.builtin.fednova import Options
from refprotofl.methods.common import weights
from refprotofl.models import SplitModel
from refprotofl.wire import Message


def progress(steps: int, momentum: float, lr: float = 0.0, mu: float = 0.0) -> float:
    """Return |a|_1, the total weight with which a round's gradients enter the local change.

    It follows the recursion over the steps, with the proximal term as part of the loss: it enters the momentum.
    """
    velocity = total = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1 - lr * mu * total
        total += velocity
    return total


class FedNovaServer(Server):
    sends_weights: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.shared = context.model.read(context.parts)  # (P,)
        self.velocity = torch.zeros_like(self.shared)  # server momentum
        # Of each client's latest change: |a_k|, and the steps that it took.
        self.progress = torch.ones(context.experiment.clients, dtype=torch.float64)
        self.steps = torch.zeros(context.experiment.clients, dtype=torch.int64)

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        steps = {"steps": Whole(low=1)} if scope.options.mu else {}
        trained = MessageSchema(weights.broadcast(scope), {**weights.change(scope), "progress": Real(above=0), **steps})
        return {**weights.message_schemas(scope), "train": trained}

    @property
    def state_names(self) -> Sequence[str]:
        names = ["shared", "samples"] + (["velocity"] if self.options.server_momentum else [])
        return names + (["progress", "steps"] if self.context.feedback.server_memory else [])

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        requests = weights.requests(self, cohort.round, self.shared)
        answers = self.ask(cohort, "train", requests, partial(self.read, cohort.round))
        move = aggregate_uploads(self.aggregator, len(self.shared), self.uploads(cohort.round, answers))
        self.step(cohort.round, move)

    def read(self, round: int, client: int, answer: ValidatedMessage) -> tuple[Tensor, float, int]:
        """Return a client's change, its |a_k| and, with a proximal term, its steps.

        The last two must follow from the number of samples that it joined with: a client cannot gain weight by
        reporting less.
        """
        settings = self.experiment.train_in_round(round)
        steps = settings.steps(int(self.samples[client]))
        expected = progress(steps, settings.momentum, settings.lr, self.options.mu)
        reported = answer.real("progress"), answer.whole("steps") if self.options.mu else 0
        if not math.isclose(reported[0], expected, rel_tol=1e-9) or reported[1] not in (0, steps):
            raise Refused(f"progress = {reported[0]!r} is not that of {steps} steps, {expected!r}")
        return weights.read_change(self, round, self.shared, client, answer), *reported

    def uploads(self, round: int, answers: Iterable[tuple[int, tuple[Tensor, float, int]]]) -> Iterator[Upload]:
        """Yield each change, to be divided by its client's |a_k|."""
        for client, change in weights.counted(self, round, self.noted(answers)):
            yield Upload(change.to(torch.float64), float(self.samples[client]), progress=float(self.progress[client]))

    def noted(self, answers: Iterable[tuple[int, tuple[Tensor, float, int]]]) -> Iterator[tuple[int, Tensor]]:
        for client, (change, own, steps) in answers:
            self.progress[client], self.steps[client] = own, steps
            yield client, change

    def step(self, round: int, move: Tensor) -> None:
        momentum = self.options.server_momentum
        self.velocity = (momentum * self.velocity.to(torch.float64) + move).to(torch.float32)
        target = apply_update(self.shared, self.velocity.to(torch.float64) if momentum else move)
        self.shared = self.downlink.advance(round, self.shared, target)

    def evaluation(self) -> Message:
        return {"shared": self.shared}

    def global_model(self) -> SplitModel | None:
        return self.whole_model(self.shared)


class FedNovaClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        settings, mu = self.experiment.train_in_round(round), self.options.mu
        trained = self.fit(round, grad_hook=proximal_term(self, received, mu))
        answer = weights.write_update(self, round, received, self.keep_trained(round))
        answer["progress"] = progress(trained.steps, settings.momentum, settings.lr, mu)
        return answer | ({"steps": trained.steps} if mu else {})

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
