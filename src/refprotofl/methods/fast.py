"""FAST (Li et al. 2025): a few labels made by hand, weak ones from a frozen encoder's neighbours, then FedAvg.

Labelling happens once, when a client joins. The data were dealt out by their true labels before, as for every method.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from refprotofl.basics import streams
from refprotofl.experiment import Experiment
from refprotofl.methods import labelling, sharing
from refprotofl.methods.base import Client, Cohort, Lost, Refused, Server, class_ids
from refprotofl.methods.embedders import common_encoder, embed_images, fit_pca
from refprotofl.methods.seeds import draw_seeds, own_quotas, read_counts, read_seeds, seed_quotas, write_seeds
from refprotofl.methods.training import Samples, train
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


class FASTServer(Server):
    kinds: ClassVar[Mapping[str, Kind]] = sharing.KINDS
    sends_weights: ClassVar[bool] = True

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        self.table = experiment.fast
        self.encoder = common_encoder(self.table, public)
        self.shared = model.read(parts)  # (P,)
        self.counts = torch.zeros(experiment.clients, self.num_classes, dtype=torch.int64)
        self.quotas = torch.zeros_like(self.counts)  # of labels made by hand
        self.told = torch.zeros(experiment.clients, len(labelling.COUNTS), dtype=torch.int64)
        self.pool, self.pool_labels, self.pool_owners = torch.zeros(0, 0), torch.zeros(0).long(), torch.zeros(0).long()

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples", "quotas", "told", "pool", "pool_labels", "pool_owners")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        self.shared = sharing.averaged_training(self, cohort, self.shared)

    def join(self, cohort: Cohort, clients: Iterable[int]) -> None:
        newcomers = list(clients)
        super().join(cohort, newcomers)
        request = self.encoder
        if self.table.knn == "pooled":
            self.set_quotas(cohort, newcomers)
            self.ask_once(cohort, "seed", self.seed_request, newcomers, self.take_seeds)  # pass 1, steps a and b
            request = {"pool": self.pool, "pool_labels": class_ids(self.pool_labels, self.num_classes)}
        self.ask_once(cohort, "label", request, newcomers, self.take_told)  # pass 1, step c, and pass 2

    def welcome(self, client: int, answer: Message) -> None:
        super().welcome(client, answer)
        if self.table.knn == "pooled":
            self.counts[client] = read_counts(answer, self.num_classes)

    def set_quotas(self, cohort: Cohort, newcomers: Iterable[int]) -> None:
        """Who joins anew after a loss keeps its quota, so that nothing is labelled by hand twice."""
        fresh = [client for client in newcomers if client in cohort.clients and not self.quotas[client].any()]
        if fresh:
            held = self.pool_labels.bincount(minlength=self.num_classes).numpy()
            draw = streams.stream(self.experiment.seed, "seed-quotas", round=cohort.round)
            drawn = seed_quotas(self.counts[fresh].numpy(), self.table.seed_share, held, draw)
            self.quotas[fresh] = torch.from_numpy(drawn)

    def seed_request(self, client: int) -> Message:
        return {**self.encoder, "quotas": self.quotas[client].int()}

    def take_seeds(self, client: int, answer: Message) -> None:
        if self.quotas[client].any():
            others = self.pool_owners != client
            width = self.pool.shape[1] if others.any() else None
            rows, labels = read_seeds(answer, self.quotas[client], width)
            self.pool = torch.cat([self.pool[others], rows]) if others.any() else rows
            self.pool_labels = torch.cat([self.pool_labels[others], labels])
            self.pool_owners = torch.cat([self.pool_owners[others], torch.full_like(labels, client)])

    def take_told(self, client: int, answer: Message) -> None:
        counts = [answer[name] for name in labelling.COUNTS]
        if not all(type(count) is int and 0 <= count <= self.samples[client] for count in counts):
            raise Refused(f"{', '.join(labelling.COUNTS)} are not whole numbers up to the client's samples")
        self.told[client] = torch.tensor(counts)

    def evaluation(self) -> Message:
        return {"shared": self.shared}

    def global_model(self) -> SplitModel | None:
        return sharing.global_model(self, self.shared)

    def facts(self) -> dict[str, float | int | str]:
        told = self.told[self.told.any(dim=1)]
        return {"embedder": self.table.embedder, **labelling.facts(told, self.table.seed_share)}


class FASTClient(Client):
    verbs: ClassVar[tuple[str, ...]] = ("join", "seed", "label", "train", "evaluate")

    def join(self, round: int, message: Message) -> Message:
        answer = super().join(round, message)
        if self.experiment.fast.knn == "pooled":
            answer["counts"] = self.samples.own_labels.bincount(minlength=self.num_classes).to(torch.int32)
        return answer

    def seed(self, round: int, message: Message) -> Message:
        quotas: Tensor = message.pop("quotas")  # type: ignore[assignment]
        true = self.samples.own_labels
        seeds = draw_seeds(true, quotas, self.stream("seeds", 0))
        self.state["seeds"], self.state["encoder"] = seeds, self.seat.shelf.put(message)
        return write_seeds(self.embed(seeds, message), true[seeds], self.num_classes) if len(seeds) else {}

    def label(self, round: int, message: Message) -> Message:
        true, table = self.samples.own_labels, self.experiment.fast
        seeds, encoder = self.recall_seeds() if table.knn == "pooled" else (self.draw_own_seeds(), message)
        embeddings = self.embed(torch.arange(len(true)), encoder)
        pool, classes = message.get("pool", embeddings[seeds]), message.get("pool_labels", true[seeds])
        labels, counts = labelling.mixed_labels(true, seeds, embeddings, pool, classes, table, self.num_classes)  # type: ignore[arg-type]
        self.state["labels"] = class_ids(labels, self.num_classes)
        return dict(counts)

    def recall_seeds(self) -> tuple[Tensor, Message]:
        seeds, encoder = self.state.pop("seeds", None), self.seat.shelf.get(str(self.state.pop("encoder", "")))
        if not isinstance(seeds, Tensor) or encoder is None:
            raise Lost
        return seeds, encoder

    def draw_own_seeds(self) -> Tensor:
        true, share = self.samples.own_labels, self.experiment.fast.seed_share
        quotas = own_quotas(true, share, self.num_classes, self.stream("seed-quotas", 0))
        return draw_seeds(true, quotas, self.stream("seeds", 0))

    def embed(self, places: Tensor, encoder: Message) -> Tensor:
        """Embeddings of some of the client's samples; a PCA that no one sent is fitted on them."""
        images, name = self.samples.images_of(self.samples.rows[places]).cpu(), self.experiment.fast.embedder
        return embed_images(name, images, encoder or (fit_pca(images) if name == "pca" else {}))

    def train(self, round: int, message: Message) -> Message:
        labels = self.state.get("labels")
        if not isinstance(labels, Tensor):
            raise Lost
        self.samples = self.samples.relabelled(labels.long())
        received = sharing.load_shared(self, message)
        train(self.model, self.training_samples(), self.experiment.train, self.stream("batches", round))
        return sharing.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, message["shared"])  # type: ignore[arg-type]
