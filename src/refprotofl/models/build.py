"""Construction of a `SplitModel` with its initial weights from the experiment's [model] table."""

import difflib

import torch
from torch import Tensor, nn

from refprotofl.core import InputError, is_reference, load_object, streams
from refprotofl.experiment import Experiment, Model
from refprotofl.models.input_model import Backbone, InputModel, input_model
from refprotofl.models.kernels import kernel_of, lay_out, lay_out_own
from refprotofl.models.split import SplitModel

NAMES = ("resnet18", "cnn", "mlp", "transformer")


def build_model(experiment: Experiment, extra_outputs: int = 0, client: int = 0) -> SplitModel:
    """Build a client's model with its initial weights: one draw from the seed for all with the same backbone.

    `extra_outputs` are logits in addition to those of the classes, which some methods train.
    """
    input = experiment.known_input
    # torch's layers draw from its global generator; the fork keeps the draw named and other draws unaffected.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.key(experiment.seed, "initial-weights") % 2**63)
        name = experiment.backbones[client]
        inputs = input_model(input)
        backbone, width = _backbone(name, experiment.model, inputs)
        if is_reference(name):
            lay_out_own(backbone, experiment.model.layout, inputs.blank(2))
        else:
            lay_out(backbone, kernel_of(name, experiment.model))
        outputs, precision = input.num_classes + extra_outputs, experiment.train.precision
        return SplitModel(backbone, width, experiment.model.embedding, outputs, inputs, precision)


def _backbone(name: str, table: Model, inputs: InputModel) -> Backbone:
    known = inputs.backbones(table)
    if name in known:
        return known[name]()
    if is_reference(name):
        return _own_backbone(name, inputs)
    kind, names = inputs.input.input_kind, ", ".join(known)
    if name in NAMES:
        raise InputError(f"model.name = {name!r} does not take {kind.plural}. For {kind.plural}: {names}.")
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known for {kind.plural}: {names}."
    raise InputError(f"model.name = {name!r} is neither a known model nor module:function; {hint}")


def _own_backbone(name: str, inputs: InputModel) -> Backbone:
    """Call the user's function, and try the nn.Module that it returns on two samples."""
    where, given = f"model.name = {name!r}", inputs.arguments()
    function = load_object(name, "model.name")
    try:
        backbone = function(*given)
    except Exception as error:
        call = f"{name}({', '.join(map(str, given))})"
        raise InputError(f"{where}: {call} failed with {type(error).__name__}: {error}.") from error
    if not isinstance(backbone, nn.Module):
        raise InputError(f"{where} returned {type(backbone).__name__}; it must return a torch.nn.Module.")
    samples = inputs.blank(2)
    size, plural = tuple(samples.shape), inputs.input.input_kind.plural
    try:
        with torch.no_grad():
            features = backbone.eval()(samples)
    except Exception as error:
        raise InputError(f"{where} fails on {plural} of shape {size}: {type(error).__name__}: {error}.") from error
    if not isinstance(features, Tensor) or features.dim() != 2 or len(features) != 2:
        seen = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"{where} must map {size} to (2, width); it returned {seen}.")
    if not features.is_floating_point():
        raise InputError(f"{where} must return floating-point features; it returned {features.dtype}.")
    return backbone, features.shape[1]
