"""AUROC of two classes: the probability that a sample of class 1 has a higher score than one of class 0."""

import numpy as np

from refprotofl.evaluation.metrics.metric import Labelled, Metric


def auroc(predictions: Labelled) -> float | None:
    """Return the Mann-Whitney statistic U / (positives * negatives); None where a class has no samples."""
    labels, logits = predictions.labels, predictions.logits
    if labels is None or logits is None or not np.isfinite(logits).all():
        return None
    positive = labels == 1
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return None
    scores = logits[:, 1].astype(np.float64) - logits[:, 0]  # increases with the probability of class 1
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (sizes.cumsum() - (sizes - 1) / 2)[group]  # from 1; equal scores share their mean rank
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


METRIC = Metric("auroc", "AUROC", 3, auroc, needs_logits=True, num_classes=2)
