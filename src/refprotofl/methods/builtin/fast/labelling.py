"""Labels from a few made by hand: quotas and messages of hand-labelled samples, weak labels, and active queries."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from refprotofl.data.draws import level
from refprotofl.methods import Dense, Fields, Refused, ValidatedMessage, class_ids, whole_numbers
from refprotofl.methods.builtin.fast import Options
from refprotofl.wire import Message

LEAST_SEEDS = 5  # hand-labelled samples of a class, where it has that many


def seed_quotas(
    counts: NDArray[np.int64], share: float, held: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return the number of samples of each class that each client labels by hand, (clients, C), out of `counts`.

    Over all clients it is `share` of the samples, with classes as equal as possible and, together with the `held`
    (C,) ones, at least LEAST_SEEDS of each. A class's quota is divided among the clients as if drawn from all its
    samples at random.
    """
    totals = counts.sum(axis=0)
    by_class = level(totals, round(share * int(totals.sum())), generator.permutation(len(totals)))
    by_class = np.minimum(totals, np.maximum(by_class, LEAST_SEEDS - held))
    drawn = [generator.multivariate_hypergeometric(*one) for one in zip(counts.T, by_class, strict=True)]
    return np.stack(drawn, axis=1)


def own_quotas(labels: Tensor, share: float, num_classes: int, generator: np.random.Generator) -> Tensor:
    """Return the quotas (C,) of a client that labels for itself alone."""
    counts = labels.bincount(minlength=num_classes).numpy()
    return torch.from_numpy(seed_quotas(counts[None], share, np.zeros_like(counts), generator)[0])


def draw_seeds(labels: Tensor, quotas: Tensor, generator: np.random.Generator) -> Tensor:
    """Return sorted positions of a client's hand-labelled samples: each class's quota, at random."""
    order = torch.from_numpy(generator.permutation(len(labels)))
    chosen = [order[labels[order] == number][:quota] for number, quota in enumerate(quotas.tolist())]
    return torch.cat(chosen).sort().values


def write_seeds(embeddings: Tensor, labels: Tensor, num_classes: int) -> Message:
    return {"embeddings": embeddings, "labels": class_ids(labels, num_classes)}


def seed_fields(num_classes: int) -> Fields:
    """Return the fields of `write_seeds`, all optional: a client without a quota sends none."""
    labels = whole_numbers(None, low=0, high=num_classes - 1, optional=True)
    return {"embeddings": Dense((None, None), optional=True), "labels": labels}


