"""FedProtoKD (Siddika, Hossen et al. 2025), after its abstract: clients teach over public images, with prototypes.

A client sends its logits and embeddings of the public images. The server merges them, trains class prototypes with a
margin of their own each, weighs the images by how close they are to their prototype, distils all that into a model of
its own and lets this model teach the clients.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.basics.parts import ALL
from refprotofl.basics.state import State, tensor_of
from refprotofl.basics.streams import stream
from refprotofl.errors import InputError
from refprotofl.methods import erpa
from refprotofl.methods.builtin.fedprotokd import Options, distillation
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes, trained_prototypes
from refprotofl.methods.core.client import Client
from refprotofl.methods.core.cohort import Cohort
from refprotofl.methods.core.fields import Dense, Exchange, Exchanges, Received
from refprotofl.methods.core.messages import Scope, declare
from refprotofl.methods.core.server import Desk, Server
from refprotofl.methods.core.training import classify, embed
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class FedProtoKDServer(Server):
    options: Options

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        if desk.public is None:
            raise InputError('method = "fedprotokd" teaches over public images: public.per-class must be above 0.')
        self.images, self.labels = desk.public.own_images.to(desk.model.device), desk.public.own_labels
        self.anchors, self.defined = prototypes.no_anchors(desk.experiment)
        self.generator = trained_prototypes.initial(desk.experiment.seed, *self.anchors.shape)
        self.targets = torch.zeros(len(self.labels), self.num_classes)  # the server model's logits, (n, C)
        self.importance = torch.zeros(len(self.labels))  # of each public image, (n,)
        self.weights = desk.model.read_private(())  # the server model's, by name

    @classmethod
    def exchanges(cls, scope: Scope) -> Exchanges:
        public, anchors = scope.experiment.public, prototypes.anchor_fields(scope)
        images = (public.per_class or 0) * len(public.classes or ())
        taught = {
            "targets": Dense((images, scope.classes), optional=True),
            "importance": Dense((images,), optional=True),
        }
        told = {
            "logits": Dense((images, scope.classes)),
            "features": Dense((images, scope.width), kind="prototype_values"),
        }
        return declare(scope, evaluate=anchors, train=Exchange({**anchors, **taught}, told))

    @property
    def state_names(self) -> Sequence[str]:
        return ("anchors", "defined", "generator", "targets", "importance", "samples")

    @property
    def state(self) -> State:
        return super().state | {f"model.{name}": value for name, value in self.weights.items()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.weights = {name: tensor_of(state, f"model.{name}") for name in self.weights}

    @property
    def ships_public_set(self) -> bool:
        return True

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        taught: Message = {"targets": self.targets, "importance": self.importance} if self.defined.any() else {}
        request = {**prototypes.write_anchors(self.anchors, self.defined), **taught}
        uploads = dict(self.ask(cohort, "train", request, self.read))
        merged = distillation.merge_logits(logits for logits, _ in uploads.values())
        features = [features for _, features in uploads.values()]
        self.train_prototypes(cohort.round, features)
        self.importance = distillation.importance(
            erpa.external_prototypes(torch.stack(features)), self.labels, self.anchors
        )
        self.train_model(cohort.round, merged)

    def read(self, client: int, answer: Received) -> tuple[Tensor, Tensor]:
        """A client's logits (n, C) and embeddings (n, m) of the public images."""
        return answer.tensor("logits"), answer.tensor("features")

    def train_prototypes(self, round: int, features: Iterable[Tensor]) -> None:
        means = [erpa.class_prototypes(one, self.labels, self.num_classes) for one in features]
        vectors, labels, _ = learning.pairs(prototypes.ClassMeans(*one) for one in means)
        self.defined = self.defined.index_fill(0, labels, True)
        margins = trained_prototypes.gaps(vectors, labels, self.num_classes).clamp(
            max=self.options.margin
        )  # class-wise
        order = stream(self.experiment.seed, "server-batches", round=round)
        steps = learning.Steps(self.options.server_lr, self.options.server_epochs, self.options.server_batch)
        self.generator, self.anchors = trained_prototypes.retrained(
            self.generator, vectors, labels, self.defined, margins, order, steps
        )

    def train_model(self, round: int, merged: Tensor) -> None:
        """Distils the merged logits (n, C) into the server's model, whose own logits are the next targets."""
        self.model.write_private(self.weights)
        self.model.train()
        device = self.model.device
        pull = learning.Pull(self.options.weight, "fedprotokd.weight").penalty(self.anchors, self.defined, device)
        targets, importance, classes = (one.to(device) for one in (merged, self.importance, self.labels))

        def loss(rows: Tensor) -> Tensor:
            embeddings = self.model.embed(self.model.prepare(self.images[rows]))
            logits, labels = self.model.head(embeddings), classes[rows]
            taught = distillation.taught_loss(logits, targets[rows], importance[rows], self.options.temperature)
            pulled = pull(embeddings, labels) if pull else torch.zeros(())
            return taught + functional.cross_entropy(logits, labels) + pulled

        order = stream(self.experiment.seed, "server-model", round=round)
        steps = learning.Steps(self.options.server_lr, self.options.model_epochs, self.options.server_batch)
        learning.fit(self.model.parameters_of(ALL), loss, len(self.labels), order, steps)
        self.weights = self.model.read_private(())
        self.targets = classify(self.model, embed(self.model, self.images))

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)

    def global_model(self) -> SplitModel:
        self.model.write_private(self.weights)
        return self.model


class FedProtoKDClient(Client):
    options: Options

    def train(self, round: int, message: Received) -> Message:
        images, _ = self.public_set()
        anchors, defined = self.read_anchors(message)
        if "targets" in message:
            distillation.learn_from(self, round, images, message, self.options)
        pull = learning.Pull(self.options.weight, "fedprotokd.weight")
        learning.train_towards(self, round, anchors, defined, pull)
        embeddings = embed(self.model, images)
        return {"logits": classify(self.model, embeddings), "features": embeddings}

    def read_anchors(self, message: Received) -> tuple[Tensor, Tensor]:
        return prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def evaluate(self, round: int, message: Received) -> Message:
        return self.score(round, torch.empty(0), *self.read_anchors(message))
