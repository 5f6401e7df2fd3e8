"""SCAFFOLD (Karimireddy et al. 2020): control variates correct the drift of clients towards their own optima.

A client's variate c_k estimates its gradient, the server's c the mean of all clients'. Local steps follow the client's
gradient plus c - c_k, so that all clients move alike. Option II of the paper renews a variate from the round's change.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import median

import torch
from torch import Tensor

from refprotofl.experiment import Train
from refprotofl.methods import (
    Cohort,
    Dense,
    FedAvgClient,
    FedAvgServer,
    MessageSchema,
    MessageSchemas,
    Scope,
    ServerContext,
    Upload,
    ValidatedMessage,
    add_to_gradients,
    aggregate_uploads,
)
from refprotofl.methods.builtin.fednova.fednova import progress
from refprotofl.methods.builtin.scaffold import Options
from refprotofl.methods.common import weights
from refprotofl.wire import Message


def reach(settings: Train, steps: int) -> float:
    """Return lr |a|: the learning rate times the number of steps, or with momentum the weight of the gradients."""
    return settings.lr * progress(steps, settings.momentum)


class ScaffoldServer(FedAvgServer):
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.variate = torch.zeros_like(self.shared)  # (P,), c: the mean of all clients' variates, 0 before they join

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        variate = {"variate": Dense((scope.shared,), kind="parameters", optional=True)}  # none in the first round
        train = MessageSchema({**weights.broadcast(scope), **variate}, weights.change(scope))
        return {**weights.message_schemas(scope), "train": train}

    @property
    def state_names(self) -> Sequence[str]:
        return (*super().state_names, "variate")

    def round(self, cohort: Cohort) -> None:
        before = weights.population(self)
        self.join_newcomers(cohort)
        self.variate = self.variate * (before / weights.population(self))  # now that newcomers' sizes are known
        extra: Message = {"variate": self.variate} if self.variate.any() else {}
        requests = weights.requests(self, cohort.round, self.shared, extra)
        answers = self.ask(cohort, "train", requests, partial(weights.read_change, self, cohort.round, self.shared))
        change, gradient = self.means(cohort, answers)
        # c <- c + sum_k p_k (c_k+ - c_k), where c_k+ - c_k = -c - change_k / (lr |a_k|)
        variate = self.variate.to(torch.float64)
        self.variate = (variate + weights.turnout(self, cohort) * (gradient - variate)).to(torch.float32)
        self.shared = weights.advance(self, cohort.round, self.shared, self.options.server_lr * change)

    def means(self, cohort: Cohort, changes: Iterable[tuple[int, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return the mean change, and the mean of -change / (lr |a_k|): (P,) in float64.

        Both are one aggregation, so that a client whose change is left out does not move the variate either.
        """
        round, size = cohort.round, len(self.shared)
        reach = {client: self.reach(round, client) for client in cohort.clients}
        usual = median(reach.values())  # so that both halves are of one scale
        uploads = (
            Upload(torch.cat([change, change * (usual / reach[client])]), float(self.samples[client]))
            for client, change in weights.counted(self, round, changes)
        )
        change, even = aggregate_uploads(self.aggregator, 2 * size, uploads).split(size)
        return change, -even / usual

    def reach(self, round: int, client: int) -> float:
        """Return lr |a_k|: how far a client gets along a constant gradient of 1."""
        return reach(self.experiment.train_in_round(round), self.local_steps(round, client))


class ScaffoldClient(FedAvgClient):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        common = message.tensor("variate") if "variate" in message else torch.zeros_like(received)  # c
        own = self.kept("variate", received)  # c_k
        trained = self.fit(round, grad_hook=add_to_gradients(self, common - own))
        answer = weights.write_update(self, round, received, self.keep_trained(round))
        length = reach(self.experiment.train_in_round(round), trained.steps)
        change = weights.sent_change(self, round, received, answer).to(torch.float64)
        self.state["variate"] = (own.to(torch.float64) - common - change / length).to(torch.float32)  # option II
        return answer
