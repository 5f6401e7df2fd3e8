"""FedPAC (Xu et al. 2023): a shared body aligned to common class prototypes, and each client a mixture of all heads.

The weights of a mixture (classifier combination) weigh bias against variance: a head learned elsewhere has the other
client's bias, and every head has the variance of the data it was learned from. Clients receive their mixture at the end
of a round and keep it as their private head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.core import BODY, HEAD, tensor_of
from refprotofl.methods import (
    Client,
    Cohort,
    Dense,
    MessageSchema,
    MessageSchemas,
    Real,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    check_alignment,
    cross_entropy,
    declare,
    embed,
    erpa,
    set_aside,
)
from refprotofl.methods.builtin.fedpac import Options
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes, weights
from refprotofl.methods.common.prototypes import ClassMeans
from refprotofl.wire import Message

LARGEST_SPREAD = 1e6  # times the median: a larger one would leave no digits for the others

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics of a client's embeddings by which the server weighs its head."""

    means: Tensor  # (C, m), h: class means times the class's share of the samples
    spread: float  # v: variance around them, divided by the number of samples


def head_statistics(embeddings: Tensor, labels: Tensor, num_classes: int) -> tuple[HeadStatistics, ClassMeans]:
    """Return the statistics of embeddings (n, m) with labels (n,), and the class means that they are made of."""
    prototypes, counts = erpa.class_prototypes(embeddings, labels, num_classes)
    means = prototypes.to(torch.float64) * (counts / len(labels)).unsqueeze(1)
    squared = embeddings.to(torch.float64).square().sum(dim=1).mean()
    spread = float((squared - means.square().sum()).clamp(min=0)) / len(labels)
    return HeadStatistics(means.to(embeddings.dtype), spread), ClassMeans(prototypes, counts)


def mixture_weights(statistics: Sequence[HeadStatistics]) -> Tensor:
    """Return (clients, clients): row i minimises sum_j w_j^2 v_j + |sum_j w_j (h_i - h_j)|^2 over convex weights."""
    means = np.stack([one.means.to(torch.float64).flatten().numpy() for one in statistics])  # (clients, C * m)
    reported = np.array([one.spread for one in statistics])
    spreads = np.diag(np.minimum(reported, LARGEST_SPREAD * float(np.median(reported)) or np.inf))
    rows = [least_on_simplex(spreads + (apart := own - means) @ apart.T) for own in means]
    return torch.from_numpy(np.stack(rows))


def least_on_simplex(matrix: Numbers) -> Numbers:
    """Return the w >= 0 with sum 1 that minimises w' M w, for a positive semidefinite M.

    Without the constraint on the sum, but with (sum - 1)^2 added, it is a non-negative least-squares problem. Its
    solution is the same up to its length: along any direction w with q = w' M w the minimum is q / (q + 1), which
    grows with q.
    """
    from scipy.optimize import nnls  # here, because importing it takes half a second

    size = len(matrix)
    scale = np.trace(matrix) / size
    if scale == 0:
        return np.full(size, 1 / size)
    values, vectors = np.linalg.eigh(matrix / scale)
    root = np.sqrt(values.clip(min=0))[:, None] * vectors.T  # root' root = M / scale
    stacked = np.vstack([root, np.ones(size)])
    weights, _ = nnls(stacked, np.append(np.zeros(size), 1.0), maxiter=100 * size)
    shares: Numbers = weights / weights.sum()
    return shares


@dataclass(frozen=True)
class Rest:
    """The parts of a client's upload other than its body."""

    head: Tensor  # (P_c,)
    prototypes: prototypes.ClassMeans  # after training
    statistics: HeadStatistics  # before training


class FedPACServer(Server):
    sends_weights: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.shared = context.model.read(context.parts)  # the body
        self.anchors, self.defined = prototypes.no_anchors(context.experiment)

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        anchors, shared = prototypes.anchor_fields(scope), weights.shared_vector(scope)
        head = {"head": Dense((sum(scope.model.sizes(HEAD)),), kind="parameters")}
        up = {
            **weights.change(scope),
            **prototypes.mean_fields(scope, counted=True),
            **head,
            "weighted_means": Dense((scope.classes, scope.width), kind="prototype_values"),
            "spread": Real(low=0),
        }
        trained = MessageSchema({**weights.broadcast(scope), **anchors}, up)
        return declare(scope, evaluate={"shared": shared, **anchors}, train=trained, mixed_head=MessageSchema(head))

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples", "anchors", "defined")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        anchors = prototypes.write_anchors(self.anchors, self.defined)  # none in the first round
        requests = weights.requests(self, cohort.round, self.shared, anchors)
        uploads: dict[int, Rest] = {}
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

    def read(self, round: int, client: int, answer: ValidatedMessage) -> tuple[Tensor, Rest]:
        """Return the change of the body, and the rest of the answer."""
        statistics = HeadStatistics(answer.tensor("weighted_means"), answer.real("spread"))
        held = prototypes.read_means(answer, *self.anchors.shape, counted=True)
        change = weights.read_change(self, round, self.shared, client, answer)
        return change, Rest(answer.tensor("head"), held, statistics)

    def mixtures(self, uploads: Mapping[int, Rest]) -> dict[int, Tensor]:
        """Return each client's convex combination of all heads of the round."""
        heads = torch.stack([upload.head for upload in uploads.values()]).to(torch.float64)  # (clients, P_c)
        shares = mixture_weights([upload.statistics for upload in uploads.values()])  # (clients, clients)
        mixed = (shares.unsqueeze(2) * heads).sum(dim=1).to(torch.float32)
        return dict(zip(uploads, mixed, strict=True))

    def evaluation(self) -> Message:
        return {"shared": self.shared, **prototypes.write_anchors(self.anchors, self.defined)}


class FedPACClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "train", "mixed_head", "evaluate")
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        samples, options = self.training_samples(), self.options
        embeddings = embed(self.model, samples.own_inputs)
        statistics, own = head_statistics(embeddings, samples.own_labels, self.num_classes)
        order = self.stream("batches", round)
        self.fit(round, samples=samples, parts=HEAD, order=order, epochs=options.head_epochs, lr=options.head_lr)
        anchors, defined = self.anchors(message, own)
        alignment = learning.Alignment(options.align, "fedpac.align")
        loss = cross_entropy(self.model, alignment.penalty(anchors, defined, self.model.device))
        trained = self.fit(round, samples=samples, parts=BODY, order=order, loss=loss)
        check_alignment(trained, samples, options.align, defined, alignment.key)
        answer = weights.write_update(self, round, received, self.keep_trained(round))
        self.state["trained_head"] = head = self.model.read(HEAD)
        means = prototypes.write_means(learning.collect(self, samples), counted=True)
        return answer | means | {"head": head, "weighted_means": statistics.means, "spread": statistics.spread}

    def anchors(self, message: ValidatedMessage, own: prototypes.ClassMeans) -> tuple[Tensor, Tensor]:
        """Return the common prototypes, and this client's own for a class without; none in the first round."""
        anchors, defined = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        if not defined.any():
            return anchors, defined
        return torch.where(defined.unsqueeze(1), anchors, own.means), defined | (own.counts > 0)

    def mixed_head(self, round: int, message: ValidatedMessage) -> Message:
        self.model.write(HEAD, message.tensor("head"))
        self.state |= {name: value for name, value in self.model.read_private(BODY).items() if name.startswith("head.")}
        return {}

    def load_trained(self) -> None:
        super().load_trained()
        self.model.write(HEAD, tensor_of(self.state, "trained_head"))

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        anchors = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        return self.score(round, message.tensor("shared"), *anchors)
