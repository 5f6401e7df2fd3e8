"""Loss: the mean cross-entropy of the head's logits."""

from refprotofl.evaluation.metrics.metric import Labelled, Metric

LARGEST_LOSS = 1e9  # the loss of a model that has diverged means nothing


def cross_entropy(predictions: Labelled) -> float | None:
    """Return the mean over samples, in double precision; NaN where logits are not finite."""
    import torch  # what computes logits has it; a command that only names metrics need not wait for it

    if predictions.labels is None or predictions.logits is None:
        return None
    logits, labels = torch.as_tensor(predictions.logits).double(), torch.as_tensor(predictions.labels)
    return float(torch.nn.functional.cross_entropy(logits, labels))


METRIC = Metric("loss", "cross-entropy", 4, cross_entropy, needs_logits=True, high=LARGEST_LOSS, higher_is_better=False)
