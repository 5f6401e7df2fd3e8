"""FedPAC (Xu et al. 2023): a shared body drawn to common class prototypes, and for each client a mixture of all heads.

The mixtures are the server's last word in a round: the clients keep them as their private heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.experiment import Experiment
from refprotofl.methods import guards, prototypes, sharing
from refprotofl.methods import prototype_learning as learning
from refprotofl.methods.base import Client, Cohort, Refused, Server
from refprotofl.methods.mixtures import HeadStatistics, head_statistics, mixture_weights
from refprotofl.methods.training import Samples, cross_entropy, embed, train_part
from refprotofl.models import BODY, HEAD, Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


@dataclass(frozen=True)
class Upload:
    """What a client sends beside its body."""

    head: Tensor  # (P_c,)
    prototypes: prototypes.ClassMeans  # after training
    statistics: HeadStatistics  # before training


class FedPACServer(Server):
    sends_weights: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, Kind]] = (
        sharing.KINDS | prototypes.KINDS | {"head": "parameters", "weighted_means": "prototype_values"}
    )

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        self.shared = model.read(parts)  # the body
        self.head_size = sum(model.sizes(HEAD))
        self.anchors, self.defined = prototypes.no_anchors(experiment)

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples", "anchors", "defined")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        anchors = prototypes.write_anchors(self.anchors, self.defined)  # none in the first round
        requests = sharing.requests(self, cohort.round, self.shared, anchors)
        uploads: dict[int, Upload] = {}
        changes = self.ask(cohort, "train", requests, partial(self.read, cohort.round, uploads))  # feature alignment
        self.shared = sharing.step(self, self.shared, changes)  # the body, by data size
        self.anchors, self.defined = learning.average(
            [upload.prototypes for upload in uploads.values()], "count", self.anchors, self.defined, retain=False
        )  # common class prototypes, by class counts
        heads = self.mixtures(uploads)  # classifier collaboration
        for _ in self.ask(cohort, "mixed_head", lambda client: {"head": heads[client]}, lambda _, answer: answer):
            pass

    def read(self, round: int, uploads: dict[int, Upload], client: int, answer: Message) -> Tensor:
        """How far the body moved; the rest of the answer is put into `uploads`."""
        head, spread = sharing.read_values(answer, "head", (self.head_size,)), answer["spread"]
        means = sharing.read_values(answer, "weighted_means", self.anchors.shape)
        if not isinstance(spread, float) or spread < 0:
            raise Refused(f"spread = {spread!r} is not a number of 0 or more")
        held = prototypes.read_means(answer, *self.anchors.shape, counted=True)
        change = sharing.read_change(self, round, self.shared, client, answer)
        uploads[client] = Upload(head, held, HeadStatistics(means, spread))
        return change

    def mixtures(self, uploads: Mapping[int, Upload]) -> dict[int, Tensor]:
        """Each client's convex combination of all heads of the round."""
        heads = torch.stack([upload.head for upload in uploads.values()]).to(torch.float64)  # (clients, P_c)
        weights = mixture_weights([upload.statistics for upload in uploads.values()])  # (clients, clients)
        mixed = (weights.unsqueeze(2) * heads).sum(dim=1).to(torch.float32)
        return dict(zip(uploads, mixed, strict=True))

    def evaluation(self) -> Message:
        return {"shared": self.shared, **prototypes.write_anchors(self.anchors, self.defined)}


class FedPACClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "train", "mixed_head", "evaluate")

    def train(self, round: int, message: Message) -> Message:
        received = sharing.load_shared(self, message)
        samples, table, options = self.training_samples(), self.experiment.train, self.experiment.fedpac
        embeddings = embed(self.model, samples.own_images)
        statistics, own = head_statistics(embeddings, samples.own_labels, self.num_classes)
        order = self.stream("batches", round)
        head_table = table.model_copy(update={"local_epochs": options.head_epochs, "lr": options.head_lr})
        train_part(self.model, HEAD, samples, head_table, order)
        anchors, defined = self.anchors(message, own)
        pull = learning.Pull(options.align, "fedpac.align")
        loss = cross_entropy(self.model, pull.penalty(anchors, defined, self.model.device))
        trained = train_part(self.model, BODY, samples, table, order, loss=loss)
        guards.alignment_happened(trained.penalty, options.align, defined[samples.own_labels], pull.key)
        answer = sharing.write_update(self, round, received, self.keep_trained(round))
        self.state["trained_head"] = head = self.model.read(HEAD)
        means = prototypes.write_means(learning.collect(self, samples), counted=True)
        return answer | means | {"head": head, "weighted_means": statistics.means, "spread": statistics.spread}

    def anchors(self, message: Message, own: prototypes.ClassMeans) -> tuple[Tensor, Tensor]:
        """The common prototypes; for a class that has none this client's own. None at all in the first round."""
        anchors, defined = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        if not defined.any():
            return anchors, defined
        return torch.where(defined.unsqueeze(1), anchors, own.means), defined | (own.counts > 0)

    def mixed_head(self, round: int, message: Message) -> Message:
        head = sharing.read_values(message, "head", (sum(self.model.sizes(HEAD)),))
        self.model.write(HEAD, head)
        self.state |= {name: value for name, value in self.model.read_private(BODY).items() if name.startswith("head.")}
        return {}

    def load_trained(self) -> None:
        super().load_trained()
        self.model.write(HEAD, self.state["trained_head"])  # type: ignore[arg-type]

    def evaluate(self, round: int, message: Message) -> Message:
        anchors = prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)
        return self.score(round, message["shared"], *anchors)  # type: ignore[arg-type]
