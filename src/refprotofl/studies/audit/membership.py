"""Membership inference: distinguish the samples that a client trained on from others.

The attacker has every client's whole model, which is more than any participant receives. The other samples are test
images with the client's own class mix, so that the classes reveal nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from refprotofl.core import stream
from refprotofl.methods import classify, embed
from refprotofl.models import SplitModel

Scores = NDArray[np.float64]
RESAMPLED = 500  # bootstrap draws of the clients, for an interval
FALSE_POSITIVES = 0.01  # rate of non-members classified as members
SPREAD = 0.1  # least standard deviation of other models' confidence


@dataclass(frozen=True)
class MembershipScores:
    """The scores of one attack on one client's samples; members should score higher."""

    members: Scores
    others: Scores


@dataclass(frozen=True)
class Bounded:
    """A number with its 95 % bootstrap interval over clients."""

    value: float
    low: float
    high: float


def confidence(model: SplitModel, images: Tensor, labels: Tensor) -> Scores:
    """Return log(p / (1 - p)) of the true class, as in LiRA; it orders samples as the loss does."""
    logits = classify(model, embed(model, images)).to(torch.float64)
    true = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
    others = logits.scatter(1, labels.unsqueeze(1), -torch.inf).logsumexp(dim=1)
    found: Scores = (true - others).numpy()
    return found


def calibrated(own: Scores, of_others: Sequence[Scores]) -> Scores:
    """Return the client's own confidence standardised by that of models not trained on the sample.

    These are the other clients' models, as in offline LiRA with a deviation for each sample.
    """
    others = np.stack(of_others)
    apart: Scores = (own - others.mean(axis=0)) / np.maximum(others.std(axis=0), SPREAD)
    return apart


def auc(members: Scores, others: Scores) -> float:
    """Return the probability that a member scores higher than another sample; ties count half."""
    ranks = rankdata(np.concatenate([members, others]))
    above = ranks[: len(members)].sum() - len(members) * (len(members) + 1) / 2
    return float(above / (len(members) * len(others)))


def true_positives(members: Scores, others: Scores, false_positives: float = FALSE_POSITIVES) -> float:
    """Return the true-positive rate at a false-positive rate."""
    allowed = int(false_positives * len(others))
    threshold = np.sort(others)[len(others) - 1 - allowed]
    return float((members > threshold).mean())


def over_clients(scores: Sequence[MembershipScores], seed: int) -> tuple[Bounded, Bounded]:
    """Return the AUC and the true-positive rate of all clients' samples together."""
    draw = stream(seed, "audit/resampled")
    drawn = [draw.integers(len(scores), size=len(scores)) for _ in range(RESAMPLED)]
    numbers = np.array([_both([scores[one] for one in chosen]) for chosen in drawn])
    ends = np.quantile(numbers, [0.025, 0.975], axis=0)
    first, second = (Bounded(value, *map(float, ends[:, column])) for column, value in enumerate(_both(scores)))
    return first, second


def _both(scores: Sequence[MembershipScores]) -> tuple[float, float]:
    members = np.concatenate([one.members for one in scores])
    others = np.concatenate([one.others for one in scores])
    return auc(members, others), true_positives(members, others)
