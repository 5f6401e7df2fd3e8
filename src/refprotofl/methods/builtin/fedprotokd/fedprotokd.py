"""FedProtoKD (Siddika, Hossen et al. 2025), after its abstract: distillation over public images, with prototypes.

A client sends its logits and embeddings of the public images. The server merges them, trains class prototypes with
class-wise margins, weighs the images by their distance to their prototype, distils them into its own model,
and sends this model's logits to the clients as targets.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import ALL, InputError, State, stream, tensor_of
from refprotofl.methods import (
    Client,
    Cohort,
    Dense,
    MessageSchema,
    MessageSchemas,
    Samples,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    classify,
    declare,
    embed,
    erpa,
    minimise,
    plain_sgd,
)
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.fedprotokd import Options
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes
from refprotofl.models import SplitModel
from refprotofl.wire import Message


def merge_logits(uploads: Iterable[Tensor]) -> Tensor:
    """Return each image's mean of the clients' logits (n, C), each weighted by its variance over the classes.

    The logits of a confident client are far apart, so that it counts more.
    """
    stacked = torch.stack(list(uploads)).to(torch.float64)  # (clients, n, C)
    weights = stacked.var(dim=2, correction=0, keepdim=True)  # (clients, n, 1)
    total = weights.sum(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
    return ((weights * stacked).sum(dim=0) / total).to(torch.float32)


def importance(features: Tensor, labels: Tensor, anchors: Tensor) -> Tensor:
    """Return each image's weight (n,), 1 on average: the closer to its class's prototype the larger.

    It is exp(-distance / mean distance), so that it does not depend on the scale of the embedding.
    """
    distances = (features - anchors[labels]).norm(dim=1)
    closeness = torch.exp(-distances / distances.mean().clamp(min=torch.finfo(torch.float32).tiny))
    return closeness / closeness.mean()


def distillation_loss(logits: Tensor, targets: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Return the batch mean of weight * T^2 * KL(softmax(targets / T), softmax(logits / T))."""
    student = functional.log_softmax(logits / temperature, dim=1)
    teacher = functional.log_softmax(targets / temperature, dim=1)
    divergence = functional.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=1)  # (B,)
    return (weights * divergence).mean() * temperature**2


