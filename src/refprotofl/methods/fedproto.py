"""FedProto (Tan et al. 2022): nothing but class prototypes is exchanged; every client keeps its whole model."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from refprotofl.experiment import Experiment
from refprotofl.methods import prototype_learning as learning
from refprotofl.methods import prototypes
from refprotofl.methods.base import Client, Cohort, Server
from refprotofl.methods.training import Samples
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


class FedProtoServer(Server):
    kinds: ClassVar[Mapping[str, Kind]] = prototypes.KINDS

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        self.table = experiment.fedproto
        self.anchors, self.defined = prototypes.no_anchors(experiment)

    @property
    def state_names(self) -> Sequence[str]:
        return ("anchors", "defined", "samples")

    def round(self, cohort: Cohort) -> None:
        if self.ships_public_set:
            self.join_newcomers(cohort)
        anchors = prototypes.write_anchors(self.anchors, self.defined)  # none in the first round
        uploads = [held for _, held in self.ask(cohort, "train", anchors, self.read)]  # Algorithm 1, local update
        self.anchors, self.defined = learning.average(
            uploads, self.table.weighting, self.anchors, self.defined, self.table.retain
        )  # Eq. (6)

    def read(self, client: int, answer: Message) -> prototypes.ClassMeans:
        return prototypes.read_means(answer, *self.anchors.shape, counted=self.table.weighting == "count")

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)


class FedProtoClient(Client):
    def train(self, round: int, message: Message) -> Message:
        table = self.experiment.fedproto
        anchors, defined = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        pull = learning.Pull(table.weight, "fedproto.weight", table.reduction)  # Eq. (7)
        running = learning.train_towards(self, round, anchors, defined, pull, running=table.collect == "running")
        samples = self.training_samples()
        held = running.means(self.num_classes) if running else learning.collect(self, samples)  # Eq. (3)
        return prototypes.write_means(held, counted=table.weighting == "count")

    def evaluate(self, round: int, message: Message) -> Message:
        anchors = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        return self.score(round, torch.empty(0), *anchors)
