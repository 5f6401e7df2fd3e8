"""Thin's clients: long local training, its change in few bits."""

from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.core import tensor_of
from refprotofl.methods import (
    Client,
    Lost,
    Penalty,
    ValidatedMessage,
    check_alignment,
    cross_entropy,
    erpa,
    proximal_term,
)
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.thin import Options, codes
from refprotofl.wire import Message


def is_defined(anchors: Tensor) -> Tensor:
    """Return which classes have an anchor, (C,)."""
    return anchors.abs().sum(dim=1) > 0


class ThinClient(Client):
    common: ClassVar[str] = "exact"
    options: Options

    def join(self, round: int, message: ValidatedMessage) -> Message:
        if "initial" in message:
            self.state["initial"] = message.tensor("initial")
        return super().join(round, message)

    def train(self, round: int, message: ValidatedMessage) -> Message:
        held = self.load_common(message)
        samples = self.training_samples()
        anchors = message.tensor("anchors").to(torch.float32) if "anchors" in message else None
        loss = cross_entropy(self.model, self.penalty(anchors))
        grad_hook = proximal_term(self, held, self.options.strength) if self.options.drift == "proximal" else None
        lr = self.options.cooled(self.experiment.train.lr, round)
        trained = self.fit(round, samples=samples, loss=loss, grad_hook=grad_hook, lr=lr)
        if anchors is not None:
            check_alignment(trained, samples, self.options.strength, is_defined(anchors), "thin.strength")
        change = self.keep_trained(round) - held
        guards.part_moved(held, held + change, "shared weights")
        return self.upload(round, change)

    def upload(self, round: int, change: Tensor) -> Message:
        """Return the change in the code; what the code leaves out is owed with the next one."""
        rest = self.state.get("rest")
        if isinstance(rest, Tensor):
            change = change + rest
        draw = codes.sign_draw(self.experiment, "change", round, self.context.client_id)
        coded, said = codes.encode_change(self.options, change, codes.up_length(self.context.scope, round), draw)
        if self.options.feedback:
            self.state["rest"] = change - said
        return codes.write(coded)

    def load_common(self, message: ValidatedMessage) -> Tensor:
        """Load the newest broadcast into the model; raise `Lost` if the store lacks the message's base."""
        version = message.whole("version")
        if "code" in message and "base" not in message:
            draw, length = codes.sign_draw(self.experiment, "whole", version), codes.whole_length(self.context.scope)
            held = self.initial() + codes.read_change(self.context.scope, message, length, draw)
        else:
            held = self.held(message.whole("base") if "base" in message else version)
            if "code" in message:
                held = codes.read_steps(self.context.scope, message, held)
        self.state["held"], self.state["held_version"] = held, version
        self.load(held)
        return held

    def held(self, version: int) -> Tensor:
        if "held" not in self.state and version == 0:
            return self.initial()
        if self.state.get("held_version") != version:
            raise Lost
        return tensor_of(self.state, "held")

    def initial(self) -> Tensor:
        """Return the initial weights: those that were sent, or those of the seed."""
        if self.experiment.first_weights == "sent":
            return tensor_of(self.state, "initial").clone()  # which the state holds once
        return self.context.initial_weights

    def penalty(self, anchors: Tensor | None) -> Penalty | None:
        if anchors is None:
            return None
        weight, defined = self.options.strength / anchors.shape[1], is_defined(anchors)
        anchors, defined = anchors.to(self.model.device), defined.to(self.model.device)
        return lambda embeddings, labels: weight * erpa.alignment_loss(embeddings, labels, anchors, defined)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
