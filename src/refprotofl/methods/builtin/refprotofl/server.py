"""RefProtoFL (Wu, Li et al. 2026): private backbones, a shared adapter, anchors from a public set. The server side.

`RefProtoServer.round` is the paper's Algorithm 6; the client side is in client.py. With `timing = "post-train"` the
prototypes come with the answer to `train`, for the next round, which saves one exchange a round.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from refprotofl.core import State
from refprotofl.methods import (
    Cohort,
    Dense,
    Either,
    MessageSchema,
    MessageSchemas,
    Normalise,
    Refused,
    Scope,
    Server,
    ServerContext,
    SparseVector,
    StepDownlink,
    Upload,
    ValidatedMessage,
    Whole,
    aggregate_uploads,
    apply_update,
    declare,
)
from refprotofl.methods.apud import upload
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.refprotofl import Options, masked
from refprotofl.methods.builtin.refprotofl.masked import Masks, check_least_budget
from refprotofl.methods.builtin.refprotofl.uplink import create_uplink
from refprotofl.methods.common import prototypes, weights
from refprotofl.methods.common.prototypes import Prototypes, no_anchors, with_quorum, write_anchors
from refprotofl.wire import Message, Sparse


class SparseDownlink(StepDownlink):
    """Broadcasts by the parameters that differ from the last broadcast."""

    names: ClassVar[tuple[str, ...]] = ("holds", "previous")

    def __init__(self, clients: int, adapter: Tensor) -> None:
        super().__init__(clients)
        self.previous = adapter  # (d,), the broadcast before the last one

    def step_message(self, name: str, vector: Tensor) -> Message:
        changed = (vector.view(torch.int32) != self.previous.view(torch.int32)).nonzero().squeeze(1)
        return {name: Sparse(changed, vector[changed], len(vector))}

    def advance(self, round: int, reference: Tensor, target: Tensor) -> Tensor:
        self.previous = reference
        return target


Updates = Iterable[tuple[int, tuple[masked.Update, Prototypes | None]]]


class RefProtoServer(Server):
    sends_weights: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.public_classes: list[int] = [] if context.public is None else context.public.own_labels.unique().tolist()
        self.adapter = context.model.read(context.parts)  # (d,)
        self.anchors, self.defined = no_anchors(context.experiment)
        self.uplink = create_uplink(context.experiment, context.options)
        self.masks = Masks({part: sum(context.model.sizes((part,))) for part in context.parts})

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        table = scope.options
        check_least_budget(scope.experiment, table, scope.shared)  # a client's own table may allow less
        adapter, narrow = Dense((scope.shared,), kind="parameters"), masked.DTYPES[table.prototype_type]
        anchors = prototypes.anchor_fields(scope, narrow)
        step = {**weights.step_fields(scope), "base": Whole(optional=True)}
        whole_or_step = Either((adapter, SparseVector(scope.shared)), optional=True)
        update = create_uplink(scope.experiment, table).fields(scope.shared)
        along = prototypes.prototype_fields(scope, narrow, optional=True) if table.timing == "post-train" else {}
        down = {"adapter": whole_or_step, **step}
        return declare(
            scope,
            prototypes=MessageSchema(down, prototypes.prototype_fields(scope, narrow)),
            train=MessageSchema({**down, **anchors}, {**update, **along}),
            evaluate={"adapter": adapter, **anchors},
        )

    @property
    def state_names(self) -> Sequence[str]:
        return ("adapter", "samples", "anchors", "defined")

    def create_downlink(self) -> StepDownlink:
        sparse, clients = self.options.downlink == "sparse", self.experiment.clients
        return SparseDownlink(clients, self.model.read(self.parts)) if sparse else StepDownlink(clients)

    @property
    def normalise(self) -> Normalise:
        return self.options.normalise

    @property
    def ships_public_set(self) -> bool:
        return self.options.erpa or super().ships_public_set

    def round(self, cohort: Cohort) -> None:
        self.masks.begin(cohort.round)
        self.join_newcomers(cohort)
        if self.aligns(cohort.round) and self.options.timing == "pre-train":
            requests = self.downlink.requests(cohort.round, "adapter", self.adapter, {})
            uploads = dict(self.ask(cohort, "prototypes", requests, partial(self.read_prototypes, cohort)))  # Alg. 3
            self.set_anchors(cohort.round, uploads)  # Algorithm 4
            self.downlink.mark_held(list(uploads), cohort.round)
        anchors = self.write_anchors() if self.aligns(cohort.round) else {}
        requests = self.downlink.requests(cohort.round, "adapter", self.adapter, anchors)
        uploaded: dict[int, Prototypes] = {}
        updates = self.ask(cohort, "train", requests, partial(self.read_update, cohort))  # Algorithms 5 and 1
        self.adapter = self.aggregated(cohort.round, updates, uploaded)  # Algorithm 2
        if uploaded:
            self.set_anchors(cohort.round, uploaded)

    def observed(self) -> dict[str, Any]:
        masks = self.masks.summary()
        return {"masks": masks} if masks else {}

    @property
    def observations(self) -> State:
        return self.masks.kept

    def recall(self, observations: State) -> None:
        self.masks.restore(observations)

    def aligns(self, round: int) -> bool:
        return self.options.erpa and round > self.options.warmup_rounds

    def evaluation(self) -> Message:
        return {"adapter": self.adapter, **self.write_anchors()}

    def write_anchors(self) -> Message:
        return write_anchors(self.anchors, self.defined, masked.DTYPES[self.options.prototype_type])

    def read_prototypes(self, cohort: Cohort, client: int, answer: ValidatedMessage) -> Prototypes:
        self.check_budget(cohort, client)
        return prototypes.read_prototypes(answer, self.public_classes, *self.anchors.shape)

    def merge_public(self, round: int, prototypes: Tensor) -> Tensor:
        return self.privacy.mean_prototypes(prototypes, round, self.prototype_aggregator.merge_public)

    def set_anchors(self, round: int, uploads: Mapping[int, Prototypes]) -> None:
        """Set the class anchors of Eq. (16): external where there is public data, else global."""
        uploaded = list(uploads.values())
        counts = with_quorum(self.experiment, torch.stack([one.counts for one in uploaded]))  # (clients, C)
        local = torch.stack([one.local for one in uploaded])  # (clients, C, m)
        anchors, defined = self.prototype_aggregator.merge(local, counts)  # Eq. (15)
        external = self.public_classes if len(uploaded) >= self.experiment.min_senders else []
        if external:
            anchors[external] = self.merge_public(round, torch.stack([one.public for one in uploaded]))  # Eq. (14)
            defined[external] = True
        guards.anchors_cover(anchors, defined, external, counts)
        kept = self.defined & ~defined if self.options.retain else torch.zeros_like(defined)
        self.anchors, self.defined = torch.where(kept.unsqueeze(1), self.anchors, anchors), defined | kept

    def read_update(
        self, cohort: Cohort, client: int, answer: ValidatedMessage
    ) -> tuple[masked.Update, Prototypes | None]:
        """Return one client's update, and the prototypes that came with it."""
        self.check_budget(cohort, client)
        along = None
        if masked.sends_prototypes(self.options, cohort.round):
            along = prototypes.read_prototypes(answer, self.public_classes, *self.anchors.shape)
        return self.uplink.read(self, cohort.round, client, self.adapter, answer), along

    def aggregated(self, round: int, updates: Updates, uploaded: dict[int, Prototypes]) -> Tensor:
        """Return the next adapter, Eq. (7), summed up as updates come; prototypes that come along go to `uploaded`."""
        taken = self.taken(updates, uploaded)
        if self.uplink.whole:
            return weights.step(self, round, self.adapter, ((client, update.change) for client, update in taken))
        uploads = (self.upload(client, round, update) for client, update in taken)
        move = aggregate_uploads(self.aggregator, len(self.adapter), uploads)
        return self.downlink.advance(round, self.adapter, apply_update(self.adapter, move))

    def taken(self, updates: Updates, uploaded: dict[int, Prototypes]) -> Iterator[tuple[int, masked.Update]]:
        for client, (update, along) in updates:
            if along is not None:
                uploaded[client] = along
            if self.uplink.selects:
                self.masks.take(update.indices)
            yield client, update

    def upload(self, client: int, round: int, update: masked.Update) -> Upload:
        self.downlink.mark_held([client], round)
        return upload(self.adapter, update.indices, update.sent_values, float(self.samples[client]))

    def check_budget(self, cohort: Cohort, client: int) -> None:
        budget, sent = self.options.uplink_budget, cohort.sent(client)
        if budget is not None and sent > budget:
            raise Refused(f"{sent} bytes were sent in this round, more than uplink-budget = {budget}")
