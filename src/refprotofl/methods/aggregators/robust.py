"""Rules that bound what a few clients can do to the shared vector, whatever they send.

A coordinate's value is decided by the clients that sent it. Under Eq. (7) one of them may move it anywhere, and one
that nobody else sends is its sender's own; these rules, and `min-senders`, limit that. What counts is how many clients
there are, not how many samples they say they have, except where a rule says so.

Where clients tell a progress (FedNova), each change is first brought to the median progress of all: the mean progress,
by which the weighted mean is scaled back, is anybody's to move.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from refprotofl.experiment import Experiment
from refprotofl.methods.aggregators.aggregation import Aggregator, Mean, Normalise, Upload, aggregate_uploads

BLOCK = 1 << 22  # values that are laid out and sorted at a time
STEPS = 1000  # of Weiszfeld's iteration, at most
NEAR = 1e-6  # share of the median norm that Weiszfeld takes shorter distances for: it would divide by 0
TINY = 1e-150  # a distance whose inverse still adds up
STILL = 1e-10  # relative change of its weights at which it ends: a far vector's is small, but counts


def choose_aggregator(experiment: Experiment, normalise: Normalise = "senders") -> Aggregator:
    """The rule for changes that the keys `aggregate`, `trim`, `clip` and `min-senders` name."""
    aggregator = _named(experiment, experiment.clip, normalise)
    return aggregator if experiment.min_senders == 1 else Quorum(aggregator, experiment.min_senders)


def _named(experiment: Experiment, clip: float, normalise: Normalise) -> Aggregator:
    rules: dict[str, Aggregator] = {
        "mean": Mean(normalise),
        "median": Median(normalise),
        "trimmed": Trimmed(experiment.trim, normalise),
        "clipped": Clipped(clip, normalise),
        "geometric-median": GeometricMedian(),
    }
    return rules[experiment.aggregate]


def centre(experiment: Experiment, vectors: Tensor, weights: Tensor) -> Tensor:
    """What the rule makes of vectors (n, m) that are no changes, such as prototypes: (m,) in float64.

    Distances are from their coordinate-wise median; `clipped` limits them to their median, for `clip` is about changes.
    """
    wide, aggregator = vectors.to(torch.float64), _named(experiment, 0.0, "senders")
    size = wide.shape[1]
    middle = aggregate_uploads(Median(), size, [Upload(vector, 1.0) for vector in wide])
    away = [Upload(vector - middle, float(weight)) for vector, weight in zip(wide, weights, strict=True)]
    return middle + aggregate_uploads(aggregator, size, away)


class Quorum:
    """Another rule, but for coordinates that fewer than `least` clients sent: they keep their values."""

    def __init__(self, aggregator: Aggregator, least: int) -> None:
        self._aggregator = aggregator
        self._least = least

    @property
    def holds(self) -> bool:
        return self._aggregator.holds

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        senders = torch.zeros(size, dtype=torch.int64)
        move = self._aggregator.aggregate(size, _counting(senders, uploads))
        return torch.where(senders >= self._least, move, -0.0)


def _counting(senders: Tensor, uploads: Iterable[Upload]) -> Iterator[Upload]:
    """The uploads as they come; of each coordinate it is counted how many sent it, (P,)."""
    for upload in uploads:
        senders[... if upload.places is None else upload.places] += 1
        yield upload


class Median:
    """Of each coordinate the median over its senders, unweighted.

    Fewer than half of them cannot take it out of the others' range. With `participants` it is scaled by the share of
    the round's clients that sent it, as the mean is.
    """

    holds: ClassVar[bool] = True

    def __init__(self, normalise: Normalise = "senders") -> None:
        self._normalise = normalise

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        senders = torch.zeros(size, dtype=torch.int64)
        even = list(_counting(senders, at_common_progress(uploads)))
        move = np.full(size, -0.0)
        for start, ordered, counts in _by_coordinate(size, even, int(senders.max()) if size else 0):
            known = counts > 0
            move[start : start + len(counts)][known] = self.middle(ordered[known], counts[known])
        share = senders.numpy() / max(1, len(even)) if self._normalise == "participants" else 1.0
        return torch.from_numpy(np.where(senders > 0, move * share, -0.0))

    def middle(self, ordered: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Of ascending values (coordinates, most senders), of which the first `counts` are sent."""
        rows = np.arange(len(counts))
        middle: np.ndarray = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
        return middle


class Trimmed(Median):
    """Of each coordinate the mean without the `trim` share of its senders at each end, unweighted.

    At least one at each end goes where three or more sent it: under masks the coordinates of few are those attacked.
    """

    def __init__(self, trim: float, normalise: Normalise = "senders") -> None:
        super().__init__(normalise)
        self._trim = trim

    def middle(self, ordered: np.ndarray, counts: np.ndarray) -> np.ndarray:
        cut = np.where(counts >= 3, np.maximum(1, (self._trim * counts).astype(np.int64)), 0)  # at each end
        place = np.arange(ordered.shape[1])
        kept = (place >= cut[:, None]) & (place < (counts - cut)[:, None])
        mean: np.ndarray = np.where(kept, ordered, 0.0).sum(axis=1) / (counts - 2 * cut)
        return mean


