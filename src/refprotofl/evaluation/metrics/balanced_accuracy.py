"""Balanced accuracy: the mean of the recall over the classes that have samples."""

from refprotofl.evaluation.confusion import per_class_accuracy
from refprotofl.evaluation.metrics.metric import Labelled, Metric


def balanced_accuracy(predictions: Labelled) -> float:
    recalls = [recall for recall in per_class_accuracy(predictions.confusion) if recall is not None]
    return sum(recalls) / len(recalls)


METRIC = Metric("balanced_accuracy", "balanced accuracy", 1, balanced_accuracy)
