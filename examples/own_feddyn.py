"""A method of your own with a memory on both sides: FedDyn (Acar et al. 2021).

docs/add-a-method.md explains it. From this folder: refprotofl run --set method=own_feddyn:FedDyn --set own.alpha=0.1
"""

import torch
from pydantic import Field

from refprotofl.methods import (
    Client,
    Dense,
    MessageSchema,
    Method,
    Server,
    Table,
    add_to_gradients,
    declare,
    in_turn,
    proximal_term,
)


class FedDynServer(Server):
    def __init__(self, context):
        super().__init__(context)
        self.shared = context.model.read(context.parts)  # (P,)
        self.moved = torch.zeros_like(self.shared)  # (P,): -h / alpha, how far all clients moved so far, on average

    @classmethod
    def message_schemas(cls, scope):
        shared = {"shared": Dense((scope.shared,), kind="parameters")}
        return declare(scope, train=MessageSchema(down=shared, up=shared), evaluate=shared)

    @property
    def state_names(self):
        return ("shared", "moved", "samples")

    def round(self, cohort):
        self.join_newcomers(cohort)
        answers = self.ask(cohort, "train", {"shared": self.shared}, self.read)
        changes = torch.stack([trained - self.shared for client, trained in answers])  # (clients, P)
        self.moved = self.moved + changes.sum(dim=0) / self.num_clients
        self.shared = self.shared + changes.mean(dim=0) + self.moved

    def read(self, client, answer):
        return answer.tensor("shared")

    def evaluation(self):
        return {"shared": self.shared}

    def global_model(self):
        return self.whole_model(self.shared)


class FedDynClient(Client):
    def train(self, round, message):
        received, alpha = message.tensor("shared"), self.options.alpha
        gradient = self.kept("gradient", like=received)  # (P,): at the end of the client's last round
        self.load(received)
        self.fit(round, grad_hook=in_turn(proximal_term(self, received, alpha), add_to_gradients(self, -gradient)))
        trained = self.keep_trained(round)
        self.state["gradient"] = gradient - alpha * (trained - received)
        return {"shared": trained}

    def evaluate(self, round, message):
        return self.score(round, message.tensor("shared"))


class Options(Table):
    alpha: float = Field(0.1, gt=0, description="weight of the regulariser, above 0")


class FedDyn(Method):
    """FedAvg with a regulariser that aligns the clients' optima."""

    server = FedDynServer
    client = FedDynClient
    options = Options
    stateful = True
