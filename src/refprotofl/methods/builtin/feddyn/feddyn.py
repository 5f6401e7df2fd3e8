"""FedDyn (Acar et al. 2021): a regulariser that follows each client's gradient, so that local optima meet.

Algorithm 1 of the paper, with the server's state h divided by alpha.
"""

from collections.abc import Sequence

import torch

from refprotofl.methods import (
    Cohort,
    FedAvgClient,
    FedAvgServer,
    ServerContext,
    ValidatedMessage,
    add_to_gradients,
    in_turn,
    proximal_term,
)
from refprotofl.methods.builtin.feddyn import Options
from refprotofl.methods.common import weights
from refprotofl.wire import Message


class FedDynServer(FedAvgServer):
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        # (P,), -h / alpha: how far all clients moved so far on average; those that are absent do not move
        self.moved = torch.zeros_like(self.shared)

    @property
    def state_names(self) -> Sequence[str]:
        return (*super().state_names, "moved")

    def round(self, cohort: Cohort) -> None:
        before = weights.population(self)
        self.join_newcomers(cohort)
        change = weights.mean_change(self, cohort, self.shared)
        if self.options.alpha:
            moved = self.moved.to(torch.float64) * (
                before / weights.population(self)
            )  # now that newcomers' sizes are known
            moved = moved + weights.turnout(self, cohort) * change  # h <- h - alpha * sum_k p_k (theta_k - theta)
            self.moved = moved.to(torch.float32)
            change = change + moved  # theta <- mean of theta_k - h / alpha
        self.shared = weights.advance(self, cohort.round, self.shared, change)


class FedDynClient(FedAvgClient):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received, alpha = weights.load_shared(self, message), self.options.alpha
        gradient = self.kept("gradient", received)
        # The gradient of loss(theta) - <gradient, theta> + alpha / 2 |theta - received|^2
        dynamic = in_turn(proximal_term(self, received, alpha), add_to_gradients(self, -gradient)) if alpha else None
        self.fit(round, grad_hook=dynamic)
        answer = weights.write_update(self, round, received, self.keep_trained(round))
        if alpha:  # gradient <- gradient - alpha (theta_k - theta), with theta_k as the server reads it
            change = weights.sent_change(self, round, received, answer)
            self.state["gradient"] = (gradient - alpha * change).to(torch.float32)
        return answer
