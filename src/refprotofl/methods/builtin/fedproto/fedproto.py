"""FedProto (Tan et al. 2022): clients exchange class prototypes only, and keep their whole models."""

from collections.abc import Sequence
from typing import ClassVar

import torch

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
)
from refprotofl.methods.builtin.fedproto import Options
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes
from refprotofl.wire import Message


class FedProtoServer(Server):
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.anchors, self.defined = prototypes.no_anchors(context.experiment)

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        anchors = prototypes.anchor_fields(scope)
        means = prototypes.mean_fields(scope, counted=scope.options.weighting == "count")
        return declare(scope, evaluate=anchors, train=MessageSchema(anchors, means))

    @property
    def state_names(self) -> Sequence[str]:
        return ("anchors", "defined", "samples")

    def round(self, cohort: Cohort) -> None:
        if self.ships_public_set:
            self.join_newcomers(cohort)
        anchors = prototypes.write_anchors(self.anchors, self.defined)  # none in the first round
        uploads = [held for _, held in self.ask(cohort, "train", anchors, self.read)]  # Algorithm 1, local update
        self.anchors, self.defined = learning.average(
            self.experiment, uploads, self.options.weighting, self.anchors, self.defined, self.options.retain
        )  # Eq. (6)

    def read(self, client: int, answer: ValidatedMessage) -> prototypes.ClassMeans:
        return prototypes.read_means(answer, *self.anchors.shape, counted=self.options.weighting == "count")

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)


class FedProtoClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        table = self.options
        anchors, defined = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        alignment = learning.Alignment(table.weight, "fedproto.weight", table.reduction)  # Eq. (7)
        running = learning.train_towards(self, round, anchors, defined, alignment, running=table.collect == "running")
        samples = self.training_samples()
        held = running.means(self.num_classes) if running else learning.collect(self, samples)  # Eq. (3)
        return prototypes.write_means(held, counted=table.weighting == "count")

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        anchors = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        return self.score(round, torch.empty(0), *anchors)
