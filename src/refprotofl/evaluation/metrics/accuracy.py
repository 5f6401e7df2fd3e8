"""Accuracy: the share of samples that are classified correctly."""

from refprotofl.evaluation.metrics.metric import Labelled, Metric


def accuracy(predictions: Labelled) -> float:
    return int(predictions.confusion.trace()) / predictions.num_samples


METRIC = Metric("accuracy", "accuracy", 0, accuracy)
