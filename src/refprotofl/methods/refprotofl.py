"""RefProtoFL (Wu, Li et al. 2026): private backbones, a shared adapter, anchors from a public set.

`RefProtoServer.round` is the paper's Algorithm 6. With `timing = "post-train"` the prototypes come with the answer
to `train`, which saves one exchange a round: they serve the next one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.methods import apud, erpa, guards, masked, sharing
from refprotofl.methods.base import LOST, Client, Cohort, Refused, Server
from refprotofl.methods.link import held, hold, nobody
from refprotofl.methods.prototypes import (
    Prototypes,
    read_anchors,
    read_prototypes,
    write_anchors,
    write_prototypes,
)
from refprotofl.methods.training import Penalty, Samples, cross_entropy, embed, train
from refprotofl.models import Parts, SplitModel
from refprotofl.state import State
from refprotofl.tables import RefProtoFL
from refprotofl.wire import Message, Sparse, encode
from refprotofl.wire.ledger import Kind


class RefProtoServer(Server):
    sends_weights: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, Kind]] = {
        "adapter": "parameters",
        "change": "parameters",
        "anchors": "prototype_values",
        "public_prototypes": "prototype_values",
        "local_prototypes": "prototype_values",
    }

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        self.table = experiment.refprotofl
        self.public_classes: list[int] = [] if public is None else public.own_labels.unique().tolist()
        self.adapter = model.read(parts)  # (d,)
        self.anchors = torch.zeros(self.num_classes, experiment.model.embedding)  # (C, m)
        self.defined = torch.zeros(self.num_classes, dtype=torch.bool)
        self.previous = self.adapter  # the last broadcast before this one
        self.link.holds = nobody(experiment.clients)
        check_least_budget(experiment, len(self.adapter))

    @property
    def state_names(self) -> Sequence[str]:
        names = ["adapter", "samples", "anchors", "defined"]
        return names + (["previous"] if self.table.downlink == "sparse" else [])

    @property
    def ships_public_set(self) -> bool:
        return self.table.erpa or super().ships_public_set

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        if self.aligns(cohort.round) and self.table.timing == "pre-train":
            requests = self.requests(cohort.round, {})
            uploads = self.ask(cohort, "prototypes", requests, partial(self.read_prototypes, cohort))  # Algorithm 3
            self.set_anchors(dict(uploads))  # Algorithm 4
        anchors = write_anchors(self.anchors, self.defined) if self.aligns(cohort.round) else {}
        requests, uploaded = self.requests(cohort.round, anchors), dict[int, Prototypes]()
        updates = self.ask(cohort, "train", requests, partial(self.read_update, cohort, uploaded))  # Algorithms 5 and 1
        self.previous, self.adapter = self.adapter, self.aggregated(updates)  # Algorithm 2
        if uploaded:
            self.set_anchors(uploaded)

    @property
    def compresses(self) -> bool:
        """Whether [compress] stands in for APUD."""
        return self.experiment.compress.name != "none"

    def aligns(self, round: int) -> bool:
        return self.table.erpa and round > self.table.warmup_rounds

    def evaluation(self) -> Message:
        return {"adapter": self.adapter, **write_anchors(self.anchors, self.defined)}

    def requests(self, round: int, extra: Message) -> Callable[[int], Message]:
        """What each client is sent: `extra`, and the adapter unless the client got it in this round already."""
        update = sharing.ternary_step(self)
        if self.table.downlink == "sparse":
            changed = (self.adapter.view(torch.int32) != self.previous.view(torch.int32)).nonzero().squeeze(1)
            update = {"adapter": Sparse(changed, self.adapter[changed], len(self.adapter))}
        return self.link.requests(round, extra, {"adapter": self.adapter}, update)

    def read_prototypes(self, cohort: Cohort, client: int, answer: Message) -> Prototypes:
        self.check_budget(cohort, client)
        prototypes = read_prototypes(answer, self.public_classes, *self.anchors.shape)
        self.link.holds[client] = cohort.round
        return prototypes

    def set_anchors(self, uploads: Mapping[int, Prototypes]) -> None:
        """The class anchors of Eq. (16): external where there is public data, else global."""
        prototypes = list(uploads.values())
        counts = torch.stack([one.counts for one in prototypes])  # (clients, C)
        anchors, defined = erpa.global_prototypes(torch.stack([one.local for one in prototypes]), counts)  # Eq. (15)
        anchors[self.public_classes] = erpa.external_prototypes(torch.stack([one.public for one in prototypes]))  # (14)
        defined[self.public_classes] = True
        guards.anchors_cover(anchors, defined, self.public_classes, counts)
        self.anchors, self.defined = anchors, defined

    def read_update(
        self, cohort: Cohort, uploaded: dict[int, Prototypes], client: int, answer: Message
    ) -> masked.Update:
        """One client's update; prototypes that came along are put into `uploaded`."""
        self.check_budget(cohort, client)
        prototypes = None
        if masked.sends_prototypes(self.table, cohort.round):
            prototypes = read_prototypes(answer, self.public_classes, *self.anchors.shape)
        if self.compresses:
            update = masked.whole(self.adapter, sharing.read_change(self, cohort.round, self.adapter, client, answer))
        else:
            update = self.read_masked(client, answer)
        if prototypes is not None:
            uploaded[client] = prototypes
        self.link.holds[client] = cohort.round
        return update

    def read_masked(self, client: int, answer: Message) -> masked.Update:
        update = masked.unpack(self.table, answer, self.adapter)
        share, sent = self.table.share, int(update.mask.sum())
        if share is not None and sent != apud.number_to_send(share, len(self.adapter)):
            raise Refused(f"{sent} coordinates were sent, not the announced share of {share}")
        if self.table.error_feedback == "ef21":
            self.link.memory[client] += update.change
        return update

    def aggregated(self, updates: Iterator[tuple[int, masked.Update]]) -> Tensor:
        """The next adapter, Eq. (7), summed up as the updates come."""
        if self.compresses or self.table.error_feedback == "ef21":
            return sharing.step(self, self.adapter, ((client, update.change) for client, update in updates))
        uploads = ((update.values, update.mask, float(self.samples[client])) for client, update in updates)
        return apud.aggregate(self.adapter, uploads, self.table.normalise)

    def check_budget(self, cohort: Cohort, client: int) -> None:
        budget, sent = self.table.uplink_budget, cohort.sent(client)
        if budget is not None and sent > budget:
            raise Refused(f"{sent} bytes were sent in this round, more than uplink-budget = {budget}")


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
        own = embed(self.model, self.samples.images[rows])
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
        return lambda embeddings, labels: weight * erpa.alignment_loss(embeddings, labels, anchors, defined)


def check_least_budget(experiment: Experiment, adapter_size: int) -> None:
    """Refuses a budget that could not always carry prototypes, one coordinate, and the word that a store is lost."""
    table, num_classes = experiment.refprotofl, experiment.known_input.num_classes
    if table.uplink_budget is None:
        return
    zeros = torch.zeros(adapter_size)
    ends = [zeros.bool().index_fill(0, torch.tensor([end]), True) for end in (0, adapter_size - 1)]
    least = max(len(encode(masked.pack(table, zeros, zeros, end)[0])) for end in ends) + len(encode({LOST: True}))
    if table.erpa:
        covered = list(experiment.public.classes or ())
        counts = torch.ones(num_classes, dtype=torch.int64).index_fill(0, torch.tensor(covered).long(), 0)
        means = torch.zeros(num_classes, experiment.model.embedding)
        least += len(encode(write_prototypes(Prototypes(means[covered], means, counts))))
    if table.uplink_budget < least:
        raise InputError(
            f"refprotofl.uplink-budget = {table.uplink_budget} bytes is too small: "
            f"prototypes and one parameter take {least} bytes, which is the least that works here."
        )
