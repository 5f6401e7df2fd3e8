"""What a finished run is good for: predictions, and models to take elsewhere."""

from refprotofl.export.model_folder import class_names, export, load_exported
from refprotofl.export.predictions import Predictions, predict, predict_each, write_predictions
from refprotofl.export.trained_model import Trained, find_clients, load_trained

__all__ = [
    "Predictions",
    "Trained",
    "class_names",
    "export",
    "find_clients",
    "load_exported",
    "load_trained",
    "predict",
    "predict_each",
    "write_predictions",
]
