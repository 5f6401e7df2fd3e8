"""Thin's server: averages the whole model, trains it on the public set, and sends how it moved in few bits.

`exact` is the server's own vector, `shared` what a client holds that got every step so far: the initial weights, which
follow from the seed, moved by all steps as they were coded. What the codes left out is owed with the next step.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.basics.streams import stream
from refprotofl.methods import erpa
from refprotofl.methods.builtin.thin import Options, codes
from refprotofl.methods.common import weights
from refprotofl.methods.common.rotation import number_of_blocks
from refprotofl.methods.core import guards
from refprotofl.methods.core.aggregation import Upload, fold, moved
from refprotofl.methods.core.cohort import Cohort
from refprotofl.methods.core.fields import Exchange, Exchanges, Received
from refprotofl.methods.core.messages import Scope, declare
from refprotofl.methods.core.server import Desk, Server
from refprotofl.methods.core.training import embed, train
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class ThinServer(Server):
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.initial = desk.model.read(desk.parts)  # (P,), the same at every client
        self.exact = self.shared = self.initial
        self.version = 0  # of `shared`: the number of steps so far
        self.holds = torch.zeros(desk.experiment.clients, dtype=torch.int64)  # the version that each client has
        # The last steps, for clients that missed some: as many as take no longer than the whole model does.
        self.length = codes.down_length(desk.scope)
        self.whole_length = codes.whole_length(desk.scope)
        self.step_codes = torch.zeros(0, self.length, dtype=torch.uint8)
        self.step_scales = torch.zeros(0, number_of_blocks(desk.scope.shared), dtype=torch.bfloat16)

    @classmethod
    def exchanges(cls, scope: Scope) -> Exchanges:
        steps = codes.step_fields(scope)
        return declare(
            scope,
            evaluate={"shared": weights.shared_vector(scope)},
            train=Exchange(steps, codes.change_fields(scope)),
            finish=Exchange(steps),
        )

    @property
    def state_names(self) -> Sequence[str]:
        return ("exact", "shared", "version", "holds", "step_codes", "step_scales", "samples")

    def welcome(self, client: int, answer: Received) -> None:
        """Who joins, or lost its store, has the initial weights alone."""
        super().welcome(client, answer)
        self.holds[client] = 0

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        if cohort.round == 1:
            self.exact = self.trained(self.exact, "pretrain", 0, self.options.pretrain)
        self.broadcast()
        changes = self.ask(cohort, "train", self.requests(), lambda client, answer: self.read(cohort, client, answer))
        move = fold(self.rule, len(self.exact), self.uploads(changes))
        self.exact = moved(self.exact if self.options.feedback else self.shared, move)
        self.exact = self.trained(self.exact, "server-epochs", cohort.round, self.options.server_epochs)
        if cohort.round == self.experiment.rounds and self.options.tune_epochs:
            self.finish(cohort)

    def read(self, cohort: Cohort, client: int, answer: Received) -> Tensor:
        draw = codes.sign_draw(self.experiment, "change", cohort.round, client)
        return codes.read_change(self.desk.scope, answer, draw)

    def uploads(self, changes: "Iterator[tuple[int, Tensor]]") -> Iterator[Upload]:
        for client, change in changes:
            self.holds[client] = self.version
            yield Upload(change.to(torch.float64), float(self.samples[client]))

    def trained(self, vector: Tensor, purpose: str, round: int, epochs: int) -> Tensor:
        """The vector after so many passes over the public set."""
        if not epochs or self.public is None:
            return vector
        self.model.write(self.parts, vector)
        table = self.options.cooled(self.experiment.train, max(round, 1)).model_copy(update={"local_epochs": epochs})
        train(self.model, self.public, table, stream(self.experiment.seed, f"thin/{purpose}", round=round))
        after = self.model.read(self.parts)
        guards.server_moved(vector, after, "the model")
        return after

    def broadcast(self) -> None:
        """The next step, if there is anything to tell."""
        if self.exact.equal(self.shared):
            return
        draw = codes.sign_draw(self.experiment, "step", self.version + 1)
        coded, said = codes.encode_change(self.options, self.exact - self.shared, self.length, draw)
        self.version += 1
        self.shared = self.shared + said
        most = self.whole_length // self.length
        self.step_codes = torch.cat([self.step_codes, coded.code.unsqueeze(0)])[-most:]
        self.step_scales = torch.cat([self.step_scales, coded.scales.unsqueeze(0)])[-most:]

    def requests(self) -> Callable[[int], Message]:
        """For each client the shortest of: nothing, the steps that it missed, the whole model."""
        extra: Message = {"version": self.version, **self.anchors()}
        by_base: dict[int, Message] = {self.version: extra}
        whole: list[Message] = []

        def request(client: int) -> Message:
            base = int(self.holds[client])
            missed = self.version - base
            if missed <= len(self.step_codes):
                if base not in by_base:
                    code, scales = self.step_codes[-missed:].flatten(), self.step_scales[-missed:].flatten()
                    by_base[base] = {**extra, "base": base, "code": code, "scales": scales}
                return by_base[base]
            if not whole:
                whole.append({**extra, **self.whole_model()})
            return whole[0]

        return request

    def whole_model(self) -> Message:
        draw = codes.sign_draw(self.experiment, "whole", self.version)
        return codes.write(codes.encode_change(self.options, self.shared - self.initial, self.whole_length, draw)[0])

    def anchors(self) -> Message:
        """The public set's class means under the broadcast; a class that it lacks has zeros."""
        if self.options.drift != "anchors" or self.public is None:
            return {}
        self.model.write(self.parts, self.shared)
        embeddings = embed(self.model, self.public.own_images)
        means, _ = erpa.class_prototypes(embeddings, self.public.own_labels, self.num_classes)
        return {"anchors": means.to(torch.bfloat16)}

    def finish(self, cohort: Cohort) -> None:
        """After the last round the participants get what came of it, and tune it for themselves."""
        self.broadcast()
        for client, _ in self.ask(cohort, "finish", self.requests(), lambda client, answer: None):
            self.holds[client] = self.version

    def evaluation(self) -> Message:
        return {"shared": self.exact}

    def global_model(self) -> SplitModel | None:
        return weights.global_model(self, self.exact)
