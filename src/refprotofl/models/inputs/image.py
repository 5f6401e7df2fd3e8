"""Images for a model: normalised by channel, for two-dimensional convolutions."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from refprotofl.experiment import Input, Model
from refprotofl.models.input_model import Backbone, InputModel
from refprotofl.models.kernels import kernel_of
from refprotofl.models.networks import WIDTH, cnn, mlp, resnet18


class ImageModel(InputModel):
    def constants(self) -> tuple[Tensor, ...]:
        mean, std = torch.tensor(self.input.mean), torch.tensor(self.input.std, dtype=torch.float32)
        per_channel = (1, -1, 1, 1)
        scale = 1 / (255 * std.view(per_channel))
        return scale, (mean / torch.tensor(self.input.std)).to(torch.float32).view(per_channel)

    def prepare(self, inputs: Tensor, *constants: Tensor) -> Tensor:
        """Map uint8 (B, channels, H, W) to float32 of the same shape."""
        scale, shift = constants
        return inputs.to(torch.float32).mul_(scale).sub_(shift)

    def backbones(self, table: Model) -> Mapping[str, Callable[[], Backbone]]:
        channels, height, width = self.input.shape
        shape = channels, height, width

        def deep() -> Backbone:
            return resnet18(channels, table.stem, table.norm, kernel_of("resnet18", table).products), WIDTH

        return {"resnet18": deep, "cnn": lambda: cnn(shape, table.norm), "mlp": lambda: mlp(shape, table.norm)}


def pixels(mean: Sequence[float], std: Sequence[float], height: int = 1, width: int = 1) -> ImageModel:
    """Return the normalisation of images with these statistics by channel, for a model that is built by hand."""
    return ImageModel(Input(class_names=(), shape=(len(mean), height, width), mean=tuple(mean), std=tuple(std)))
