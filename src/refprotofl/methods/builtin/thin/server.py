"""Thin's server: averages the whole model, trains it on the public set, and sends its change in few bits.

`exact` is the server's own vector; sending.py tracks the vectors that clients hold.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.core import State, stream
from refprotofl.evaluation import model_metrics, plan_of, scored_part
from refprotofl.methods import (
    Cohort,
    MessageSchema,
    MessageSchemas,
    Scope,
    Server,
    ServerContext,
    Upload,
    ValidatedMessage,
    aggregate_uploads,
    apply_update,
    augmenter,
    declare,
    embed,
    erpa,
    train,
)
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.thin import Options, codes
from refprotofl.methods.builtin.thin.distillation import Ensemble, mixtures
from refprotofl.methods.builtin.thin.sending import choose_sending, state_of
from refprotofl.methods.common import weights
from refprotofl.methods.declaration import FINETUNE
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class ThinServer(Server):
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.exact = context.model.read(context.parts)  # (P,), at first the same at every client
        self.sending = choose_sending(context.scope, self.exact)

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        steps = codes.step_fields(scope)
        return declare(
            scope,
            evaluate={"shared": weights.shared_vector(scope)},
            greeting={"initial": weights.shared_vector(scope)} if scope.experiment.first_weights == "sent" else None,
            train=MessageSchema({**steps, **codes.anchor_fields(scope)}, codes.change_fields(scope)),
            finetune=MessageSchema(steps),
        )

    @property
    def state_names(self) -> Sequence[str]:
        return ("exact", "samples")

    @property
    def state(self) -> State:
        return super().state | state_of(self.sending)

    def restore(self, state: State) -> None:
        super().restore(state)
        for name in self.sending.names:
            setattr(self.sending, name, state[name])

    def greeting(self) -> Message:
        first = {"initial": self.sending.initial} if self.experiment.first_weights == "sent" else {}
        return {**super().greeting(), **first}

    def welcome(self, client: int, answer: ValidatedMessage) -> None:
        """Reset a client that joins, or lost its store, to the initial weights."""
        super().welcome(client, answer)
        self.sending.forget(client)

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        if cohort.round == 1:
            self.exact = self.trained(self.exact, "pretrain", 0, self.options.pretrain)
        self.sending.advance(self.exact, anchored=self.options.drift == "anchors")
        requests = self.sending.requests(self.anchors())
        changes = self.ask(cohort, "train", requests, lambda client, answer: self.read(cohort, client, answer))
        ensemble = self.ensemble(cohort.round)
        move = aggregate_uploads(self.aggregator, len(self.exact), self.uploads(changes, ensemble))
        self.exact = apply_update(self.exact if self.options.feedback else self.sending.shared, move)
        self.exact = self.trained(self.exact, "server-epochs", cohort.round, self.options.server_epochs, ensemble)

    def read(self, cohort: Cohort, client: int, answer: ValidatedMessage) -> Tensor:
        """Decode a change: without bias where no later code repays the rest; a node's own budget may be smaller."""
        draw = codes.sign_draw(self.experiment, "change", cohort.round, client)
        length, last = codes.up_length(self.context.scope, cohort.round), cohort.round == self.experiment.rounds
        unbiased, shorter = last or not self.options.feedback, self.options.uplink_budget is not None
        return codes.read_change(self.context.scope, answer, length, draw, unbiased, shorter)

    def uploads(self, changes: "Iterator[tuple[int, Tensor]]", ensemble: Ensemble | None) -> Iterator[Upload]:
        for client, change in changes:
            weight = float(self.samples[client])
            self.sending.took(client)
            if ensemble is not None:
                ensemble.add(self.sending.held_by(client) + change, weight)
            yield Upload(change.to(torch.float64), weight)

    def ensemble(self, round: int) -> Ensemble | None:
        """Return an ensemble with one mixture per public image and pass; None without distillation."""
        if not self.options.distil or self.public is None or not len(self.public):
            return None
        order = stream(self.experiment.seed, "thin/mixtures", round=round)
        pictures = mixtures(self.public.own_inputs, self.options.server_epochs * len(self.public), order)
        mix = None
        if self.options.balance:
            mix = self.public.own_labels.bincount(minlength=self.num_classes).to(torch.float64) / len(self.public)
        return Ensemble(self.model, self.parts, self.num_classes, pictures, mix)

    def trained(
        self, vector: Tensor, purpose: str, round: int, epochs: int, ensemble: Ensemble | None = None
    ) -> Tensor:
        """Return the vector after this many passes over the public set."""
        if not epochs or self.public is None:
            return vector
        self.model.write(self.parts, vector)
        first = max(round, 1)
        lr = self.options.cooled(self.experiment.train.lr, first)
        settings = self.experiment.train_in_round(first, epochs=epochs, lr=lr)
        order, loss = stream(self.experiment.seed, f"thin/{purpose}", round=round), None
        if ensemble is not None:
            loss = ensemble.loss(self.options.distil)
        augment = augmenter(self.experiment, lambda name: stream(self.experiment.seed, f"thin/{name}", round=round))
        train(self.model, self.public, settings, order, loss=loss, augment=augment)
        after = self.model.read(self.parts)
        guards.server_moved(vector, after, "the model")
        return after

    def anchors(self) -> Message:
        """Return the public set's class means under the broadcast; a class that it lacks has zeros."""
        if self.options.drift != "anchors" or self.public is None:
            return {}
        self.model.write(self.parts, self.sending.shared)
        embeddings = embed(self.model, self.public.own_inputs)
        means, _ = erpa.class_prototypes(embeddings, self.public.own_labels, self.num_classes)
        return {"anchors": means.to(torch.bfloat16)}

    def close(self, cohort: Cohort) -> None:
        """Send all clients the result of the last round, where they fine-tune it."""
        if not self.experiment.finetune.passes:
            return
        self.sending.advance(self.exact, anchored=False)
        for client, _ in self.ask(cohort, FINETUNE, self.sending.requests({}), lambda client, answer: None):
            self.sending.took(client)

    def evaluation(self) -> Message:
        return {"shared": self.exact}

    def facts(self, round: int) -> dict[str, float | int | str]:
        """Return the accuracy of the vector that clients hold, on the samples of `global`, that of the uncoded one."""
        plan, test = plan_of(self.experiment, round), self.context.test
        model = self.whole_model(self.sending.shared) if plan.scores("global") else None
        if model is None or test is None or not len(test[1]):
            return {}
        inputs, labels = scored_part(plan, *test, self.num_classes)
        return {"accuracy_as_held": model_metrics(model, inputs, labels, self.num_classes)["accuracy"]}

    def global_model(self) -> SplitModel | None:
        return self.whole_model(self.exact)
