"""Macro-F1: the mean of F1 = 2 TP / (2 TP + FP + FN) over the classes that have samples or are predicted."""

from refprotofl.evaluation.metrics.metric import Labelled, Metric


def macro_f1(predictions: Labelled) -> float:
    counts = predictions.confusion
    occurrences = counts.sum(axis=0) + counts.sum(axis=1)  # (C,): 2 TP + FP + FN
    seen = occurrences > 0
    return float((2 * counts.diagonal()[seen] / occurrences[seen]).mean())


METRIC = Metric("macro_f1", "macro-F1", 2, macro_f1)
