"""RefProtoFL (Wu, Li et al. 2026): private backbones, a shared adapter, anchors from a public set. The server's side.

`RefProtoServer.round` is the paper's Algorithm 6; the clients' side is in refprotofl_client.py. With
`timing = "post-train"` the prototypes come with the answer to `train`, which saves one exchange a round: they serve
the next one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.experiment import Experiment
from refprotofl.methods import apud, erpa, guards, masked, sharing
from refprotofl.methods.base import Cohort, Refused, Server
from refprotofl.methods.budget import check_least_budget
from refprotofl.methods.link import nobody
from refprotofl.methods.prototypes import Prototypes, no_anchors, read_prototypes, write_anchors
from refprotofl.methods.training import Samples
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message, Sparse
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
        self.anchors, self.defined = no_anchors(experiment)
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
        share, sent = self.table.share, len(update.indices)
        if share is not None and sent != apud.number_to_send(share, len(self.adapter)):
            raise Refused(f"{sent} coordinates were sent, not the announced share of {share}")
        if self.table.error_feedback == "ef21":
            self.link.memory[client] += update.change
        return update

    def aggregated(self, updates: Iterator[tuple[int, masked.Update]]) -> Tensor:
        """The next adapter, Eq. (7), summed up as the updates come."""
        if self.compresses or self.table.error_feedback == "ef21":
            return sharing.step(self, self.adapter, ((client, update.change) for client, update in updates))
        uploads = ((update.indices, update.sent_values, float(self.samples[client])) for client, update in updates)
        return apud.aggregate_sent(self.adapter, uploads, self.table.normalise)

    def check_budget(self, cohort: Cohort, client: int) -> None:
        budget, sent = self.table.uplink_budget, cohort.sent(client)
        if budget is not None and sent > budget:
            raise Refused(f"{sent} bytes were sent in this round, more than uplink-budget = {budget}")
