"""A method of your own: FedAvg that shrugs off broken clients, by a trimmed mean (Yin et al. 2018).

    refprotofl run --preset quick --set method=own_method:TrimmedMean --set own.trim=0.2   (from this folder)
    python examples/own_method.py

docs/add-a-method.md goes through it line by line.
"""

from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.methods import Client, Refused, Server, train


def trimmed_mean(values: Tensor, trim: float) -> Tensor:
    """(clients, P) -> (P,): of every weight the mean without the highest and lowest `trim` of the clients."""
    dropped = min(int(trim * len(values)), (len(values) - 1) // 2)
    kept = values.to(torch.float64).sort(dim=0).values[dropped : len(values) - dropped]
    return kept.mean(dim=0).to(values.dtype)


class TrimmedServer(Server):
    kinds: ClassVar = {"shared": "parameters"}  # how the traffic is counted

    def __init__(self, experiment, model, public, parts):
        super().__init__(experiment, model, public, parts)
        self.shared = model.read(parts)  # (P,): the shared parts of the initial model as one vector

    @property
    def state_names(self):
        return ("shared", "samples")

    def round(self, cohort):
        self.join_newcomers(cohort)
        answers = self.ask(cohort, "train", {"shared": self.shared}, self.read)
        uploads = torch.stack([trained for client, trained in answers])  # (clients, P)
        self.shared = trimmed_mean(uploads, float(self.experiment.own["trim"]))

    def read(self, client, answer):
        """What a client sent, or why it is not believed: then the client is out of this round."""
        trained = answer["shared"]
        if not isinstance(trained, Tensor) or trained.shape != self.shared.shape or trained.dtype != torch.float32:
            raise Refused(f"shared is not a float32 vector of {len(self.shared)} values")
        return trained

    def evaluation(self):
        return {"shared": self.shared}


class TrimmedClient(Client):
    def train(self, round, message):
        self.model.write_private(self.state)
        self.model.write(self.parts, message["shared"])
        train(self.model, self.training_samples(), self.experiment.train, self.stream("batches", round))
        return {"shared": self.keep_trained(round)}

    def evaluate(self, round, message):
        return self.score(round, message["shared"])


class TrimmedMean:
    """FedAvg with a trimmed mean: of every weight the highest and the lowest values do not count."""

    server = TrimmedServer
    client = TrimmedClient
    options: ClassVar = {"trim": 0.1}  # share of clients left out at each end; 0.5 is the median


if __name__ == "__main__":
    from refprotofl import Experiment, run

    keys = {"method": "own_method:TrimmedMean", "rounds": 5, "min-size": 10, "model": {"name": "mlp"}}
    finished = run(Experiment.parse(keys))
    print(finished.summary["accuracy"])
