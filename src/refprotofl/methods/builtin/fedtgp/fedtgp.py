"""FedTGP (Zhang et al. 2024): FedProto whose server trains the global prototypes apart instead of averaging."""

from collections.abc import Sequence

import torch

from refprotofl.core import stream
from refprotofl.methods import (
    Client,
    Cohort,
    MessageSchema,
    MessageSchemas,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    declare,
    plain_sgd,
)
from refprotofl.methods.builtin.fedtgp import Options
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes
from refprotofl.wire import Message


class FedTGPServer(Server):
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.anchors, self.defined = prototypes.no_anchors(
            context.experiment
        )  # defined: classes that a client ever held
        self.generator = learning.initial(context.experiment.seed, *self.anchors.shape)

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        anchors = prototypes.anchor_fields(scope)
        return declare(scope, evaluate=anchors, train=MessageSchema(anchors, prototypes.mean_fields(scope)))

    @property
    def state_names(self) -> Sequence[str]:
        return ("anchors", "defined", "generator", "samples")

    def round(self, cohort: Cohort) -> None:
        if self.ships_public_set:
            self.join_newcomers(cohort)
        anchors = prototypes.write_anchors(self.anchors, self.defined)
        uploads = [held for _, held in self.ask(cohort, "train", anchors, self.read)]
        self.train_prototypes(cohort.round, uploads)

    def read(self, client: int, answer: ValidatedMessage) -> prototypes.ClassMeans:
        return prototypes.read_means(answer, *self.anchors.shape)

    def train_prototypes(self, round: int, uploads: Sequence[prototypes.ClassMeans]) -> None:
        """Train the global prototypes contrastively, with the adaptive margin."""
        vectors, labels, _ = learning.pairs(uploads)
        self.defined = self.defined.index_fill(0, labels, True)
        gaps = learning.gaps(vectors, labels, self.num_classes)
        margin = (
            gaps.max().clamp(max=self.options.margin).expand(self.num_classes)
        )  # the widest gap, up to the threshold
        self.generator, self.anchors = learning.retrained(
            self.generator,
            vectors,
            labels,
            self.defined,
            margin,
            stream(self.experiment.seed, "server-batches", round=round),
            plain_sgd(self.options.server_lr, self.options.server_epochs, self.options.server_batch),
        )

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)


class FedTGPClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        anchors, defined = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        learning.train_towards(self, round, anchors, defined, learning.Alignment(self.options.weight, "fedtgp.weight"))
        held = learning.collect(self, self.training_samples())  # of the model just trained
        return prototypes.write_means(held)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        anchors = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        return self.score(round, torch.empty(0), *anchors)
