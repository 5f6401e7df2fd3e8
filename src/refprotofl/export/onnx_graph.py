"""A model as an ONNX graph from samples to probabilities, checked against torch before it is exported."""

import importlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from refprotofl.core import InputError, RunError, stream
from refprotofl.export.trained_model import TrainedModel
from refprotofl.models import SplitModel, type_of

FILE = "model.onnx"
TOLERANCE = 1e-5  # largest difference of a probability between onnxruntime and torch


class SamplesToProbabilities(nn.Module):
    """Normalisation, model and softmax in one module."""

    def __init__(self, model: SplitModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Map samples (N, …) to logits and probabilities, (N, C) each."""
        logits = self.model(self.model.prepare(inputs))
        return logits, torch.softmax(logits, dim=1)


def require_extra() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(package)
        except ImportError:
            raise InputError(
                f"Exporting to ONNX needs the package {package}: install it with pip install 'refprotofl[onnx]'."
            ) from None


def to_onnx(trained: TrainedModel) -> bytes:
    """Return the file's contents; raise RunError if onnxruntime computes something else."""
    require_extra()
    graph = SamplesToProbabilities(trained.model).eval()
    try:
        data = _translate(graph, trained)
    except Exception as problem:  # the exporter raises many kinds, for operators that ONNX lacks among others
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        raise RunError(f"model.name = {trained.backbone!r} cannot be translated to ONNX: {reason}") from problem
    check_agreement(graph, data, trained)
    return data


def _translate(graph: SamplesToProbabilities, trained: TrainedModel) -> bytes:
    seen = trained.experiment.known_input
    example = torch.zeros(2, *seen.shape, dtype=type_of(seen))
    with _quietly(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            (example,),
            dynamo=True,
            input_names=[seen.field],
            output_names=["logits", "probabilities"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    _remove_traces(proto)
    proto.metadata_props.add(key="class_names", value=json.dumps(trained.class_names, ensure_ascii=False))
    if seen.vocabulary:
        proto.metadata_props.add(key="vocabulary", value=json.dumps(seen.vocabulary, ensure_ascii=False))
    if seen.feature_names:
        proto.metadata_props.add(key="feature_names", value=json.dumps(seen.feature_names, ensure_ascii=False))
    proto.metadata_props.add(key="experiment_hash", value=trained.experiment.hash)
    data: bytes = proto.SerializeToString()
    return data


def _remove_traces(proto: Any) -> None:
    """Remove the exporter's notes: they hold source lines and paths of this machine."""
    graph = proto.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


def check_agreement(graph: nn.Module, data: bytes, trained: TrainedModel) -> None:
    """Compare both models on random samples, one and several: the batch size must be free."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    generator, seen = stream(trained.experiment.seed, "onnx-check"), trained.experiment.known_input
    for count in (1, 16):
        inputs = seen.input_kind.example(seen.shape, count, generator, seen.vocabulary)
        with torch.no_grad():
            expected = graph(torch.from_numpy(inputs))[1].numpy()  # (N, C)
        (found,) = session.run(["probabilities"], {seen.field: inputs})
        difference = float(np.abs(found - expected).max())
        if not difference <= TOLERANCE:  # in this form NaN is refused too
            raise RunError(
                f"The ONNX model does not agree with the trained one: a probability differs by {difference:.2g}, "
                f"more than {TOLERANCE:g}. Nothing was exported."
            )


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the exporter's warnings about its own internals, and its log."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
