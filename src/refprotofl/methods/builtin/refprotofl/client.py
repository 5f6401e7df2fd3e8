"""RefProtoFL's clients: prototypes of the public set (Algorithm 3), training (5) and the masked upload (1)."""

from typing import ClassVar

from torch import Tensor

from refprotofl.core import Parts, State, tensor_of
from refprotofl.methods import (
    LOST,
    Client,
    Lost,
    Penalty,
    ValidatedMessage,
    check_alignment,
    class_means,
    cross_entropy,
    embed,
    erpa,
    fixed,
    held,
    hold,
)
from refprotofl.methods.builtin.refprotofl import Options, masked
from refprotofl.methods.builtin.refprotofl.uplink import create_uplink
from refprotofl.methods.common import weights
from refprotofl.methods.common.prototypes import Prototypes, read_anchors, write_prototypes
from refprotofl.models import SplitModel
from refprotofl.wire import Message, encode


class RefProtoClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "prototypes", "train", "evaluate")
    options: Options

    def answer(self, verb: str, round: int, message: Message) -> Message:
        """Answer, and count what precedes the masked update against the round's uplink budget."""
        answer = super().answer(verb, round, message)
        if self.options.uplink_budget is not None and (verb == "prototypes" or LOST in answer):
            self.state["spent"] = self.spent(round) + len(encode(answer, self.experiment.value_code))
            self.state["spent_round"] = round
        return answer

    def prototypes(self, round: int, message: ValidatedMessage) -> Message:
        adapter, public = self.receive(round, message), self.public_set()
        self.load(adapter)
        return self.write_prototypes(public)

    def train(self, round: int, message: ValidatedMessage) -> Message:
        adapter = self.receive(round, message)
        public = self.public_set() if masked.sends_prototypes(self.options, round) else None
        if self.context.feedback.server_memory and "memory" not in self.state:
            raise Lost
        local = self.train_locally(round, adapter, *self.read_anchors(message))  # Algorithm 5
        extra = self.write_prototypes(public) if public is not None else {}
        uplink = create_uplink(self.experiment, self.options)
        return uplink.write(self, round, local, adapter, extra)  # Algorithm 1

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("adapter"), *self.read_anchors(message))

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        model.write_private(own)
        model.write(parts, tensor_of(server, "adapter"))

    def spent(self, round: int) -> int:
        return int(self.state["spent"]) if self.state.get("spent_round") == round else 0

    def receive(self, round: int, message: ValidatedMessage) -> Tensor:
        """Return the round's adapter, from the message or the store; raise `Lost` if the store lacks its base."""
        if "base" not in message and "adapter" not in message:
            kept = held(self.state, "adapter", round)
            if kept is None:
                raise Lost
            return kept
        sent = weights.rebuild(self, "adapter", message) if "base" in message else message.tensor("adapter")
        hold(self.state, "adapter", sent, round)
        return sent

    def read_anchors(self, message: ValidatedMessage) -> tuple[Tensor, Tensor]:
        return read_anchors(message, self.num_classes, self.experiment.model.embedding)

    def write_prototypes(self, public: tuple[Tensor, Tensor]) -> Message:
        narrow = masked.DTYPES[self.options.prototype_type]
        return write_prototypes(self.compute_prototypes(public), narrow)

    def compute_prototypes(self, public: tuple[Tensor, Tensor]) -> Prototypes:
        """Run Algorithm 3 with the loaded weights."""
        images, labels = public
        covered = labels.unique()
        means, _ = erpa.class_prototypes(embed(self.model, images), labels, self.num_classes)  # Eq. (10)
        local, counts = class_means(self, self.samples, without=covered)  # Eq. (11)
        enough = counts >= self.options.min_count
        return Prototypes(means[covered], local * enough.unsqueeze(1), counts * enough)

    def train_locally(self, round: int, adapter: Tensor, anchors: Tensor, defined: Tensor) -> Tensor:
        """Train backbone and adapter, and return the trained adapter (d,): Algorithm 5."""
        self.load(adapter)
        samples = self.training_samples()
        loss = cross_entropy(self.model, self.penalty(anchors, defined))  # Eq. (19)
        frozen = self.model.backbone if self.options.backbone == "frozen" else None
        with fixed(frozen.parameters() if frozen is not None else ()):
            trained = self.fit(round, samples=samples, loss=loss, frozen=frozen)
            check_alignment(trained, samples, self.options.align, defined)
            return self.keep_trained(round)

    def penalty(self, anchors: Tensor, defined: Tensor) -> Penalty | None:
        if self.options.align == 0 or not defined.any():
            return None
        weight = self.options.align / anchors.shape[1]
        anchors, defined = anchors.to(self.model.device), defined.to(self.model.device)
        return lambda embeddings, labels: weight * erpa.alignment_loss(embeddings, labels, anchors, defined)
