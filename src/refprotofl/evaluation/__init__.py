"""Evaluation protocols, metrics, and the scoring of models."""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.evaluation.metrics import (
        METRICS,
        Confusion,
        confusion,
        most_confused,
        per_class_accuracy,
        sent_by_clients,
    )
    from refprotofl.evaluation.plan import Plan, plan_of
    from refprotofl.evaluation.protocols import PROTOCOLS, check_protocol
    from refprotofl.evaluation.scoring import (
        TestSet,
        adapter_outputs,
        adapter_predictions,
        backbone_features,
        client_metrics,
        common_features,
        count_correct,
        mean_metrics,
        model_metrics,
        personal_scores,
        predictions,
        scored_part,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "METRICS",
    "PROTOCOLS",
    "Confusion",
    "Plan",
    "TestSet",
    "adapter_outputs",
    "adapter_predictions",
    "backbone_features",
    "check_protocol",
    "client_metrics",
    "common_features",
    "confusion",
    "count_correct",
    "mean_metrics",
    "model_metrics",
    "most_confused",
    "per_class_accuracy",
    "personal_scores",
    "plan_of",
    "predictions",
    "scored_part",
    "sent_by_clients",
]
