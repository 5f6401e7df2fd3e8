"""FedPCL (Tan et al. 2022b): a frozen backbone that all have; only the layer behind it learns, from prototypes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.methods import guards, prototypes
from refprotofl.methods import prototype_learning as learning
from refprotofl.methods.base import Client, Cohort, Refused, Server
from refprotofl.methods.training import Loss, Samples, train
from refprotofl.models import ADAPTER, Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


class FedPCLServer(Server):
    kinds: ClassVar[Mapping[str, Kind]] = prototypes.KINDS

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        check_frozen(model)
        shape = (self.num_classes, experiment.model.embedding)
        self.anchors = torch.zeros(shape)  # (C, m), rows of length 1
        self.defined = torch.zeros(self.num_classes, dtype=torch.bool)
        self.local = torch.zeros(experiment.clients, *shape)  # every client's newest prototypes, (clients, C, m)
        self.held = torch.zeros(experiment.clients, self.num_classes, dtype=torch.bool)

    @property
    def state_names(self) -> Sequence[str]:
        return ("anchors", "defined", "local", "held", "samples")

    def round(self, cohort: Cohort) -> None:
        if self.ships_public_set:
            self.join_newcomers(cohort)
        if not self.defined.any():  # the first prototypes are of the layer that has not learned yet
            self.take(self.ask(cohort, "prototypes", {}, self.read))
        self.take(self.ask(cohort, "train", self.broadcast(), self.read))

    def read(self, client: int, answer: Message) -> prototypes.ClassMeans:
        return prototypes.read_means(answer, *self.anchors.shape)

    def take(self, uploads: Iterable[tuple[int, prototypes.ClassMeans]]) -> None:
        """Keeps each client's prototypes and averages the newest of all clients."""
        for client, one in uploads:
            self.local[client], self.held[client] = one.means, one.counts > 0
        known = [prototypes.ClassMeans(*pair) for pair in zip(self.local, self.held.long(), strict=True)]
        anchors, self.defined = learning.average(known, "uniform", self.anchors, self.defined)
        self.anchors = functional.normalize(anchors)

    def broadcast(self) -> Message:
        """The global prototypes and every client's own; who holds which is told by a table of yes and no."""
        known = self.held.any(dim=1)
        sets: Message = {"prototypes": self.local[self.held], "held": self.held[known]}
        return {**prototypes.write_anchors(self.anchors, self.defined), **sets}

    def evaluation(self) -> Message:
        return prototypes.write_anchors(self.anchors, self.defined)


class FedPCLClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "prototypes", "train", "evaluate")

    def prototypes(self, round: int, message: Message) -> Message:
        self.load()
        return prototypes.write_means(learning.collect(self, self.training_samples(), unit=True))

    def load(self) -> None:
        check_frozen(self.model)  # every client may have a backbone of its own
        self.model.write_private(self.state)

    def train(self, round: int, message: Message) -> Message:
        self.load()
        anchors, defined = self.read_anchors(message)
        loss = self.contrastive_loss(anchors, defined, read_sets(message, anchors))
        samples, order = self.training_samples(), self.stream("batches", round)
        trained = train(self.model, samples, self.experiment.train, order, loss=loss, parts=ADAPTER)
        against = defined[samples.own_labels] & (int(defined.sum()) > 1)
        guards.alignment_happened(trained.penalty, 1.0, against, "the contrastive weight")
        self.keep_trained(round)
        return prototypes.write_means(learning.collect(self, samples, unit=True))

    def contrastive_loss(self, anchors: Tensor, defined: Tensor, sets: Tensor) -> Loss:
        """Against the global prototypes and, on average, against every client's; the head learns beside it."""
        temperature = self.experiment.fedpcl.temperature
        anchors, defined, sets = (one.to(self.model.device) for one in (anchors, defined, sets))

        def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            self.model.backbone.eval()  # its statistics are frozen too
            embeddings = self.model.embed(inputs)  # (B, m)
            common = learning.contrastive_loss(embeddings, labels, anchors, defined, temperature)
            each = [learning.contrastive_loss(embeddings, labels, one, defined, temperature) for one in sets]
            contrast = common + torch.stack(each).mean()
            return contrast + functional.cross_entropy(self.model.head(embeddings.detach()), labels), contrast

        return loss

    def read_anchors(self, message: Message) -> tuple[Tensor, Tensor]:
        return prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, torch.empty(0), *self.read_anchors(message))


def check_frozen(model: SplitModel) -> None:
    if any(parameter.requires_grad for parameter in model.backbone.parameters()):
        raise InputError(
            'method = "fedpcl" needs a frozen backbone, but this model\'s has parameters that train: '
            "give model.name as module:function of a pre-trained one, with requires_grad_(False)."
        )


def read_sets(message: Message, anchors: Tensor) -> Tensor:
    """Each client's prototypes, those that it lacks filled in from the global ones: (clients, C, m)."""
    held, rows = message["held"], message["prototypes"]
    if not isinstance(held, Tensor) or held.dtype != torch.bool or held.dim() != 2 or held.shape[1] != len(anchors):
        raise Refused(f"held is not a table of clients and {len(anchors)} classes")
    if not isinstance(rows, Tensor) or rows.shape != (int(held.sum()), anchors.shape[1]):
        raise Refused("prototypes are not as many as held says")
    sets = anchors.repeat(len(held), 1, 1)
    sets[held] = rows
    return sets
