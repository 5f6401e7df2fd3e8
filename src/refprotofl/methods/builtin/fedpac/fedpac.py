"""FedPAC (Xu et al. 2023): a shared body drawn to common class prototypes, and for each client a mixture of all heads.

The mixtures are the server's last word in a round: the clients keep them as their private heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.basics.parts import BODY, HEAD
from refprotofl.basics.state import tensor_of
from refprotofl.methods.builtin.fedpac import Options
from refprotofl.methods.builtin.fedpac.mixtures import HeadStatistics, head_statistics, mixture_weights
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes, weights
from refprotofl.methods.core.client import Client
from refprotofl.methods.core.cohort import Cohort
from refprotofl.methods.core.fields import Dense, Exchange, Exchanges, Real, Received
from refprotofl.methods.core.messages import Scope, declare
from refprotofl.methods.core.server import Desk, Server, set_aside
from refprotofl.methods.core.training import check_alignment, cross_entropy, embed, train_part
from refprotofl.wire import Message


@dataclass(frozen=True)
class Beside:
    """What a client sends beside its body."""

    head: Tensor  # (P_c,)
    prototypes: prototypes.ClassMeans  # after training
    statistics: HeadStatistics  # before training


class FedPACServer(Server):
    sends_weights: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.shared = desk.model.read(desk.parts)  # the body
        self.anchors, self.defined = prototypes.no_anchors(desk.experiment)

    @classmethod
    def exchanges(cls, scope: Scope) -> Exchanges:
        anchors, shared = prototypes.anchor_fields(scope), weights.shared_vector(scope)
        head = {"head": Dense((sum(scope.model.sizes(HEAD)),), kind="parameters")}
        told = {
            **weights.change(scope),
            **prototypes.mean_fields(scope, counted=True),
            **head,
            "weighted_means": Dense((scope.classes, scope.width), kind="prototype_values"),
            "spread": Real(low=0),
        }
        trained = Exchange({**weights.broadcast(scope), **anchors}, told)
        return declare(scope, evaluate={"shared": shared, **anchors}, train=trained, mixed_head=Exchange(head))

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples", "anchors", "defined")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        anchors = prototypes.write_anchors(self.anchors, self.defined)  # none in the first round
        requests = weights.requests(self, cohort.round, self.shared, anchors)
        uploads: dict[int, Beside] = {}
        answers = self.ask(cohort, "train", requests, partial(self.read, cohort.round))  # feature alignment
        changes = set_aside(answers, uploads)
        self.shared = weights.step(self, cohort.round, self.shared, changes)  # the body, by data size
        self.anchors, self.defined = learning.average(
            self.experiment,
            [upload.prototypes for upload in uploads.values()],
            "count",
            self.anchors,
            self.defined,
            retain=False,
        )  # common class prototypes, by class counts
        heads = self.mixtures(uploads)  # classifier collaboration
        for _ in self.ask(cohort, "mixed_head", lambda client: {"head": heads[client]}, lambda _, answer: answer):
            pass

    def read(self, round: int, client: int, answer: Received) -> tuple[Tensor, Beside]:
        """How far the body moved, and the rest of the answer."""
        statistics = HeadStatistics(answer.tensor("weighted_means"), answer.real("spread"))
        held = prototypes.read_means(answer, *self.anchors.shape, counted=True)
        change = weights.read_change(self, round, self.shared, client, answer)
        return change, Beside(answer.tensor("head"), held, statistics)

    def mixtures(self, uploads: Mapping[int, Beside]) -> dict[int, Tensor]:
        """Each client's convex combination of all heads of the round."""
        heads = torch.stack([upload.head for upload in uploads.values()]).to(torch.float64)  # (clients, P_c)
        shares = mixture_weights([upload.statistics for upload in uploads.values()])  # (clients, clients)
        mixed = (shares.unsqueeze(2) * heads).sum(dim=1).to(torch.float32)
        return dict(zip(uploads, mixed, strict=True))

    def evaluation(self) -> Message:
        return {"shared": self.shared, **prototypes.write_anchors(self.anchors, self.defined)}


class FedPACClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "train", "mixed_head", "evaluate")
    options: Options

    def train(self, round: int, message: Received) -> Message:
        received = weights.load_shared(self, message)
        samples, table, options = self.training_samples(), self.experiment.train, self.options
        embeddings = embed(self.model, samples.own_images)
        statistics, own = head_statistics(embeddings, samples.own_labels, self.num_classes)
        order = self.stream("batches", round)
        head_table = table.model_copy(update={"local_epochs": options.head_epochs, "lr": options.head_lr})
        train_part(self.model, HEAD, samples, head_table, order)
        anchors, defined = self.anchors(message, own)
        pull = learning.Pull(options.align, "fedpac.align")
        loss = cross_entropy(self.model, pull.penalty(anchors, defined, self.model.device))
        trained = train_part(self.model, BODY, samples, table, order, loss=loss)
        check_alignment(trained, samples, options.align, defined, pull.key)
        answer = weights.write_update(self, round, received, self.keep_trained(round))
        self.state["trained_head"] = head = self.model.read(HEAD)
        means = prototypes.write_means(learning.collect(self, samples), counted=True)
        return answer | means | {"head": head, "weighted_means": statistics.means, "spread": statistics.spread}

    def anchors(self, message: Received, own: prototypes.ClassMeans) -> tuple[Tensor, Tensor]:
        """The common prototypes; for a class that has none this client's own. None at all in the first round."""
        anchors, defined = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        if not defined.any():
            return anchors, defined
        return torch.where(defined.unsqueeze(1), anchors, own.means), defined | (own.counts > 0)

    def mixed_head(self, round: int, message: Received) -> Message:
        self.model.write(HEAD, message.tensor("head"))
        self.state |= {name: value for name, value in self.model.read_private(BODY).items() if name.startswith("head.")}
        return {}

    def load_trained(self) -> None:
        super().load_trained()
        self.model.write(HEAD, tensor_of(self.state, "trained_head"))

    def evaluate(self, round: int, message: Received) -> Message:
        anchors = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        return self.score(round, message.tensor("shared"), *anchors)
