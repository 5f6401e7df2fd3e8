"""A method of your own: FedAvg that tolerates broken clients, by a trimmed mean (Yin et al. 2018).

refprotofl run --preset quick --set method=own_method:TrimmedMean --set own.trim=0.2   (from this folder)
python examples/own_method.py   (docs/add-a-method.md explains it step by step)
"""

import torch
from pydantic import Field
from torch import Tensor

from refprotofl.methods import Client, Cost, Dense, MessageSchema, Method, Server, Table, declare


def trimmed_mean(values: Tensor, trim: float) -> Tensor:
    """Return of each weight the mean without the highest and lowest `trim` of the clients: (clients, P) -> (P,)."""
    dropped = min(int(trim * len(values)), (len(values) - 1) // 2)
    kept = values.to(torch.float64).sort(dim=0).values[dropped : len(values) - dropped]
    return kept.mean(dim=0).to(values.dtype)


class TrimmedServer(Server):
    def __init__(self, context):
        super().__init__(context)
        self.shared = context.model.read(context.parts)  # (P,): the shared parts of the initial model as one vector

    @classmethod
    def message_schemas(cls, scope):
        shared = {"shared": Dense((scope.shared,), kind="parameters")}
        return declare(scope, train=MessageSchema(down=shared, up=shared), evaluate=shared)

    @property
    def state_names(self):
        return ("shared", "samples")

    def round(self, cohort):
        self.join_newcomers(cohort)
        answers = self.ask(cohort, "train", {"shared": self.shared}, self.read)
        uploads = torch.stack([trained for client, trained in answers])  # (clients, P)
        self.shared = trimmed_mean(uploads, self.options.trim)

    def read(self, client, answer):
        return answer.tensor("shared")

    def evaluation(self):
        return {"shared": self.shared}

    def global_model(self):
        return self.whole_model(self.shared)


class TrimmedClient(Client):
    def train(self, round, message):
        self.load(message.tensor("shared"))
        self.fit(round)
        return {"shared": self.keep_trained(round)}

    def evaluate(self, round, message):
        return self.score(round, message.tensor("shared"))


class Options(Table):
    trim: float = Field(0.1, ge=0, le=0.5, description="share of clients left out at each end, 0 to 0.5 (the median)")


class TrimmedMean(Method):
    """FedAvg with a trimmed mean: the highest and lowest values of each weight are left out."""

    server = TrimmedServer
    client = TrimmedClient
    options = Options
    cost = Cost(up="P", down="P")


if __name__ == "__main__":
    from refprotofl import Experiment, run

    finished = run(Experiment(method="own_method:TrimmedMean", rounds=5, min_size=10, model={"name": "mlp"}))
    print(finished.summary["accuracy"])
