"""Client-level privacy: the server's messages reveal little about the data of one client. The server is trusted.

Each client's upload is clipped, and noise is added to the sum. All clients weigh the same, and the sum is divided by
the number of clients that were asked, not that answered: both would depend on the clients' data. The coordinates that
are sent are public, so noise is added at all of these and no others.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import ALL, PrivacyError, streams
from refprotofl.experiment import Experiment
from refprotofl.methods import Aggregator, Method, Upload, find_method
from refprotofl.privacy.accounting import Relation, Spent, bounded, epsilon
from refprotofl.privacy.interface import Mechanism, setting

if TYPE_CHECKING:
    from dp_accounting import DpEvent

RELATION: Relation = "replace-one"


class ClientLevel(Mechanism):
    unit: ClassVar[str] = "client"
    protects: ClassVar[bool] = True
    simulation_only: ClassVar[str] = "its noise comes from the seed, which every node knows, so it would hide nothing"
    repeats_rounds: ClassVar[bool] = False  # a second sum under the same noise would remove the noise
    compares_answers: ClassVar[bool] = False  # whether a client counts would depend on the data of others
    own_aggregator: ClassVar[bool] = False
    exact_statistics: ClassVar[bool] = False

    def undefined_reason(self, method: Method) -> str:
        sums = method.releases(self.experiment).client
        if isinstance(sums, str):
            return sums
        return "its server gets all clients' samples" if method.pooled else ""

    def mask_stream(self, round: int) -> np.random.Generator:
        """Return the stream of the common mask: coordinates chosen by a client would reveal its data."""
        return streams.stream(self.experiment.seed, "select", round=round)

    def aggregator(self, named: Aggregator, round: Callable[[], int]) -> "NoisedChanges":
        return NoisedChanges(self.experiment, round)

    def check_round(self, aggregator: Aggregator, round: int) -> None:
        assert isinstance(aggregator, NoisedChanges)
        aggregator.check_made(round)

    def mean_prototypes(self, prototypes: Tensor, round: int, mean: Callable[[Tensor], Tensor]) -> Tensor:
        return noised_prototypes(self.experiment, round, prototypes)

    def spent(self, rounds: int, sizes: Sequence[int], participations: Sequence[int]) -> Spent:
        return {
            "unit": "client",
            "relation": RELATION,
            "epsilon": bounded(self._epsilon(rounds, max(participations))),
            "delta": self.table.delta,
            "noise": self.table.noise,
            "clip": self.table.clip,
            "rounds": rounds,
        }

    def _epsilon(self, rounds: int, most_asked: int) -> float:
        """Return the epsilon of noised sums; exchanging one client moves a sum by twice the clip.

        Drawing a fixed number of clients without replacement hides who was drawn, but only if clients keep nothing
        from round to round: the theorem does not cover what a state shows of earlier draws. Otherwise the rounds of
        the client that was drawn most often count.
        """
        from dp_accounting import GaussianDpEvent, SampledWithoutReplacementDpEvent, SelfComposedDpEvent

        experiment = self.experiment
        if self.table.noise == 0:
            return math.inf if rounds else 0.0
        sums = find_method(experiment.method).releases(experiment).client
        assert isinstance(sums, int)
        round: DpEvent = SelfComposedDpEvent(GaussianDpEvent(self.table.noise / 2), sums)
        if experiment.cohort_size < experiment.clients and is_stateless(experiment):
            round = SampledWithoutReplacementDpEvent(experiment.clients, experiment.cohort_size, round)
        else:
            rounds = most_asked
        return epsilon([SelfComposedDpEvent(round, rounds)], RELATION, self.table.delta)


def is_stateless(experiment: Experiment) -> bool:
    """Return whether clients keep no part of the model, no batch statistics, no error feedback and no other state."""
    method, norm = find_method(experiment.method), experiment.model.norm
    whole = set(method.shared(experiment)) == set(ALL) and norm != "batch-local"
    return whole and not method.stateful and not method.feedback(experiment).client_memory


class NoisedSum(Aggregator):
    """An aggregator: changes clipped to the norm `clip`, summed, noised, divided by the `expected` clients."""

    by_samples = False

    def __init__(self, clip: float, noise: float, expected: int, draw: Callable[[], np.random.Generator]) -> None:
        """`draw` returns the stream of the noise, a new one for each sum."""
        super().__init__()
        self._clip = clip
        self._noise = noise
        self._expected = expected
        self._draw = draw

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        summed, sent = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.bool)
        for upload in uploads:
            short = upload.change * min(1.0, self._clip / max(float(upload.change.norm()), 1e-300))
            indices = slice(None) if upload.indices is None else upload.indices
            summed[indices] += short
            sent[indices] = True
        summed += self._noise * self._clip * torch.from_numpy(self._draw().standard_normal(size))
        return torch.where(sent, summed / self._expected, -0.0)

    def divisor(self, weights: Tensor) -> float:
        return float(self._expected)


class NoisedChanges(NoisedSum):
    """The aggregator for changes of the shared vector: one noised sum per round."""

    def __init__(self, experiment: Experiment, round: Callable[[], int]) -> None:
        table = experiment.privacy
        super().__init__(table.clip, table.noise, experiment.cohort_size, self._next_stream)
        self._experiment, self._round = experiment, round
        self._made: set[int] = set()  # rounds in which the sum was made

    def _next_stream(self) -> np.random.Generator:
        round = self._round()
        if round in self._made:  # under the same noise the difference of two sums would be exact
            raise PrivacyError(
                f"{setting('client')}: a second sum of changes was made in round {round}, but only one is accounted for"
            )
        self._made.add(round)
        return _stream(self._experiment, "changes", round)

    def check_made(self, round: int) -> None:
        """Raise PrivacyError if a round's changes did not go through the noised sum."""
        if round not in self._made:
            raise PrivacyError(
                f"{setting('client')}: round {round} made no noised sum of the clients' changes; the server must "
                "aggregate them by aggregate_uploads(self.aggregator, …)"
            )


def noised_prototypes(experiment: Experiment, round: int, prototypes: Tensor) -> Tensor:
    """Return the noised mean over the clients, (clients, C, m) -> (C, m).

    Each row is clipped; all rows of a client together are one upload.
    """
    table, (_, rows, width) = experiment.privacy, prototypes.shape
    wide = prototypes.to(torch.float64)
    short = wide * (table.prototype_clip / wide.norm(dim=2, keepdim=True).clamp(min=table.prototype_clip))
    bound = table.prototype_clip * math.sqrt(rows)
    aggregator = NoisedSum(bound, table.noise, experiment.cohort_size, lambda: _stream(experiment, "prototypes", round))
    mean = aggregator.aggregate(rows * width, [Upload(one.flatten(), 1.0) for one in short])
    return mean.view(rows, width).to(prototypes.dtype)


def _stream(experiment: Experiment, purpose: str, round: int) -> np.random.Generator:
    return streams.stream(experiment.seed, f"privacy/{purpose}", round=round)
