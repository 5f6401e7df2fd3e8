"""Membership inference: can a sample that a client trained on be told from one that it did not?

The attacker has every client's whole model, which is more than anybody is sent: what fails here fails for all. The
samples not trained on are test images with the client's own class mix, so that its classes give nothing away.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from refprotofl.core.streams import stream
from refprotofl.methods.base.training import classify, embed
from refprotofl.models import SplitModel

Scores = NDArray[np.float64]
RESAMPLED = 500  # times that the clients are drawn anew for an interval
FALSE_ALARMS = 0.01  # share of strangers taken for members, at which members found are counted
SPREAD = 0.1  # least spread of other models' confidence that a sample is measured by


@dataclass(frozen=True)
class Told:
    """What one attack makes of one client's samples: the higher, the more likely trained on."""

    members: Scores
    strangers: Scores


@dataclass(frozen=True)
class Bounded:
    """A number with the 95 % interval that drawing the clients anew gives."""

    value: float
    low: float
    high: float


def confidence(model: SplitModel, images: Tensor, labels: Tensor) -> Scores:
    """log(p / (1 - p)) of the true class: as LiRA has it, and in the order of the loss."""
    logits = classify(model, embed(model, images)).to(torch.float64)
    true = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
    others = logits.scatter(1, labels.unsqueeze(1), -torch.inf).logsumexp(dim=1)
    found: Scores = (true - others).numpy()
    return found


def calibrated(own: Scores, of_others: Sequence[Scores]) -> Scores:
    """How far the client's own confidence stands out of that of models which were not trained on the sample.

    The other clients' models serve as these, as in offline LiRA with a spread for each sample.
    """
    others = np.stack(of_others)
    apart: Scores = (own - others.mean(axis=0)) / np.maximum(others.std(axis=0), SPREAD)
    return apart


def auc(members: Scores, strangers: Scores) -> float:
    """Probability that a member scores higher than a stranger; equals count half."""
    ranks = rankdata(np.concatenate([members, strangers]))
    above = ranks[: len(members)].sum() - len(members) * (len(members) + 1) / 2
    return float(above / (len(members) * len(strangers)))


def found_at(members: Scores, strangers: Scores, false_alarms: float = FALSE_ALARMS) -> float:
    """Share of members above a threshold that at most so many strangers are above."""
    allowed = int(false_alarms * len(strangers))
    threshold = np.sort(strangers)[len(strangers) - 1 - allowed]
    return float((members > threshold).mean())


def over_clients(told: Sequence[Told], seed: int) -> tuple[Bounded, Bounded]:
    """AUC and members found at few false alarms, of all clients' samples together."""
    draw = stream(seed, "audit/resampled")
    drawn = [draw.integers(len(told), size=len(told)) for _ in range(RESAMPLED)]
    numbers = np.array([_both([told[one] for one in chosen]) for chosen in drawn])
    ends = np.quantile(numbers, [0.025, 0.975], axis=0)
    first, second = (Bounded(value, *map(float, ends[:, place])) for place, value in enumerate(_both(told)))
    return first, second


def _both(told: Sequence[Told]) -> tuple[float, float]:
    members = np.concatenate([one.members for one in told])
    strangers = np.concatenate([one.strangers for one in told])
    return auc(members, strangers), found_at(members, strangers)
