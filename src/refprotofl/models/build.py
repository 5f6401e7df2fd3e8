"""Construction of a `SplitModel` with its initial weights from the experiment's [model] table."""

import difflib

import torch
from torch import Tensor, nn

from refprotofl.core import InputError, is_reference, load_object, streams
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Model
from refprotofl.models.kernels import kernel_of, lay_out
from refprotofl.models.networks import WIDTH, cnn, mlp, resnet18
from refprotofl.models.split import SplitModel

NAMES = ("resnet18", "cnn", "mlp")


def build_model(experiment: Experiment, extra_outputs: int = 0, client: int = 0) -> SplitModel:
    """Build a client's model with its initial weights: one draw from the seed for all with the same backbone.

    `extra_outputs` are logits in addition to those of the classes, which some methods train.
    """
    input = experiment.known_input
    # torch's layers draw from its global generator; the fork keeps the draw named and other draws unaffected.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.key(experiment.seed, "initial-weights") % 2**63)
        name = experiment.backbones[client]
        backbone, width = _backbone(name, experiment.model, input.shape)
        lay_out(backbone, kernel_of(name, experiment.model))
        outputs = input.num_classes + extra_outputs
        return SplitModel(backbone, width, experiment.model.embedding, outputs, input.mean, input.std)


def _backbone(name: str, table: Model, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    if name == "resnet18":
        return resnet18(shape[0], table.stem, table.norm, kernel_of(name, table).products), WIDTH
    if name == "cnn":
        return cnn(shape, table.norm)
    if name == "mlp":
        return mlp(shape, table.norm)
    if is_reference(name):
        return _own_backbone(name, shape)
    close = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(NAMES)}."
    raise InputError(f"model.name = {name!r} is neither a known model nor module:function; {hint}")


def _own_backbone(name: str, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Call the user's `function(shape) -> nn.Module`, and try the result on two images."""
    where = f"model.name = {name!r}"
    function = load_object(name, "model.name")
    try:
        backbone = function(shape)
    except Exception as error:
        raise InputError(f"{where}: {name}({shape}) failed with {type(error).__name__}: {error}.") from error
    if not isinstance(backbone, nn.Module):
        raise InputError(f"{where} returned {type(backbone).__name__}; it must return a torch.nn.Module.")
    images = torch.zeros(2, *shape)
    try:
        with torch.no_grad():
            features = backbone.eval()(images)
    except Exception as error:
        size = tuple(images.shape)
        raise InputError(f"{where} fails on images of shape {size}: {type(error).__name__}: {error}.") from error
    if not isinstance(features, Tensor) or features.dim() != 2 or len(features) != 2:
        seen = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"{where} must map (2, {shape[0]}, {shape[1]}, {shape[2]}) to (2, width); it returned {seen}.")
    if not features.is_floating_point():
        raise InputError(f"{where} must return floating-point features; it returned {features.dtype}.")
    return backbone, features.shape[1]