def read_seeds(message: ValidatedMessage, quotas: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return embeddings (n, width) and labels (n,) of exactly the classes that the quotas (C,) ask for."""
    rows, labels = message.tensor("embeddings"), message.tensor("labels").long()
    if rows.shape[1] != width:
        raise Refused(f"embeddings are {rows.shape[1]} wide, not {width}")
    asked = torch.arange(len(quotas)).repeat_interleave(quotas)
    if len(rows) != len(asked) or not labels.sort().values.equal(asked):
        raise Refused("the labels are not of the classes that were asked for")
    return rows, labels


def read_counts(message: ValidatedMessage) -> Tensor:
    """Return the number of samples of each class, (C,)."""
    counts = message.tensor("counts").long()
    if not 0 < int(counts.sum()) <= message.whole("samples"):
        raise Refused("the counts do not add up to the samples")
    return counts


COUNTS = ("seeds", "queried", "weak", "weak_right", "right")  # that a client reports of its labels


def class_scores(embeddings: Tensor, seeds: Tensor, seed_labels: Tensor, neighbours: int, num_classes: int) -> Tensor:
    """Return the share of each class among a sample's nearest seeds by L2 distance, (N, C).

    At most as many neighbours vote as there are seeds of a class on average.
    """
    if not len(embeddings):
        return torch.zeros(0, num_classes)
    # Imported here: scikit-learn takes a second, which only this method's users should wait for.
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

    number = max(1, min(neighbours, len(seeds) // len(seed_labels.unique())))
    with threadpool_limits(limits=1):  # one thread a client, so that sums come out the same everywhere
        search = NearestNeighbors(n_neighbors=number, algorithm="brute").fit(seeds.numpy())
        nearest = torch.from_numpy(search.kneighbors(embeddings.numpy(), return_distance=False))  # (N, k)
    votes = one_hot(seed_labels.long()[nearest], num_classes)  # (N, k, C)
    return votes.to(torch.float32).mean(dim=1)


def _norm(scores: Tensor) -> Tensor:
    """Return the distance to the certain answer."""
    certain = one_hot(scores.argmax(dim=1), scores.shape[1])
    return (scores - certain).square().sum(dim=1).sqrt()


def _entropy(scores: Tensor) -> Tensor:
    each: Tensor = torch.special.entr(scores)
    return each.sum(dim=1)


def _confidence(scores: Tensor) -> Tensor:
    return 1 - scores.amax(dim=1)


def _margin(scores: Tensor) -> Tensor:
    first, second = scores.topk(2, dim=1).values.unbind(dim=1)
    return 1 - (first - second)


UNCERTAINTIES: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": _norm,
    "entropy": _entropy,
    "confidence": _confidence,
    "margin": _margin,
}


def choose_queries(scores: Tensor, number: int, uncertainty: str, class_aware: bool) -> Tensor:
    """Return sorted positions of the `number` most uncertain samples, whose labels are asked for.

    Class-aware: first an equal share of every weak class, then the most uncertain of all. Ties: the lower position
    first.
    """
    ranked = UNCERTAINTIES[uncertainty](scores).argsort(descending=True, stable=True)
    chosen = torch.zeros(len(scores), dtype=torch.bool)
    if class_aware:
        classes, share = scores.argmax(dim=1)[ranked], number // scores.shape[1]
        for one in range(scores.shape[1]):
            chosen[ranked[classes == one][:share]] = True
    chosen[ranked[~chosen[ranked]][: number - int(chosen.sum())]] = True
    return chosen.nonzero().squeeze(1)


def mixed_labels(
    true: Tensor, seeds: Tensor, embeddings: Tensor, pool: Tensor, pool_labels: Tensor, table: Options, num_classes: int
) -> tuple[Tensor, dict[str, int]]:
    """Return one client's labels (n,), true ones of seeds and queries, weak ones of the rest, and the number of each.

    `true` labels stand for an annotator: only those of seeds and queries are used, apart from the counts.
    """
    rest = torch.ones(len(true), dtype=torch.bool).index_fill(0, seeds, False).nonzero().squeeze(1)
    scores = class_scores(embeddings[rest], pool, pool_labels, table.neighbours, num_classes)
    weak = scores.argmax(dim=1)  # of equal scores the lowest class
    queried = rest[choose_queries(scores, round(table.query_share * len(rest)), table.uncertainty, table.class_aware)]
    labels = true.index_copy(0, rest, weak)
    labels[queried] = true[queried]
    return labels, {
        "seeds": len(seeds),
        "queried": len(queried),
        "weak": len(rest),
        "weak_right": int((weak == true[rest]).sum()),
        "right": int((labels == true).sum()),
    }


def facts(counts: Tensor, seed_share: float) -> dict[str, float | int | str]:
    """Return facts about the labels that an accuracy must be read with; `counts` are COUNTS, (clients, 5)."""
    seeds, queried, weak, weak_right, right = counts.sum(dim=0).tolist()
    found: dict[str, float | int | str] = {"oracle_labels": seeds + queried, "seed_labels": seeds}
    if weak:
        found["weak_label_accuracy"] = weak_right / weak
    if seeds + weak:
        found["training_label_accuracy"] = right / (seeds + weak)
        found["labelled_share"] = (seeds + queried) / (seeds + weak)
    asked = seed_share * (seeds + weak)
    if seeds > asked + len(counts) / 2:  # more than rounding for each client explains
        found["note"] = f"seed labels were raised from {asked:.0f} to {seeds}: at least {LEAST_SEEDS} of each class"
    return found
