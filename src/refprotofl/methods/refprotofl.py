"""RefProtoFL (Wu, Li et al. 2026): private backbones, a shared adapter, anchors from a public set.

`RefProtoServer.round` is the paper's Algorithm 6. With `timing = "post-train"` the prototypes come with the answer
to `train`, which saves one exchange a round: they serve the next one.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.errors import InputError
from refprotofl.experiment import Experiment, RefProtoFL
from refprotofl.methods import apud, erpa, guards, masked
from refprotofl.methods.base import LOST, Client, Cohort, Refused, Server
from refprotofl.methods.prototypes import (
    Prototypes,
    class_ids,
    read_anchors,
    read_prototypes,
    write_anchors,
    write_prototypes,
)
from refprotofl.methods.training import Penalty, Samples, embed, train
from refprotofl.models import SplitModel
from refprotofl.state import State
from refprotofl.wire import Message, Sparse, encode
from refprotofl.wire.ledger import Kind

NONE_HELD = -1


class RefProtoServer(Server):
    kinds: ClassVar[Mapping[str, Kind]] = {
        "adapter": "parameters",
        "change": "parameters",
        "anchors": "prototype_values",
        "public_prototypes": "prototype_values",
        "local_prototypes": "prototype_values",
    }

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None) -> None:
        super().__init__(experiment, model, public)
        self.table = experiment.refprotofl
        self.num_classes = experiment.known_input.num_classes
        self.public_classes: list[int] = [] if public is None else public.own_labels.unique().tolist()
        self.adapter = model.read_adapter()  # (d,)
        self.samples = torch.zeros(experiment.clients, dtype=torch.int64)  # 0: has not joined yet
        self.anchors = torch.zeros(self.num_classes, experiment.model.embedding)  # (C, m)
        self.defined = torch.zeros(self.num_classes, dtype=torch.bool)
        self.previous = self.adapter  # the last broadcast before this one
        self.holds = torch.full((experiment.clients,), NONE_HELD)  # the round whose broadcast a client has
        remembered = experiment.clients if self.table.error_feedback == "ef21" else 0
        self.memory = torch.zeros(remembered, len(self.adapter))
        check_least_budget(experiment, len(self.adapter))

    @property
    def state(self) -> State:
        names = ["adapter", "samples", "anchors", "defined"]
        names += ["previous", "holds"] if self.table.downlink == "sparse" else []
        names += ["memory"] if self.table.error_feedback == "ef21" else []
        return {name: getattr(self, name) for name in names}

    def restore(self, state: State) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def round(self, cohort: Cohort) -> None:
        self.join(cohort, [client for client in cohort.clients if self.samples[client] == 0])
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

    def aligns(self, round: int) -> bool:
        return self.table.erpa and round > self.table.warmup_rounds

    def evaluation(self) -> Message:
        return {"adapter": self.adapter, **write_anchors(self.anchors, self.defined)}

    def greeting(self) -> Message:
        if self.public is None or not self.table.erpa:
            return {}
        return {
            "images": self.public.images[self.public.rows],
            "labels": class_ids(self.public.own_labels, self.num_classes),
        }

    def welcome(self, client: int, answer: Message) -> None:
        samples = answer["samples"]
        if type(samples) is not int or samples < 1:
            raise Refused(f"samples = {samples!r} is not a positive whole number")
        self.samples[client] = samples
        self.holds[client] = NONE_HELD
        if self.table.error_feedback == "ef21":
            self.memory[client] = 0  # as the client's is

    def requests(self, round: int, extra: Message) -> Callable[[int], Message]:
        """What each client is sent: `extra`, and the adapter unless the client got it in this round already."""
        dense: Message = {**extra, "adapter": self.adapter}
        sparse = dense
        if self.table.downlink == "sparse":
            changed = (self.adapter.view(torch.int32) != self.previous.view(torch.int32)).nonzero().squeeze(1)
            values = Sparse(changed, self.adapter[changed], len(self.adapter))
            sparse = {**extra, "adapter": values, "base": round - 1}

        def request(client: int) -> Message:
            held = int(self.holds[client])
            return extra if held == round else sparse if held == round - 1 else dense

        return request

    def read_prototypes(self, cohort: Cohort, client: int, answer: Message) -> Prototypes:
        self.check_budget(cohort, client)
        prototypes = read_prototypes(answer, self.public_classes, *self.anchors.shape)
        self.holds[client] = cohort.round
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
        update = masked.unpack(self.table, answer, self.adapter)
        share, sent = self.table.share, int(update.mask.sum())
        if share is not None and sent != apud.number_to_send(share, len(self.adapter)):
            raise Refused(f"{sent} coordinates were sent, not the announced share of {share}")
        if masked.sends_prototypes(self.table, cohort.round):
            uploaded[client] = read_prototypes(answer, self.public_classes, *self.anchors.shape)
        self.holds[client] = cohort.round
        return update

    def aggregated(self, updates: Iterator[tuple[int, masked.Update]]) -> Tensor:
        """The next adapter, Eq. (7), summed up as the updates come."""
        if self.table.error_feedback == "ef21":
            for client, update in updates:
                self.memory[client] += update.change
            return masked.step_by_memory(self.adapter, self.memory, self.samples)
        uploads = ((update.values, update.mask, float(self.samples[client])) for client, update in updates)
        return apud.aggregate(self.adapter, uploads, self.table.normalise)

    def check_budget(self, cohort: Cohort, client: int) -> None:
        budget, sent = self.table.uplink_budget, cohort.sent(client)
        if budget is not None and sent > budget:
            raise Refused(f"{sent} bytes were sent in this round, more than uplink-budget = {budget}")


class RefProtoClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "prototypes", "train", "evaluate")

    def join(self, round: int, message: Message) -> Message:
        if "images" in message:
            self.state["public"] = self.seat.shelf.put(message)
        if self.table.error_feedback == "ef21":
            self.state.pop("memory", None)
        return {"samples": len(self.samples)}

    def prototypes(self, round: int, message: Message) -> Message:
        adapter, public = self.receive(round, message), self.public()
        if adapter is None or public is None:
            return self.spend(round, {LOST: True})
        self.load_backbone()
        self.model.write_adapter(adapter)
        return self.spend(round, write_prototypes(self.compute_prototypes(public)))

    def train(self, round: int, message: Message) -> Message:
        adapter = self.receive(round, message)
        sends_prototypes = masked.sends_prototypes(self.table, round)
        public = self.public() if sends_prototypes else None
        if adapter is None or (sends_prototypes and public is None):
            return self.spend(round, {LOST: True})
        local = self.train_locally(round, adapter, *self.read_anchors(message))  # Algorithm 5
        extra = write_prototypes(self.compute_prototypes(public)) if public is not None else {}
        answer, memory = masked.compose(
            self.table,
            self.model.adapter_sizes,
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
        before = self.state["trained"] if self.state.get("trained_round") == round else None
        return self.score(message["adapter"], before, *self.read_anchors(message))  # type: ignore[arg-type]

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

    @property
    def num_classes(self) -> int:
        return self.experiment.known_input.num_classes

    def receive(self, round: int, message: Message) -> Tensor | None:
        """The round's adapter, from the message or the store; None if the store lacks what the message builds on."""
        sent, held = message.get("adapter"), self.state.get("adapter")
        if isinstance(sent, Sparse):
            if not isinstance(held, Tensor) or self.state["adapter_round"] != message["base"]:
                return None
            sent = held.index_copy(0, sent.indices, sent.values)
        if isinstance(sent, Tensor):
            self.state["adapter"], self.state["adapter_round"] = sent, round
            return sent
        return held if isinstance(held, Tensor) and self.state["adapter_round"] == round else None

    def public(self) -> tuple[Tensor, Tensor] | None:
        """Public images and labels; None if the experiment has them but the store has not."""
        if not self.experiment.public.classes:
            images = torch.zeros(0, *self.experiment.known_input.shape, dtype=torch.uint8)
            return images, torch.zeros(0, dtype=torch.int64)
        kept = self.seat.shelf.get(str(self.state["public"])) if "public" in self.state else None
        return None if kept is None else (kept["images"], kept["labels"].long())  # type: ignore[return-value, union-attr]

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
        self.load_backbone()
        self.model.write_adapter(adapter)
        penalty = self.penalty(anchors, defined)
        trained = train(self.model, self.samples, self.experiment.train, self.stream("batches", round), penalty)
        guards.alignment_happened(trained.penalty, self.table.align, defined[self.samples.own_labels])
        self.keep_backbone()
        local = self.model.read_adapter()
        self.state["trained"], self.state["trained_round"] = local, round
        return local

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
