"""FedGH (Yi et al. 2023): private feature extractors, one header that the server trains from class prototypes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from refprotofl.core import stream
from refprotofl.methods import (
    Client,
    Cohort,
    MessageSchema,
    MessageSchemas,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    declare,
    minimise,
    plain_sgd,
)
from refprotofl.methods.base import guards
from refprotofl.methods.builtin.fedgh import Options
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common import prototypes, weights
from refprotofl.wire import Message

CLIP = 50.0  # the authors' bound on the gradient's length


class FedGHServer(Server):
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.width = context.experiment.model.embedding
        self.shared = context.model.read(
            context.parts
        )  # the header, (m * C + C,); a copy, which other training does not move

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        header = {"shared": weights.shared_vector(scope)}
        means = prototypes.mean_fields(scope, counted=scope.options.weighting == "count")
        return declare(scope, evaluate=header, train=MessageSchema(header, means))

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples")

    def round(self, cohort: Cohort) -> None:
        if self.ships_public_set:
            self.join_newcomers(cohort)
        requested = weights.requests(self, cohort.round, self.shared)
        uploads = [held for _, held in self.ask(cohort, "train", requested, self.read)]
        if self.options.server != "frozen":
            before, self.shared = self.shared, self.trained_header(cohort.round, uploads)
            guards.server_moved(before, self.shared, "the header")

    def read(self, client: int, answer: ValidatedMessage) -> prototypes.ClassMeans:
        counted = self.options.weighting == "count"
        return prototypes.read_means(answer, self.num_classes, self.width, counted=counted)

    def trained_header(self, round: int, uploads: Sequence[prototypes.ClassMeans]) -> Tensor:
        """Return the header after cross-entropy over all (prototype, class) pairs of the round."""
        embeddings, labels, counts = learning.pairs(uploads)
        shares = counts / counts.to(embeddings.dtype).mean()  # (n,), 1 on average, all 1 without counts
        rows = self.num_classes * self.width
        weight = nn.Parameter(self.shared[:rows].view(self.num_classes, self.width).clone())
        bias = nn.Parameter(self.shared[rows:].clone())

        def loss(batch: Tensor) -> Tensor:
            logits = functional.linear(embeddings[batch], weight, bias)
            return (shares[batch] * functional.cross_entropy(logits, labels[batch], reduction="none")).mean()

        table = self.options
        if table.server == "official":  # one prototype at a time, in client order, as the clients train
            clients = self.experiment.train
            one_by_one = plain_sgd(table.server_lr, 1, 1, momentum=clients.momentum, weight_decay=clients.weight_decay)
            minimise([weight, bias], loss, len(labels), one_by_one, grad_hook=_clip)
        else:
            order = stream(self.experiment.seed, "server-batches", round=round)
            settings = plain_sgd(table.server_lr, table.server_epochs, table.server_batch)
            minimise([weight, bias], loss, len(labels), settings, order)
        return torch.cat([weight.detach().flatten(), bias.detach()])

    def evaluation(self) -> Message:
        return {"shared": self.shared}


def _clip(parameters: list[nn.Parameter]) -> None:
    nn.utils.clip_grad_norm_(parameters, CLIP)


class FedGHClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        weights.load_shared(self, message)
        samples = self.training_samples()
        self.fit(round, samples=samples)
        self.keep_trained(round)
        counted = self.options.weighting == "count"
        return prototypes.write_means(learning.collect(self, samples), named=True, counted=counted)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
