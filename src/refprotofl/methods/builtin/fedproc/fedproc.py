"""FedProc (Mu et al. 2023): FedAvg whose clients first follow global class prototypes, then the labels."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from refprotofl.methods import (
    Client,
    Cohort,
    Loss,
    MessageSchema,
    MessageSchemas,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    check_alignment,
    declare,
    set_aside,
)
from refprotofl.methods.builtin.fedproc import Options
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes, weights
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class FedProcServer(Server):
    sends_weights: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.shared = context.model.read(context.parts)  # (P,)
        self.anchors, self.defined = prototypes.no_anchors(context.experiment)  # rows of length 1

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        anchors = prototypes.anchor_fields(scope)
        down, up = weights.broadcast(scope), weights.change(scope)
        trained = MessageSchema({**down, **anchors}, {**up, **prototypes.mean_fields(scope)})
        evaluated = {"shared": weights.shared_vector(scope), **anchors}
        return declare(scope, evaluate=evaluated, train=trained, finetune=weights.finetuning(scope))

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples", "anchors", "defined")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        uploads: dict[int, prototypes.ClassMeans] = {}
        anchors = prototypes.write_anchors(self.anchors, self.defined)
        requests = weights.requests(self, cohort.round, self.shared, anchors)
        changes = set_aside(self.ask(cohort, "train", requests, partial(self.read, cohort.round)), uploads)
        self.shared = weights.step(self, cohort.round, self.shared, changes)
        means, self.defined = learning.average(self.experiment, uploads.values(), "uniform", self.anchors, self.defined)
        self.anchors = functional.normalize(means)  # so that the nearest is the one of the least angle

    def read(self, round: int, client: int, answer: ValidatedMessage) -> tuple[Tensor, prototypes.ClassMeans]:
        """Return one client's change and its prototypes."""
        held = prototypes.read_means(answer, *self.anchors.shape)
        return weights.read_change(self, round, self.shared, client, answer), held

    def evaluation(self) -> Message:
        return {"shared": self.shared, **prototypes.write_anchors(self.anchors, self.defined)}

    def global_model(self) -> SplitModel | None:
        return self.whole_model(self.shared)


class FedProcClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        anchors, defined = self.read_anchors(message)
        share = self.contrast_share(round) if defined.any() else 0.0
        samples = self.training_samples()
        loss = self.hybrid_loss(share, anchors, defined) if share else None
        trained = self.fit(round, samples=samples, loss=loss)
        against = defined & (int(defined.sum()) > 1)  # (C,)
        check_alignment(trained, samples, share, against, "fedproc.weight * (1 - t / T)")
        answer = weights.write_update(self, round, received, self.keep_trained(round))
        return answer | prototypes.write_means(learning.collect(self, samples, unit=True))

    def contrast_share(self, round: int) -> float:
        """Return the contrastive share of the loss, which falls from round to round to 0 in the last."""
        return self.options.weight * (1 - round / self.experiment.rounds)

    def hybrid_loss(self, share: float, anchors: Tensor, defined: Tensor) -> Loss:
        temperature = self.options.temperature
        anchors, defined = anchors.to(self.model.device), defined.to(self.model.device)

        def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            embeddings = self.model.embed(inputs)  # (B, m)
            contrast = share * learning.contrastive_loss(embeddings, labels, anchors, defined, temperature)
            return contrast + (1 - share) * functional.cross_entropy(self.model.head(embeddings), labels), contrast

        return loss

    def read_anchors(self, message: ValidatedMessage) -> tuple[Tensor, Tensor]:
        return prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"), *self.read_anchors(message))
