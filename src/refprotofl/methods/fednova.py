"""FedNova (Wang et al. 2020): each client's change is divided by how far its own steps could have carried it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.experiment import Experiment
from refprotofl.methods import sharing
from refprotofl.methods.base import Client, Cohort, Refused, Server
from refprotofl.methods.fedprox import proximal_pull
from refprotofl.methods.training import Samples, train
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


def progress(steps: int, momentum: float, lr: float = 0.0, mu: float = 0.0) -> float:
    """The total weight with which a round's gradients enter the local change, |a|_1.

    By the recursion over the steps, with the proximal term as part of the loss: it enters the momentum.
    """
    velocity = total = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1 - lr * mu * total
        total += velocity
    return total


class FedNovaServer(Server):
    kinds: ClassVar[Mapping[str, Kind]] = sharing.KINDS
    sends_weights: ClassVar[bool] = True

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        self.table = experiment.fednova
        self.shared = model.read(parts)  # (P,)
        self.velocity = torch.zeros_like(self.shared)  # server momentum
        self.progress = torch.ones(experiment.clients, dtype=torch.float64)  # |a_k| of each client's latest change
        self.steps = torch.zeros(experiment.clients, dtype=torch.int64)

    @property
    def state_names(self) -> Sequence[str]:
        names = ["shared", "samples"] + (["velocity"] if self.table.server_momentum else [])
        return names + (["progress", "steps"] if self.experiment.feedback == "ef21" else [])

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        direction = torch.zeros_like(self.shared, dtype=torch.float64)  # sum of w_k * change_k / |a_k|
        effective = total = 0.0  # sum of w_k * |a_k| (with a proximal term: of w_k * steps_k), and of w_k
        requests = sharing.requests(self, cohort.round, self.shared)
        changes = self.ask(cohort, "train", requests, partial(self.read, cohort.round))
        for client, change in sharing.latest(self, changes):
            weight, own = float(self.samples[client]), float(self.progress[client])
            direction += weight / own * change
            effective += weight * (float(self.steps[client]) if self.table.mu else own)
            total += weight
        self.step(effective / total * direction / total)

    def read(self, round: int, client: int, answer: Message) -> Tensor:
        own, steps = answer["progress"], answer.get("steps", 0)
        if not isinstance(own, float) or not isinstance(steps, int) or own <= 0 or steps < 0:
            raise Refused(f"progress = {own!r} and steps = {steps!r} are not positive numbers")
        change = sharing.read_change(self, round, self.shared, client, answer)
        self.progress[client], self.steps[client] = own, steps
        return change

    def step(self, move: Tensor) -> None:
        self.velocity = (self.table.server_momentum * self.velocity.to(torch.float64) + move).to(torch.float32)
        moved = move if not self.table.server_momentum else self.velocity.to(torch.float64)
        self.shared = sharing.settle(self, self.shared, (self.shared.to(torch.float64) + moved).to(torch.float32))

    def evaluation(self) -> Message:
        return {"shared": self.shared}

    def global_model(self) -> SplitModel | None:
        return sharing.global_model(self, self.shared)


class FedNovaClient(Client):
    def train(self, round: int, message: Message) -> Message:
        received = sharing.load_shared(self, message)
        table, mu = self.experiment.train, self.experiment.fednova.mu
        pull = proximal_pull(self, mu)
        trained = train(self.model, self.training_samples(), table, self.stream("batches", round), pull=pull)
        answer = sharing.write_update(self, round, received, self.keep_trained(round))
        answer["progress"] = progress(trained.steps, table.momentum, table.lr, mu)
        return answer | ({"steps": trained.steps} if mu else {})

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, message["shared"])  # type: ignore[arg-type]
