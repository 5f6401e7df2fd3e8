"""FedTGP (Zhang et al. 2024): FedProto whose server trains the global prototypes apart instead of averaging."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from refprotofl.basics.streams import stream
from refprotofl.experiment import Experiment
from refprotofl.methods import prototype_learning as learning
from refprotofl.methods import prototypes, trained_prototypes
from refprotofl.methods.base import Client, Cohort, Server
from refprotofl.methods.training import Samples
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


class FedTGPServer(Server):
    kinds: ClassVar[Mapping[str, Kind]] = prototypes.KINDS

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        self.table = experiment.fedtgp
        self.anchors, self.defined = prototypes.no_anchors(experiment)  # defined: classes that a client ever held
        self.generator = trained_prototypes.initial(experiment.seed, *self.anchors.shape)

    @property
    def state_names(self) -> Sequence[str]:
        return ("anchors", "defined", "generator", "samples")

    def round(self, cohort: Cohort) -> None:
        if self.ships_public_set:
            self.join_newcomers(cohort)
        anchors = prototypes.write_anchors(self.anchors, self.defined)
        uploads = [held for _, held in self.ask(cohort, "train", anchors, self.read)]
        self.train_prototypes(cohort.round, uploads)

    def read(self, client: int, answer: Message) -> prototypes.ClassMeans:
        return prototypes.read_means(answer, *self.anchors.shape)

    def train_prototypes(self, round: int, uploads: Sequence[prototypes.ClassMeans]) -> None:
        """Contrastive learning of the global prototypes with the adaptive margin."""
        vectors, labels, _ = learning.pairs(uploads)
        self.defined = self.defined.index_fill(0, labels, True)
        gaps = trained_prototypes.gaps(vectors, labels, self.num_classes)
        margin = gaps.max().clamp(max=self.table.margin).expand(self.num_classes)  # the widest gap, up to the threshold
        self.generator, self.anchors = trained_prototypes.retrained(
            self.generator,
            vectors,
            labels,
            self.defined,
            margin,
            stream(self.experiment.seed, "server-batches", round=round),
            learning.Steps(self.table.server_lr, self.table.server_epochs, self.table.server_batch),
        )

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)


class FedTGPClient(Client):
    def train(self, round: int, message: Message) -> Message:
        anchors, defined = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        pull = learning.Pull(self.experiment.fedtgp.weight, "fedtgp.weight")
        learning.train_towards(self, round, anchors, defined, pull)
        return prototypes.write_means(learning.collect(self, self.training_samples()))  # of the model just trained

    def evaluate(self, round: int, message: Message) -> Message:
        anchors = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        return self.score(round, torch.empty(0), *anchors)
