"""A trusted server's noised sum: what one client sends is shortened, the sum of all is noised.

Every client counts alike, and the sum is divided by how many were expected, not by who came: both would tell of the
clients' data. Where a coordinate was to be sent is public, so that noise is on all of these and on no others.
"""

import math
from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import streams
from refprotofl.core.errors import PrivacyError
from refprotofl.experiment import Experiment
from refprotofl.methods.aggregators.aggregation import Upload


class NoisedSum:
    """A rule of aggregation: changes of at most `clip` in length, summed, noised, over the `expected` clients."""

    holds: ClassVar[bool] = False

    def __init__(self, clip: float, noise: float, expected: int, draw: Callable[[], np.random.Generator]) -> None:
        """`draw` gives the stream of the noise, a new one for each sum."""
        self._clip = clip
        self._noise = noise
        self._expected = expected
        self._draw = draw

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        summed, sent = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.bool)
        for upload in uploads:
            short = upload.change * min(1.0, self._clip / max(float(upload.change.norm()), 1e-300))
            places = slice(None) if upload.places is None else upload.places
            summed[places] += short
            sent[places] = True
        summed += self._noise * self._clip * torch.from_numpy(self._draw().standard_normal(size))
        return torch.where(sent, summed / self._expected, -0.0)


class NoisedChanges(NoisedSum):
    """The rule for changes of the shared vector under privacy.unit = "client": one noised sum a round."""

    def __init__(self, experiment: Experiment, round: Callable[[], int]) -> None:
        table = experiment.privacy
        super().__init__(table.clip, table.noise, experiment.cohort_size, self._next_stream)
        self._experiment, self._round = experiment, round
        self._made: set[int] = set()  # the rounds of the sums that were made

    def _next_stream(self) -> np.random.Generator:
        round = self._round()
        if round in self._made:  # under the same noise the difference of two sums would show their difference exactly
            raise PrivacyError(
                f'privacy.unit = "client": a second sum of changes was made in round {round}, but only one is '
                "accounted for"
            )
        self._made.add(round)
        return _stream(self._experiment, "changes", round)

    def check_made(self, round: int) -> None:
        """Guard that a round's changes went through the noised sum."""
        if round not in self._made:
            raise PrivacyError(
                f'privacy.unit = "client": round {round} made no noised sum of the clients\' changes; the server must '
                "aggregate them by fold(self.rule, …)"
            )


def noised_prototypes(experiment: Experiment, round: int, prototypes: Tensor) -> Tensor:
    """Their mean over the clients, (clients, C, m) -> (C, m).

    Every row is shortened; all rows of a client are one upload.
    """
    table, (_, rows, width) = experiment.privacy, prototypes.shape
    wide = prototypes.to(torch.float64)
    short = wide * (table.prototype_clip / wide.norm(dim=2, keepdim=True).clamp(min=table.prototype_clip))
    bound = table.prototype_clip * math.sqrt(rows)
    aggregator = NoisedSum(bound, table.noise, experiment.cohort_size, lambda: _stream(experiment, "prototypes", round))
    mean = aggregator.aggregate(rows * width, [Upload(one.flatten(), 1.0) for one in short])
    return mean.view(rows, width).to(prototypes.dtype)


def _stream(experiment: Experiment, what: str, round: int) -> np.random.Generator:
    return streams.stream(experiment.seed, f"privacy/{what}", round=round)
