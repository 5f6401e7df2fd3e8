"""FedProtoKD (Siddika, Hossen et al. 2025), after its abstract: clients teach over public images, with prototypes.

A client sends its logits and embeddings of the public images. The server merges them, trains class prototypes with a
margin of their own each, weighs the images by how close they are to their prototype, distils all that into a model of
its own and lets this model teach the clients.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.basics.state import State
from refprotofl.basics.streams import stream
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.methods import distillation, erpa, prototypes, trained_prototypes
from refprotofl.methods import prototype_learning as learning
from refprotofl.methods.base import LOST, Client, Cohort, Server
from refprotofl.methods.prototypes import read_matrix
from refprotofl.methods.training import Samples, classify, embed
from refprotofl.models import ALL, Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


class FedProtoKDServer(Server):
    kinds: ClassVar[Mapping[str, Kind]] = {**prototypes.KINDS, "features": "prototype_values"}

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        if public is None:
            raise InputError('method = "fedprotokd" teaches over public images: public.per-class must be above 0.')
        self.table = experiment.fedprotokd
        self.images, self.labels = public.own_images.to(model.device), public.own_labels
        self.anchors, self.defined = prototypes.no_anchors(experiment)
        self.generator = trained_prototypes.initial(experiment.seed, *self.anchors.shape)
        self.targets = torch.zeros(len(self.labels), self.num_classes)  # the server model's logits, (n, C)
        self.importance = torch.zeros(len(self.labels))  # of each public image, (n,)
        self.weights = model.read_private(())  # the server model's, by name

    @property
    def state_names(self) -> Sequence[str]:
        return ("anchors", "defined", "generator", "targets", "importance", "samples")

    @property
    def state(self) -> State:
        return super().state | {f"model.{name}": value for name, value in self.weights.items()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.weights = {name: state[f"model.{name}"] for name in self.weights}  # type: ignore[misc]

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

    def read(self, client: int, answer: Message) -> tuple[Tensor, Tensor]:
        """A client's logits (n, C) and embeddings (n, m) of the public images."""
        rows, (classes, width) = len(self.labels), self.anchors.shape
        return read_matrix(answer, "logits", rows, classes), read_matrix(answer, "features", rows, width)

    def train_prototypes(self, round: int, features: Iterable[Tensor]) -> None:
        means = [erpa.class_prototypes(one, self.labels, self.num_classes) for one in features]
        vectors, labels, _ = learning.pairs(prototypes.ClassMeans(*one) for one in means)
        self.defined = self.defined.index_fill(0, labels, True)
        margins = trained_prototypes.gaps(vectors, labels, self.num_classes).clamp(max=self.table.margin)  # class-wise
        order = stream(self.experiment.seed, "server-batches", round=round)
        steps = learning.Steps(self.table.server_lr, self.table.server_epochs, self.table.server_batch)
        self.generator, self.anchors = trained_prototypes.retrained(
            self.generator, vectors, labels, self.defined, margins, order, steps
        )

    def train_model(self, round: int, merged: Tensor) -> None:
        """Distils the merged logits (n, C) into the server's model, whose own logits are the next targets."""
        self.model.write_private(self.weights)
        self.model.train()
        device = self.model.device
        pull = learning.Pull(self.table.weight, "fedprotokd.weight").penalty(self.anchors, self.defined, device)
        targets, importance, classes = (one.to(device) for one in (merged, self.importance, self.labels))

        def loss(rows: Tensor) -> Tensor:
            embeddings = self.model.embed(self.model.prepare(self.images[rows]))
            logits, labels = self.model.head(embeddings), classes[rows]
            taught = distillation.taught_loss(logits, targets[rows], importance[rows], self.table.temperature)
            pulled = pull(embeddings, labels) if pull else torch.zeros(())
            return taught + functional.cross_entropy(logits, labels) + pulled

        order = stream(self.experiment.seed, "server-model", round=round)
        steps = learning.Steps(self.table.server_lr, self.table.model_epochs, self.table.server_batch)
        learning.fit(self.model.parameters_of(ALL), loss, len(self.labels), order, steps)
        self.weights = self.model.read_private(())
        self.targets = classify(self.model, embed(self.model, self.images))

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)

    def global_model(self) -> SplitModel:
        self.model.write_private(self.weights)
        return self.model


class FedProtoKDClient(Client):
    def train(self, round: int, message: Message) -> Message:
        public = self.public_set()
        if public is None:
            return {LOST: True}
        anchors, defined = self.read_anchors(message)
        if "targets" in message:
            distillation.learn_from(self, round, public[0], message, self.experiment.fedprotokd)
        pull = learning.Pull(self.experiment.fedprotokd.weight, "fedprotokd.weight")
        learning.train_towards(self, round, anchors, defined, pull)
        embeddings = embed(self.model, public[0])
        return {"logits": classify(self.model, embeddings), "features": embeddings}

    def read_anchors(self, message: Message) -> tuple[Tensor, Tensor]:
        return prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, torch.empty(0), *self.read_anchors(message))
