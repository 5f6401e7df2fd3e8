"""Series for a model: normalised by channel, for one-dimensional convolutions over their steps."""

from collections.abc import Callable, Mapping

from torch import Tensor

from refprotofl.experiment import Model
from refprotofl.models.input_model import Backbone, InputModel
from refprotofl.models.networks import mlp, series_cnn
from refprotofl.models.numbers import by_feature, normalised


class SeriesModel(InputModel):
    def constants(self) -> tuple[Tensor, ...]:
        return by_feature(self.input, axes=2)

    def prepare(self, inputs: Tensor, *constants: Tensor) -> Tensor:
        return normalised(inputs, *constants)

    def backbones(self, table: Model) -> Mapping[str, Callable[[], Backbone]]:
        channels, steps = self.input.shape
        return {
            "cnn": lambda: series_cnn(channels, steps, table.norm),
            "mlp": lambda: mlp(self.input.shape, table.norm),
        }
