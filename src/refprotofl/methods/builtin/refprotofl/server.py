"""RefProtoFL (Wu, Li et al. 2026): private backbones, a shared adapter, anchors from a public set. The server side.

`RefProtoServer.round` is the paper's Algorithm 6; the client side is in client.py. With `timing = "post-train"` the
prototypes come with the answer to `train`, for the next round, which saves one exchange a round.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from refprotofl.core.state import State
from refprotofl.methods.aggregators.aggregation import Normalise, Upload, aggregate_uploads, apply_update
from refprotofl.methods.apud import upload
from refprotofl.methods.base import guards
from refprotofl.methods.base.broadcast import nobody
from refprotofl.methods.base.cohort import Cohort
from refprotofl.methods.base.schema import (
    Dense,
    Either,
    MessageSchema,
    MessageSchemas,
    Refused,
    Scope,
    SparseVector,
    ValidatedMessage,
    Whole,
    declare,
)
from refprotofl.methods.base.server import Server, ServerContext
from refprotofl.methods.builtin.refprotofl import Options, masked
from refprotofl.methods.builtin.refprotofl.masked import Masks, check_least_budget
from refprotofl.methods.common import prototypes, weights
from refprotofl.methods.common.prototypes import Prototypes, merge, merge_public, no_anchors, with_quorum, write_anchors
from refprotofl.wire import Message, Sparse

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
        self.previous = self.adapter  # the last broadcast before this one
        self.remembered.holds = nobody(context.experiment.clients)
        self.masks = Masks({part: sum(context.model.sizes((part,))) for part in context.parts})

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        table, compressed = scope.options, scope.experiment.compress.name != "none"
        check_least_budget(scope.experiment, table, scope.shared)  # a client's own table may allow less
        adapter, narrow = Dense((scope.shared,), kind="parameters"), masked.DTYPES[table.prototype_type]
        anchors = prototypes.anchor_fields(scope, narrow)
        step = {**weights.step_fields(scope), "base": Whole(optional=True)}
        whole_or_step = Either((adapter, SparseVector(scope.shared)), optional=True)
        update = weights.change(scope) if compressed else masked.fields(table, scope.shared)
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
        names = ["adapter", "samples", "anchors", "defined"]
        return names + (["previous"] if self.options.downlink == "sparse" else [])

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
            requests = self.requests(cohort.round, {})
            uploads = dict(self.ask(cohort, "prototypes", requests, partial(self.read_prototypes, cohort)))  # Alg. 3
            self.set_anchors(cohort.round, uploads)  # Algorithm 4
            self.remembered.holds[list(uploads)] = cohort.round
        anchors = self.write_anchors() if self.aligns(cohort.round) else {}
        requests, uploaded = self.requests(cohort.round, anchors), dict[int, Prototypes]()
        updates = self.ask(cohort, "train", requests, partial(self.read_update, cohort))  # Algorithms 5 and 1
        self.previous, self.adapter = self.adapter, self.aggregated(cohort.round, updates, uploaded)  # Algorithm 2
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

    @property
    def compresses(self) -> bool:
        """Whether [compress] replaces APUD."""
        return self.experiment.compress.name != "none"

    def aligns(self, round: int) -> bool:
        return self.options.erpa and round > self.options.warmup_rounds

    def evaluation(self) -> Message:
        return {"adapter": self.adapter, **self.write_anchors()}

    def write_anchors(self) -> Message:
        return write_anchors(self.anchors, self.defined, masked.DTYPES[self.options.prototype_type])

    def requests(self, round: int, extra: Message) -> Callable[[int], Message]:
        """Return each client's request: `extra`, and the adapter unless the client received it in this round."""
        update = weights.ternary_step(self)
        if self.options.downlink == "sparse":
            changed = (self.adapter.view(torch.int32) != self.previous.view(torch.int32)).nonzero().squeeze(1)
            update = {"adapter": Sparse(changed, self.adapter[changed], len(self.adapter))}
        return self.remembered.requests(round, extra, {"adapter": self.adapter}, update)

    def read_prototypes(self, cohort: Cohort, client: int, answer: ValidatedMessage) -> Prototypes:
        self.check_budget(cohort, client)
        return prototypes.read_prototypes(answer, self.public_classes, *self.anchors.shape)

    def merge_public(self, round: int, prototypes: Tensor) -> Tensor:
        return self.privacy.mean_prototypes(prototypes, round, partial(merge_public, self.experiment))

    def set_anchors(self, round: int, uploads: Mapping[int, Prototypes]) -> None:
        """Set the class anchors of Eq. (16): external where there is public data, else global."""
        uploaded = list(uploads.values())
        counts = with_quorum(self.experiment, torch.stack([one.counts for one in uploaded]))  # (clients, C)
        anchors, defined = merge(self.experiment, torch.stack([one.local for one in uploaded]), counts)  # Eq. (15)
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
        if self.compresses:
            change = weights.read_change(self, cohort.round, self.adapter, client, answer)
            return masked.whole(self.adapter, change), along
        update, sizes = masked.unpack(self.options, answer, self.adapter), self.model.sizes(self.parts)
        draw = self.privacy.mask_stream(cohort.round) if self.options.apud else None
        if draw is not None:
            masked.check_selection(self.options, sizes, draw, update)
        return update, along

    def aggregated(self, round: int, updates: Updates, uploaded: dict[int, Prototypes]) -> Tensor:
        """Return the next adapter, Eq. (7), summed up as updates come; prototypes that come along go to `uploaded`."""
        taken = self.taken(updates, uploaded)
        if self.compresses or self.options.error_feedback == "ef21":
            return weights.step(self, round, self.adapter, ((client, update.change) for client, update in taken))
        uploads = (self.upload(client, round, update) for client, update in taken)
        return apply_update(self.adapter, aggregate_uploads(self.aggregator, len(self.adapter), uploads))

    def taken(self, updates: Updates, uploaded: dict[int, Prototypes]) -> Iterator[tuple[int, masked.Update]]:
        for client, (update, along) in updates:
            if along is not None:
                uploaded[client] = along
            if not self.compresses:
                self.masks.take(update.indices)
            yield client, update

    def upload(self, client: int, round: int, update: masked.Update) -> Upload:
        self.remembered.holds[client] = round
        return upload(self.adapter, update.indices, update.sent_values, float(self.samples[client]))

    def check_budget(self, cohort: Cohort, client: int) -> None:
        budget, sent = self.options.uplink_budget, cohort.sent(client)
        if budget is not None and sent > budget:
            raise Refused(f"{sent} bytes were sent in this round, more than uplink-budget = {budget}")
