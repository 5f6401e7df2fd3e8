"""FedPCL (Tan et al. 2022b): a frozen backbone that all have; only the layer behind it learns, from prototypes."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import ADAPTER, InputError
from refprotofl.methods import (
    Client,
    Cohort,
    Dense,
    Loss,
    MessageSchema,
    MessageSchemas,
    Refused,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    check_alignment,
    declare,
)
from refprotofl.methods.builtin.fedpcl import Options
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class FedPCLServer(Server):
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        check_frozen(context.model)
        clients = context.experiment.clients
        self.anchors, self.defined = prototypes.no_anchors(context.experiment)  # rows of length 1
        self.local = torch.zeros(clients, *self.anchors.shape)  # every client's newest prototypes, (clients, C, m)
        self.held = torch.zeros(clients, self.num_classes, dtype=torch.bool)

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        anchors, means = prototypes.anchor_fields(scope), prototypes.mean_fields(scope)
        everyones = {
            "prototypes": Dense((None, scope.width), kind="prototype_values"),
            "held": Dense((None, scope.classes), (torch.bool,)),
        }
        trained = MessageSchema({**anchors, **everyones}, means)
        return declare(scope, evaluate=anchors, prototypes=MessageSchema(up=means), train=trained)

    @property
    def state_names(self) -> Sequence[str]:
        return ("anchors", "defined", "local", "held", "samples")

    def round(self, cohort: Cohort) -> None:
        if self.ships_public_set:
            self.join_newcomers(cohort)
        if not self.defined.any():  # the first prototypes are of the layer that has not learned yet
            self.take(self.ask(cohort, "prototypes", {}, self.read))
        self.take(self.ask(cohort, "train", self.broadcast(), self.read))

    def read(self, client: int, answer: ValidatedMessage) -> prototypes.ClassMeans:
        return prototypes.read_means(answer, *self.anchors.shape)

    def take(self, uploads: Iterable[tuple[int, prototypes.ClassMeans]]) -> None:
        """Store each client's prototypes and average the newest of all clients."""
        for client, one in uploads:
            self.local[client], self.held[client] = one.means, one.counts > 0
        known = [prototypes.ClassMeans(*pair) for pair in zip(self.local, self.held.long(), strict=True)]
        anchors, self.defined = learning.average(self.experiment, known, "uniform", self.anchors, self.defined)
        self.anchors = functional.normalize(anchors)

    def broadcast(self) -> Message:
        """Return the global prototypes and every client's own, with a Boolean table of which client holds which."""
        known = self.held.any(dim=1)
        sets: Message = {"prototypes": self.local[self.held], "held": self.held[known]}
        return {**prototypes.write_anchors(self.anchors, self.defined), **sets}

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)


class FedPCLClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "prototypes", "train", "evaluate")
    options: Options

    def prototypes(self, round: int, message: ValidatedMessage) -> Message:
        self.load_frozen()
        return prototypes.write_means(learning.collect(self, self.training_samples(), unit=True))

    def load_frozen(self) -> None:
        check_frozen(self.model)  # every client may have its own backbone
        self.load()

    def train(self, round: int, message: ValidatedMessage) -> Message:
        self.load_frozen()
        anchors, defined = self.read_anchors(message)
        loss = self.contrastive_loss(anchors, defined, read_sets(message, anchors))
        samples = self.training_samples()
        trained = self.fit(round, samples=samples, loss=loss, parts=ADAPTER, frozen=self.model.backbone)
        against = defined & (int(defined.sum()) > 1)  # (C,)
        check_alignment(trained, samples, 1.0, against, "the contrastive weight")
        self.keep_trained(round)
        return prototypes.write_means(learning.collect(self, samples, unit=True))

    def contrastive_loss(self, anchors: Tensor, defined: Tensor, sets: Tensor) -> Loss:
        """Return the contrast to the global prototypes plus the mean contrast to each client's; the head trains too."""
        temperature = self.options.temperature
        anchors, defined, sets = (one.to(self.model.device) for one in (anchors, defined, sets))

        def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            embeddings = self.model.embed(inputs)  # (B, m)
            common = learning.contrastive_loss(embeddings, labels, anchors, defined, temperature)
            each = [learning.contrastive_loss(embeddings, labels, one, defined, temperature) for one in sets]
            contrast = common + torch.stack(each).mean()
            return contrast + functional.cross_entropy(self.model.head(embeddings.detach()), labels), contrast

        return loss

    def read_anchors(self, message: ValidatedMessage) -> tuple[Tensor, Tensor]:
        return prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, torch.empty(0), *self.read_anchors(message))


def check_frozen(model: SplitModel) -> None:
    if any(parameter.requires_grad for parameter in model.backbone.parameters()):
        raise InputError(
            'method = "fedpcl" needs a frozen backbone, but this model\'s has parameters that train: '
            "give model.name as module:function of a pre-trained one, with requires_grad_(False)."
        )


def read_sets(message: ValidatedMessage, anchors: Tensor) -> Tensor:
    """Return each client's prototypes (clients, C, m), with those that it lacks filled in from the global ones."""
    held, rows = message.tensor("held"), message.tensor("prototypes")
    if len(rows) != int(held.sum()):
        raise Refused("prototypes are not as many as held says")
    sets = anchors.repeat(len(held), 1, 1)
    sets[held] = rows
    return sets
