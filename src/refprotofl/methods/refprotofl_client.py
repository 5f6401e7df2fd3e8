"""RefProtoFL's clients: prototypes of the public set (Algorithm 3), training (5) and the masked upload (1)."""

from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.basics.state import State
from refprotofl.experiment.tables import RefProtoFL
from refprotofl.methods import erpa, guards, masked, sharing
from refprotofl.methods.base import LOST, Client
from refprotofl.methods.link import held, hold
from refprotofl.methods.prototypes import Prototypes, read_anchors, write_prototypes
from refprotofl.methods.training import Penalty, cross_entropy, embed, train
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message, encode


class RefProtoClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "prototypes", "train", "evaluate")

    def prototypes(self, round: int, message: Message) -> Message:
        adapter, public = self.receive(round, message), self.public_set()
        if adapter is None or public is None:
            return self.spend(round, {LOST: True})
        self.load(adapter)
        return self.spend(round, write_prototypes(self.compute_prototypes(public)))

    def train(self, round: int, message: Message) -> Message:
        adapter = self.receive(round, message)
        sends_prototypes = masked.sends_prototypes(self.table, round)
        public = self.public_set() if sends_prototypes else None
        forgot = self.experiment.feedback == "ef21" and "memory" not in self.state
        if adapter is None or forgot or (sends_prototypes and public is None):
            return self.spend(round, {LOST: True})
        local = self.train_locally(round, adapter, *self.read_anchors(message))  # Algorithm 5
        extra = write_prototypes(self.compute_prototypes(public)) if public is not None else {}
        if self.experiment.compress.name != "none":
            return {**extra, **sharing.write_change(self, round, local - adapter)}
        answer, memory = masked.compose(
            self.table,
            self.model.sizes(self.parts),
            local,
            adapter,
            self.state.get("memory", torch.zeros_like(local)),  # type: ignore[arg-type]
            lambda: self.stream("select", round),
            extra,
            self.spent(round),
        )
        if self.table.error_feedback != "none":
            self.state["memory"] = memory
        return answer

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, message["adapter"], *self.read_anchors(message))  # type: ignore[arg-type]

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        model.write_private(own)
        model.write(parts, server["adapter"])  # type: ignore[arg-type]

    def spend(self, round: int, answer: Message) -> Message:
        """Counts an answer that goes before the masked update against the round's uplink budget."""
        if self.table.uplink_budget is not None:
            self.state["spent"] = self.spent(round) + len(encode(answer))
            self.state["spent_round"] = round
        return answer

    def spent(self, round: int) -> int:
        return int(self.state["spent"]) if self.state.get("spent_round") == round else 0

    @property
    def table(self) -> RefProtoFL:
        return self.experiment.refprotofl

    def receive(self, round: int, message: Message) -> Tensor | None:
        """The round's adapter, from the message or the store; None if the store lacks what the message builds on."""
        if "base" not in message and "adapter" not in message:
            return held(self.state, "adapter", round)
        sent = sharing.rebuilt(self.state, "adapter", message) if "base" in message else message["adapter"]
        if isinstance(sent, Tensor):
            hold(self.state, "adapter", sent, round)
            return sent
        return None

    def read_anchors(self, message: Message) -> tuple[Tensor, Tensor]:
        return read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def compute_prototypes(self, public: tuple[Tensor, Tensor]) -> Prototypes:
        """Algorithm 3, with the weights that are loaded."""
        images, labels = public
        covered = labels.unique()
        means, _ = erpa.class_prototypes(embed(self.model, images), labels, self.num_classes)  # Eq. (10)
        rows = self.samples.rows[~torch.isin(self.samples.own_labels, covered)]
        own = embed(self.model, self.samples.images_of(rows))
        local, counts = erpa.class_prototypes(own, self.samples.labels[rows], self.num_classes)  # Eq. (11)
        return Prototypes(means[covered], local, counts)

    def train_locally(self, round: int, adapter: Tensor, anchors: Tensor, defined: Tensor) -> Tensor:
        """Trains backbone and adapter from where they are; gives the trained adapter (d,)."""
        self.load(adapter)
        samples, order = self.training_samples(), self.stream("batches", round)
        loss = cross_entropy(self.model, self.penalty(anchors, defined))  # Eq. (19)
        trained = train(self.model, samples, self.experiment.train, order, loss=loss)
        guards.alignment_happened(trained.penalty, self.table.align, defined[samples.own_labels])
        return self.keep_trained(round)

    def load(self, adapter: Tensor) -> None:
        self.model.write_private(self.state)
        self.model.write(self.parts, adapter)

    def penalty(self, anchors: Tensor, defined: Tensor) -> Penalty | None:
        if self.table.align == 0 or not defined.any():
            return None
        weight = self.table.align / anchors.shape[1]
        anchors, defined = anchors.to(self.model.device), defined.to(self.model.device)
        return lambda embeddings, labels: weight * erpa.alignment_loss(embeddings, labels, anchors, defined)
