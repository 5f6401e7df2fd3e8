"""The metrics that predictions are scored by, by name: each module of this package declares one as `METRIC`."""

import importlib
import pkgutil
from collections.abc import Mapping

from refprotofl.evaluation.metrics.metric import Labelled, Metric

__all__ = ["METRICS", "Labelled", "Metric", "compute", "compute_all", "sent_by_clients"]


def _discover() -> dict[str, Metric]:
    """Return every declared metric, in the order in which they are shown and recorded."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    found = [module.METRIC for module in modules if hasattr(module, "METRIC")]
    return {metric.name: metric for metric in sorted(found, key=lambda metric: (metric.order, metric.name))}


METRICS: Mapping[str, Metric] = _discover()


def compute(name: str, predictions: Labelled) -> float | None:
    """Return one metric; None where it is undefined, as without samples."""
    metric = METRICS[name]
    applies = predictions.num_samples and metric.applies(predictions.num_classes)
    value = metric.compute(predictions) if applies else None
    return value if value is not None and metric.low <= value <= metric.high else None


def compute_all(predictions: Labelled) -> dict[str, float]:
    """Return every metric that these predictions define."""
    found = {name: compute(name, predictions) for name in METRICS}
    return {name: value for name, value in found.items() if value is not None}


def sent_by_clients(num_classes: int) -> list[Metric]:
    """Return the metrics that the server cannot derive from a confusion matrix, so that clients send their values."""
    return [metric for metric in METRICS.values() if metric.needs_logits and metric.applies(num_classes)]