class Clipped:
    """Each client's whole change shortened to the norm `clip`, then the weighted mean of Eq. (7).

    With a clip of 0 the norm is the median of the round's, which fewer than half cannot set. Nobody moves the vector
    further than that; how far depends on the numbers of samples, and on who else sent a coordinate.
    """

    holds: ClassVar[bool] = True

    def __init__(self, clip: float = 0.0, normalise: Normalise = "senders") -> None:
        self._clip = clip
        self._mean = Mean(normalise)

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        even = at_common_progress(uploads)
        norms = [float(upload.change.norm()) for upload in even]
        most = self._clip or (median(norms) if norms else 0.0)
        short = (
            replace(upload, change=upload.change * (most / norm)) if norm > most else upload
            for upload, norm in zip(even, norms, strict=True)
        )
        return self._mean.aggregate(size, short)


class GeometricMedian:
    """The vector with the least sum of distances to the clients' whole changes, unweighted (Weiszfeld, smoothed).

    A change is 0 where it was not sent, whatever `normalise` says: this is a median of whole vectors, and what few send
    moves little. It is a mean of the changes whose weights are found from their products alone.
    """

    holds: ClassVar[bool] = True

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        even = at_common_progress(uploads)
        weights = weiszfeld(_products(size, even)).tolist() if even else []
        weighted = (replace(upload, weight=weight) for upload, weight in zip(even, weights, strict=True))
        return Mean("participants").aggregate(size, weighted)


def weiszfeld(products: np.ndarray) -> np.ndarray:
    """The weights (n,) with which vectors make up their geometric median, from their inner products (n, n).

    It begins at the origin, not at the mean: there a vector of any length has a weight that fits its length, and no
    product of a long one swallows the digits of the others.
    """
    norms = np.sqrt(products.diagonal())
    near = max(NEAR * float(np.median(norms)), TINY)  # where most are 0, so is their geometric median
    shares = _inverse(norms, near)
    for _ in range(STEPS):
        along = products @ shares
        distances = np.sqrt(np.maximum(shares @ along - 2 * along + products.diagonal(), 0.0))
        closer = _inverse(distances, near)
        if float(np.abs(closer / shares - 1).max()) < STILL:
            return closer
        shares = closer
    return shares


def _inverse(distances: np.ndarray, near: float) -> np.ndarray:
    inverse = 1 / np.maximum(distances, near)
    shares: np.ndarray = inverse / inverse.sum()
    return shares


def at_common_progress(uploads: Iterable[Upload]) -> list[Upload]:
    """Each change as far as it were at the clients' median progress; one that is not finite then is left out."""
    held = list(uploads)
    if not held:
        return []
    common = median(upload.progress for upload in held)
    even = [
        upload
        if upload.progress == common == 1
        else replace(upload, change=upload.change * (common / upload.progress), progress=1.0)
        for upload in held
    ]
    return [upload for upload in even if bool(upload.change.isfinite().all())]


def _by_coordinate(size: int, uploads: Sequence[Upload], most: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Blocks of coordinates: where each begins, what was sent of each, ascending, (width, most), by how many (width,).

    `most` is how many senders a coordinate has at most; what is left of its row is infinite.
    """
    width = max(1, BLOCK // max(1, most))
    for start in range(0, size if most else 0, width):
        values = np.full((min(width, size - start), most), np.inf)
        counts = np.zeros(len(values), np.int64)
        for upload in uploads:
            places, change = _within(upload, start, start + len(values))
            values[places, counts[places]] = change
            counts[places] += 1
        values.sort(axis=1)
        yield start, values, counts


def _products(size: int, uploads: Sequence[Upload]) -> np.ndarray:
    """The inner products (n, n) of the whole changes, 0 where unsent."""
    products = np.zeros((len(uploads), len(uploads)))
    width = max(1, BLOCK // max(1, len(uploads)))
    for start in range(0, size, width):
        changes = np.zeros((len(uploads), min(width, size - start)))
        for row, upload in zip(changes, uploads, strict=True):
            places, change = _within(upload, start, start + len(row))
            row[places] = change
        block = torch.from_numpy(changes)  # its product keeps to the run's one thread
        products += (block @ block.T).numpy()
    return products


def _within(upload: Upload, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Where in a block of coordinates an upload has values, and which."""
    change = upload.change.numpy()
    if upload.places is None:
        return np.arange(end - start), change[start:end]
    places = upload.places.numpy()
    low, high = np.searchsorted(places, (start, end))
    return places[low:high] - start, change[low:high]