def learn_from(client: Client, round: int, images: Tensor, message: ValidatedMessage, table: Options) -> None:
    """Train the client's model on the received targets of the public images, and keep it."""
    if table.distil == 0:
        return
    client.load()
    targets = message.tensor("targets").to(client.model.device)
    weights = message.tensor("importance").to(client.model.device)

    def loss(inputs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        weighted = table.distil * distillation_loss(
            client.model(inputs), targets[rows], weights[rows], table.temperature
        )
        return weighted, weighted

    rows = torch.arange(len(images))
    # The images' numbers stand in for labels: the loss finds a batch's targets by them.
    pictures = Samples(images, rows, rows)
    trained = client.fit(round, samples=pictures, order=client.stream("distil", round), loss=loss, augment=False)
    guards.alignment_happened(trained.penalty, table.distil, torch.tensor([True]), "fedprotokd.distil")
    client.keep_trained(round)


class FedProtoKDServer(Server):
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        if context.public is None:
            raise InputError('method = "fedprotokd" teaches over public images: public.per-class must be above 0.')
        self.inputs, self.labels = context.public.own_inputs.to(context.model.device), context.public.own_labels
        self.anchors, self.defined = prototypes.no_anchors(context.experiment)
        self.generator = learning.initial(context.experiment.seed, *self.anchors.shape)
        self.targets = torch.zeros(len(self.labels), self.num_classes)  # the server model's logits, (n, C)
        self.importance = torch.zeros(len(self.labels))  # of each public image, (n,)
        self.weights = context.model.read_private(())  # the server model's, by name

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        public, anchors = scope.experiment.public, prototypes.anchor_fields(scope)
        images = (public.per_class or 0) * len(public.classes or ())
        distilled = {
            "targets": Dense((images, scope.classes), optional=True),
            "importance": Dense((images,), optional=True),
        }
        up = {
            "logits": Dense((images, scope.classes)),
            "features": Dense((images, scope.width), kind="prototype_values"),
        }
        return declare(scope, evaluate=anchors, train=MessageSchema({**anchors, **distilled}, up))

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
        distilled: Message = {"targets": self.targets, "importance": self.importance} if self.defined.any() else {}
        request = {**prototypes.write_anchors(self.anchors, self.defined), **distilled}
        uploads = dict(self.ask(cohort, "train", request, self.read))
        merged = merge_logits(logits for logits, _ in uploads.values())
        features = [features for _, features in uploads.values()]
        self.train_prototypes(cohort.round, features)
        self.importance = importance(erpa.external_prototypes(torch.stack(features)), self.labels, self.anchors)
        self.train_model(cohort.round, merged)

    def read(self, client: int, answer: ValidatedMessage) -> tuple[Tensor, Tensor]:
        """Return a client's logits (n, C) and embeddings (n, m) of the public images."""
        return answer.tensor("logits"), answer.tensor("features")

    def train_prototypes(self, round: int, features: Iterable[Tensor]) -> None:
        means = [erpa.class_prototypes(one, self.labels, self.num_classes) for one in features]
        vectors, labels, _ = learning.pairs(prototypes.ClassMeans(*one) for one in means)
        self.defined = self.defined.index_fill(0, labels, True)
        margins = learning.gaps(vectors, labels, self.num_classes).clamp(max=self.options.margin)  # class-wise
        order = stream(self.experiment.seed, "server-batches", round=round)
        settings = plain_sgd(self.options.server_lr, self.options.server_epochs, self.options.server_batch)
        self.generator, self.anchors = learning.retrained(
            self.generator, vectors, labels, self.defined, margins, order, settings
        )

    def train_model(self, round: int, merged: Tensor) -> None:
        """Distil the merged logits (n, C) into the server's model, whose own logits are the next targets."""
        self.model.write_private(self.weights)
        self.model.train()
        device = self.model.device
        alignment = learning.Alignment(self.options.weight, "fedprotokd.weight")
        penalty = alignment.penalty(self.anchors, self.defined, device)
        targets, importance, classes = (one.to(device) for one in (merged, self.importance, self.labels))

        def loss(rows: Tensor) -> Tensor:
            embeddings = self.model.embed(self.model.prepare(self.inputs[rows]))
            logits, labels = self.model.head(embeddings), classes[rows]
            distilled = distillation_loss(logits, targets[rows], importance[rows], self.options.temperature)
            aligned = penalty(embeddings, labels) if penalty else torch.zeros(())
            return distilled + functional.cross_entropy(logits, labels) + aligned

        order = stream(self.experiment.seed, "server-model", round=round)
        settings = plain_sgd(self.options.server_lr, self.options.model_epochs, self.options.server_batch)
        minimise(self.model.parameters_of(ALL), loss, len(self.labels), settings, order)
        self.weights = self.model.read_private(())
        self.targets = classify(self.model, embed(self.model, self.inputs))

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)

    def global_model(self) -> SplitModel:
        self.model.write_private(self.weights)
        return self.model


class FedProtoKDClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        images, _ = self.public_set()
        anchors, defined = self.read_anchors(message)
        if "targets" in message:
            learn_from(self, round, images, message, self.options)
        learning.train_towards(
            self, round, anchors, defined, learning.Alignment(self.options.weight, "fedprotokd.weight")
        )
        embeddings = embed(self.model, images)
        return {"logits": classify(self.model, embeddings), "features": embeddings}

    def read_anchors(self, message: ValidatedMessage) -> tuple[Tensor, Tensor]:
        return prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, torch.empty(0), *self.read_anchors(message))
