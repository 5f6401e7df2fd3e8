"""Vectors for a model: normalised by feature, for fully connected layers."""

from collections.abc import Callable, Mapping

from torch import Tensor

from refprotofl.experiment import Model
from refprotofl.models.input_model import Backbone, InputModel
from refprotofl.models.networks import mlp
from refprotofl.models.numbers import by_feature, normalised


class VectorModel(InputModel):
    def constants(self) -> tuple[Tensor, ...]:
        return by_feature(self.input, axes=1)

    def prepare(self, inputs: Tensor, *constants: Tensor) -> Tensor:
        return normalised(inputs, *constants)

    def backbones(self, table: Model) -> Mapping[str, Callable[[], Backbone]]:
        return {"mlp": lambda: mlp(self.input.shape, table.norm)}
