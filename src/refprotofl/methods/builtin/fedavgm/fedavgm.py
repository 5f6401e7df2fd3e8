"""FedAvgM (Hsu et al. 2019): FedAvg whose server takes its steps with momentum."""

from collections.abc import Sequence

import torch

from refprotofl.methods import Cohort, FedAvgServer, ServerContext
from refprotofl.methods.builtin.fedavgm import Options
from refprotofl.methods.common import weights


class FedAvgMServer(FedAvgServer):
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.velocity = torch.zeros_like(self.shared)  # (P,), v

    @property
    def state_names(self) -> Sequence[str]:
        return (*super().state_names, "velocity")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        change = weights.mean_change(self, cohort, self.shared)  # -dw
        velocity = self.options.momentum * self.velocity.to(torch.float64) + change  # v <- beta v + dw
        self.velocity = velocity.to(torch.float32)
        self.shared = weights.advance(self, cohort.round, self.shared, self.options.server_lr * velocity)
