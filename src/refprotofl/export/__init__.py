"""Results of a finished run for use elsewhere: predictions and exported models."""

from refprotofl.export.model_folder import class_names, export, load_exported, load_inputs
from refprotofl.export.predictions import Predictions, predict, predict_each, write_predictions
from refprotofl.export.trained_model import TrainedModel, find_clients, load_trained

__all__ = [
    "Predictions",
    "TrainedModel",
    "class_names",
    "export",
    "find_clients",
    "load_exported",
    "load_inputs",
    "load_trained",
    "predict",
    "predict_each",
    "write_predictions",
]
