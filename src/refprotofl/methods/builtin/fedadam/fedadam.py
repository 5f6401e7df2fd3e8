"""FedAdam (Reddi et al. 2021): the mean of the clients' changes is the gradient of an adaptive step at the server."""

from collections.abc import Sequence

import torch
from torch import Tensor

from refprotofl.methods import Cohort, FedAvgServer, ServerContext
from refprotofl.methods.builtin.fedadam import Options
from refprotofl.methods.common import weights


class FedAdamServer(FedAvgServer):
    """Algorithm 2 of the paper."""

    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.mean = torch.zeros_like(self.shared)  # (P,), m
        self.mean_square = torch.full_like(self.shared, self.options.tau**2)  # (P,), v; v_{-1} >= tau^2

    @property
    def state_names(self) -> Sequence[str]:
        return (*super().state_names, "mean", "mean_square")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        change = weights.mean_change(self, cohort, self.shared)  # Delta_t, (P,) in float64
        beta1, tau = self.options.beta1, self.options.tau
        mean = beta1 * self.mean.to(torch.float64) + (1 - beta1) * change
        mean_square = self.next_mean_square(self.mean_square.to(torch.float64), change.square())
        self.mean, self.mean_square = mean.to(torch.float32), mean_square.to(torch.float32)
        move = self.options.server_lr * mean / (mean_square.sqrt() + tau)
        self.shared = weights.advance(self, cohort.round, self.shared, move)

    def next_mean_square(self, before: Tensor, square: Tensor) -> Tensor:
        """Return v_t of v_{t-1} and the squared change, all (P,) in float64."""
        return self.options.beta2 * before + (1 - self.options.beta2) * square
