"""FedDF (Lin et al. 2020): the server distils the clients' ensemble into their mean model.

The ensemble is the mean of the clients' logits on public images, whose labels are not used. With `upload = "logits"`
clients send these instead of their weights, and the server distils them into its last model.
"""

from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import InputError, stream
from refprotofl.experiment import Train
from refprotofl.methods import (
    Cohort,
    Dense,
    FedAvgClient,
    FedAvgServer,
    Fields,
    MessageSchema,
    MessageSchemas,
    Refused,
    Scope,
    ServerContext,
    ValidatedMessage,
    apply_update,
    classify,
    embed,
    minimise,
    set_aside,
)
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.feddf import Options
from refprotofl.methods.common import weights
from refprotofl.wire import Message


def divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the batch mean of T^2 * KL(softmax(teacher / T), softmax(logits / T)), both (B, C)."""
    student = functional.log_softmax(logits / temperature, dim=1)
    target = functional.log_softmax(teacher / temperature, dim=1)
    return functional.kl_div(student, target, reduction="batchmean", log_target=True) * temperature**2


def logit_fields(scope: Scope) -> Fields:
    """Return the field of a client's logits of the public images, (D, C)."""
    public = scope.experiment.public
    return {"logits": Dense(((public.per_class or 0) * len(public.classes or ()), scope.classes))}


class FedDFServer(FedAvgServer):
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        if context.public is None:
            raise InputError('method = "feddf" distils over public images: public.per-class must be above 0.')
        self.inputs = context.public.own_inputs.to(context.model.device)

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        up = logit_fields(scope) if scope.options.upload == "logits" else weights.change(scope)
        return {**weights.message_schemas(scope), "train": MessageSchema(weights.broadcast(scope), up)}

    @property
    def ships_public_set(self) -> bool:
        return super().ships_public_set or self.options.upload == "logits"

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        requests, read = weights.requests(self, cohort.round, self.shared), partial(self.read, cohort.round)
        student, logits = self.averaged(cohort, self.ask(cohort, "train", requests, read))
        if len(logits) > 1 or self.options.upload == "logits":  # else the ensemble is the student
            teacher = self.aggregator.merge_public(torch.stack(logits))  # (D, C): mean logits of the ensemble
            student = self.distilled(cohort.round, student, teacher)
        self.shared = self.downlink.advance(cohort.round, self.shared, student)

    def read(self, round: int, client: int, answer: ValidatedMessage) -> tuple[Tensor, Tensor]:
        """Return a client's change, (P,) or nothing (0,), and its logits of the public images (D, C)."""
        if self.options.upload == "logits":
            return torch.zeros(0), answer.tensor("logits")
        change = weights.read_change(self, round, self.shared, client, answer)
        self.model.write(self.parts, apply_update(self.shared, change))
        logits = classify(self.model, embed(self.model, self.inputs))
        if not logits.isfinite().all():
            raise Refused("its model predicts numbers that are not finite")
        return change, logits

    def averaged(
        self, cohort: Cohort, answers: Iterable[tuple[int, tuple[Tensor, Tensor]]]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the student to begin with (P,), which is the mean model if there is one, and all clients' logits."""
        logits: dict[int, Tensor] = {}
        changes = set_aside(answers, logits)
        if self.options.upload == "logits":
            self.downlink.mark_held([client for client, _ in changes], cohort.round)
            return self.shared, list(logits.values())
        move = weights.aggregated(self, cohort.round, len(self.shared), changes)
        return apply_update(self.shared, move), list(logits.values())

    def distilled(self, round: int, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the student (P,) after it was trained to predict as the teacher's logits (D, C) do."""
        self.model.write(self.parts, student)
        self.model.train()
        teacher, table = teacher.to(self.model.device), self.options

        def loss(rows: Tensor) -> Tensor:
            logits = self.model(self.model.prepare(self.inputs[rows]))
            return divergence(logits, teacher[rows], table.temperature)

        order = stream(self.experiment.seed, "feddf", round=round)
        settings = Train(
            optimizer="adam",
            lr=table.server_lr,
            local_epochs=table.server_epochs,
            batch_size=table.server_batch,
            weight_decay=0.0,
        )
        minimise(self.model.parameters_of(self.parts), loss, len(self.inputs), settings, order)
        trained = self.model.read(self.parts)
        guards.server_moved(student, trained, "the model")
        return trained


class FedDFClient(FedAvgClient):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        if self.options.upload == "weights":
            return super().train(round, message)
        images, _ = self.public_set()
        received = weights.load_shared(self, message)
        self.fit(round)
        guards.part_moved(received, self.keep_trained(round), "shared weights")
        return {"logits": classify(self.model, embed(self.model, images))}
