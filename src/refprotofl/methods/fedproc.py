"""FedProc (Mu et al. 2023): FedAvg whose clients first follow global class prototypes, then the labels."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from refprotofl.experiment import Experiment
from refprotofl.methods import guards, prototypes, sharing
from refprotofl.methods import prototype_learning as learning
from refprotofl.methods.base import Client, Cohort, Server
from refprotofl.methods.training import Loss, Samples, train
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


class FedProcServer(Server):
    sends_weights: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, Kind]] = sharing.KINDS | prototypes.KINDS

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        self.shared = model.read(parts)  # (P,)
        self.anchors, self.defined = prototypes.no_anchors(experiment)  # rows of length 1

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples", "anchors", "defined")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        uploads: list[prototypes.ClassMeans] = []
        anchors = prototypes.write_anchors(self.anchors, self.defined)
        requests = sharing.requests(self, cohort.round, self.shared, anchors)
        changes = self.ask(cohort, "train", requests, partial(self.read, cohort.round, uploads))
        self.shared = sharing.step(self, self.shared, changes)
        means, self.defined = learning.average(uploads, "uniform", self.anchors, self.defined)
        self.anchors = functional.normalize(means)  # so that the nearest is the one of the least angle

    def read(self, round: int, uploads: list[prototypes.ClassMeans], client: int, answer: Message) -> Tensor:
        """One client's change; its prototypes are put into `uploads`."""
        held = prototypes.read_means(answer, *self.anchors.shape)
        change = sharing.read_change(self, round, self.shared, client, answer)
        uploads.append(held)
        return change

    def evaluation(self) -> Message:
        return {"shared": self.shared, **prototypes.write_anchors(self.anchors, self.defined)}

    def global_model(self) -> SplitModel | None:
        return sharing.global_model(self, self.shared)


class FedProcClient(Client):
    def train(self, round: int, message: Message) -> Message:
        received = sharing.load_shared(self, message)
        anchors, defined = self.read_anchors(message)
        share = self.contrast_share(round) if defined.any() else 0.0
        samples = self.training_samples()
        loss = self.hybrid_loss(share, anchors, defined) if share else None
        trained = train(self.model, samples, self.experiment.train, self.stream("batches", round), loss=loss)
        against = defined[samples.own_labels] & (int(defined.sum()) > 1)
        guards.alignment_happened(trained.penalty, share, against, "fedproc.weight * (1 - t / T)")
        answer = sharing.write_update(self, round, received, self.keep_trained(round))
        return answer | prototypes.write_means(learning.collect(self, samples, unit=True))

    def contrast_share(self, round: int) -> float:
        """How much of the loss is contrastive: it falls from round to round, to 0 in the last."""
        return self.experiment.fedproc.weight * (1 - round / self.experiment.rounds)

    def hybrid_loss(self, share: float, anchors: Tensor, defined: Tensor) -> Loss:
        temperature = self.experiment.fedproc.temperature
        anchors, defined = anchors.to(self.model.device), defined.to(self.model.device)

        def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            embeddings = self.model.embed(inputs)  # (B, m)
            contrast = share * learning.contrastive_loss(embeddings, labels, anchors, defined, temperature)
            return contrast + (1 - share) * functional.cross_entropy(self.model.head(embeddings), labels), contrast

        return loss

    def read_anchors(self, message: Message) -> tuple[Tensor, Tensor]:
        return prototypes.read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, message["shared"], *self.read_anchors(message))  # type: ignore[arg-type]
