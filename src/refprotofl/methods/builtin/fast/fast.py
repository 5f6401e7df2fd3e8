"""FAST (Li et al. 2025): a few labels made by hand, weak ones from a frozen encoder's neighbours, then FedAvg.

Labelling happens once, when a client joins. The data were partitioned by their true labels before, as for every method.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.core import streams
from refprotofl.methods import (
    Client,
    Cohort,
    Dense,
    Lost,
    MessageSchema,
    MessageSchemas,
    Refused,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    Whole,
    class_ids,
    declare,
    whole_numbers,
)
from refprotofl.methods.builtin.fast import Options, labelling
from refprotofl.methods.builtin.fast.embedders import common_encoder, embed_inputs, encoder_fields, fit_pca
from refprotofl.methods.builtin.fast.labelling import (
    draw_seeds,
    own_quotas,
    read_counts,
    read_seeds,
    seed_fields,
    seed_quotas,
    write_seeds,
)
from refprotofl.methods.common import weights
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class FASTServer(Server):
    sends_weights: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    options: Options

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        clients = context.experiment.clients
        self.encoder = common_encoder(self.options, context.public)
        self.shared = context.model.read(context.parts)  # (P,)
        self.counts = torch.zeros(clients, self.num_classes, dtype=torch.int64)
        self.quotas = torch.zeros_like(self.counts)  # of labels made by hand
        self.told = torch.zeros(clients, len(labelling.COUNTS), dtype=torch.int64)  # counts of labels, by client
        self.pool, self.pool_labels, self.pool_owners = torch.zeros(0, 0), torch.zeros(0).long(), torch.zeros(0).long()

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        classes, encoder = scope.classes, encoder_fields()
        pool = {"pool": Dense((None, None)), "pool_labels": whole_numbers(None, low=0, high=classes - 1)}
        pooled = scope.options.knn == "pooled"
        return declare(
            scope,
            join={"counts": Dense((classes,), (torch.int32,), low=0)} if pooled else {},
            seed=MessageSchema({**encoder, "quotas": whole_numbers(classes, low=0)}, seed_fields(classes)),
            label=MessageSchema(pool if pooled else encoder, {name: Whole(low=0) for name in labelling.COUNTS}),
            train=MessageSchema(weights.broadcast(scope), weights.change(scope)),
            evaluate={"shared": weights.shared_vector(scope)},
            finetune=weights.finetuning(scope),
        )

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples", "quotas", "told", "pool", "pool_labels", "pool_owners")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        self.shared = weights.averaged_training(self, cohort, self.shared)

    def join(self, cohort: Cohort, clients: Iterable[int]) -> None:
        newcomers = list(clients)
        super().join(cohort, newcomers)
        request = self.encoder
        if self.options.knn == "pooled":
            self.set_quotas(cohort, newcomers)
            for client, seeds in self.ask_once(cohort, "seed", self.seed_request, newcomers, self.read_seeds):
                self.take_seeds(client, *seeds)  # pass 1, steps a and b
            self.free_quotas(cohort, newcomers)
            request = {"pool": self.pool, "pool_labels": class_ids(self.pool_labels, self.num_classes)}
        for client, counts in self.ask_once(cohort, "label", request, newcomers, self.read_label_counts):
            self.told[client] = counts  # pass 1, step c, and pass 2

    def read_joined(self, client: int, answer: ValidatedMessage) -> ValidatedMessage:
        if self.options.knn == "pooled":
            read_counts(answer)
        return answer

    def welcome(self, client: int, answer: ValidatedMessage) -> None:
        super().welcome(client, answer)
        if self.options.knn == "pooled":
            self.counts[client] = read_counts(answer)

    def set_quotas(self, cohort: Cohort, newcomers: Iterable[int]) -> None:
        """Draw the quotas of new clients; one that rejoins keeps its own, so that nothing is labelled again."""
        fresh = [client for client in newcomers if client in cohort.clients and not self.quotas[client].any()]
        if fresh:
            held = self.pool_labels.bincount(minlength=self.num_classes).numpy()
            draw = streams.stream(self.experiment.seed, "seed-quotas", round=cohort.round)
            drawn = seed_quotas(self.counts[fresh].numpy(), self.options.seed_share, held, draw)
            self.quotas[fresh] = torch.from_numpy(drawn)

    def free_quotas(self, cohort: Cohort, newcomers: Iterable[int]) -> None:
        """Release the quotas of clients that were dropped before they had labelled anything."""
        gone = [client for client in newcomers if client not in cohort.clients and client not in self.pool_owners]
        self.quotas[gone] = 0

    def seed_request(self, client: int) -> Message:
        return {**self.encoder, "quotas": self.quotas[client].int()}

    def read_seeds(self, client: int, answer: ValidatedMessage) -> tuple[Tensor, Tensor]:
        """Return the client's hand-labelled samples, (n, width) and (n,); none if none were asked for."""
        if not self.quotas[client].any():
            return self.pool[:0], self.pool_labels[:0]
        return read_seeds(answer, self.quotas[client], self.width)

    @cached_property
    def width(self) -> int:
        """The width of an embedding, computed here, so that no client's first answer has to be believed."""
        seen = self.experiment.known_input
        blank = torch.zeros(1, *seen.shape, dtype=getattr(torch, seen.dtype))
        return embed_inputs(self.options.embedder, blank, self.encoder).shape[1]

    def take_seeds(self, client: int, rows: Tensor, labels: Tensor) -> None:
        if not self.quotas[client].any():
            return
        others = self.pool_owners != client
        self.pool = torch.cat([self.pool[others], rows]) if others.any() else rows
        self.pool_labels = torch.cat([self.pool_labels[others], labels])
        self.pool_owners = torch.cat([self.pool_owners[others], torch.full_like(labels, client)])

    def read_label_counts(self, client: int, answer: ValidatedMessage) -> Tensor:
        counts = torch.tensor([answer.whole(name) for name in labelling.COUNTS])
        if bool((counts > self.samples[client]).any()):
            raise Refused(f"{', '.join(labelling.COUNTS)} are not whole numbers up to the client's samples")
        return counts

    def evaluation(self) -> Message:
        return {"shared": self.shared}

    def global_model(self) -> SplitModel | None:
        return self.whole_model(self.shared)

    def facts(self, round: int) -> dict[str, float | int | str]:
        counts = self.told[self.told.any(dim=1)]
        return {"embedder": self.options.embedder, **labelling.facts(counts, self.options.seed_share)}


class FASTClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "seed", "label", "train", "evaluate")
    options: Options

    def join(self, round: int, message: ValidatedMessage) -> Message:
        answer = super().join(round, message)
        if self.options.knn == "pooled":
            answer["counts"] = self.samples.own_labels.bincount(minlength=self.num_classes).to(torch.int32)
        return answer

    def seed(self, round: int, message: ValidatedMessage) -> Message:
        encoder = {name: value for name, value in message.items() if name != "quotas"}
        true = self.samples.own_labels
        seeds = draw_seeds(true, message.tensor("quotas"), self.stream("seeds", 0))
        self.state["seeds"], self.state["encoder"] = seeds, self.context.blobs.put(encoder)
        return write_seeds(self.embed(seeds, encoder), true[seeds], self.num_classes) if len(seeds) else {}

    def label(self, round: int, message: ValidatedMessage) -> Message:
        true, table = self.samples.own_labels, self.options
        seeds, encoder = self.recall_seeds() if table.knn == "pooled" else (self.draw_own_seeds(), message)
        embeddings = self.embed(torch.arange(len(true)), encoder)
        pool, classes = embeddings[seeds], true[seeds]
        if "pool" in message:
            pool, classes = message.tensor("pool"), message.tensor("pool_labels")
        labels, counts = labelling.mixed_labels(true, seeds, embeddings, pool, classes, table, self.num_classes)
        self.state["labels"] = class_ids(labels, self.num_classes)
        return dict(counts)

    def recall_seeds(self) -> tuple[Tensor, Message]:
        seeds, encoder = self.state.pop("seeds", None), self.context.blobs.get(str(self.state.pop("encoder", "")))
        if not isinstance(seeds, Tensor) or encoder is None:
            raise Lost
        return seeds, encoder

    def draw_own_seeds(self) -> Tensor:
        true, share = self.samples.own_labels, self.options.seed_share
        quotas = own_quotas(true, share, self.num_classes, self.stream("seed-quotas", 0))
        return draw_seeds(true, quotas, self.stream("seeds", 0))

    def embed(self, positions: Tensor, encoder: Message) -> Tensor:
        """Return embeddings of some of the client's samples; without a PCA from the server one is fitted on them."""
        images, name = self.samples.inputs_of(self.samples.rows[positions]).cpu(), self.options.embedder
        return embed_inputs(name, images, encoder or (fit_pca(images) if name == "pca" else {}))

    def take_labels(self) -> None:
        """Give the client's samples the labels that were made when it joined."""
        labels = self.state.get("labels")
        if not isinstance(labels, Tensor):
            raise Lost
        self.samples = self.samples.relabelled(labels.long())

    def finetune(self, round: int, message: ValidatedMessage) -> Message:
        self.take_labels()
        return super().finetune(round, message)

    def train(self, round: int, message: ValidatedMessage) -> Message:
        self.take_labels()
        received = weights.load_shared(self, message)
        self.fit(round)
        return weights.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
