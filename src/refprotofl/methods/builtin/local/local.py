"""Training without federation: the reference that every method with private parts must beat."""

from collections.abc import Sequence

import torch

from refprotofl.core import Parts, State
from refprotofl.methods import Client, Cohort, MessageSchema, MessageSchemas, Scope, Server, ValidatedMessage, declare
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class LocalServer(Server):
    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        return declare(scope, train=MessageSchema())

    @property
    def state_names(self) -> Sequence[str]:
        return ()

    def round(self, cohort: Cohort) -> None:
        if self.ships_public_set:
            self.join_newcomers(cohort)
        for _ in self.ask(cohort, "train", {}, lambda _, answer: answer):
            pass

    def evaluation(self) -> Message:
        return {}


class LocalClient(Client):
    def train(self, round: int, message: ValidatedMessage) -> Message:
        self.load()
        self.fit(round)
        self.keep_trained(round)
        return {}

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, newest=torch.empty(0))

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        model.write_private(own)
