"""A model in three parts: backbone, feature layer, head. The method decides which of them are shared."""

from collections.abc import Callable, Iterator, Mapping
from typing import Self

import torch
from torch import Tensor, nn

from refprotofl.core import ALL, Parts
from refprotofl.models.input_model import InputModel
from refprotofl.models.precision import Precision, apply_in

NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


class SplitModel(nn.Module):
    """A model whose `backbone` maps samples to (B, width); the adapter is everything after it."""

    def __init__(
        self,
        backbone: nn.Module,
        width: int,
        embedding: int,
        outputs: int,
        inputs: InputModel,
        precision: Precision = "float32",
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature = nn.Linear(width, embedding)
        self.head = nn.Linear(embedding, outputs)
        self.forward_batch = inputs.forward_batch
        self._precision: Precision = precision
        self._inputs, self._constants = inputs, inputs.constants()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the constants of `prepare` with the model, but keep their precision: `to` calls this method."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._constants = tuple(one.to(self.device) for one in self._constants)
        return self

    @property
    def device(self) -> torch.device:
        """Return the device of the model; its vectors and states are read and written on the CPU."""
        return self.feature.weight.device

    def prepare(self, inputs: Tensor) -> Tensor:
        """Map samples (B, …) to the input of the backbone."""
        return self._inputs.prepare(inputs, *self._constants)

    def blank(self, count: int) -> Tensor:
        """Return an input of the backbone without content."""
        return self._inputs.blank(count)

    def embed(self, inputs: Tensor) -> Tensor:
        """Return the embedding of Eq. (9), (B, m)."""
        return self.embed_features(self.features(inputs))

    def features(self, inputs: Tensor) -> Tensor:
        """Return the backbone's features (B, width), in float32 whatever the precision of its arithmetic."""
        return apply_in(self._precision, self.backbone, inputs)

    def embed_features(self, features: Tensor) -> Tensor:
        """Apply the feature layer and its ReLU to the backbone's features (B, width)."""
        return torch.relu(self.feature(features))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits, (B, C)."""
        logits: Tensor = self.head(self.embed(inputs))
        return logits

    def parameters_of(self, parts: Parts) -> list[nn.Parameter]:
        """Return parameters in the order backbone, feature, head, each as torch lists its own."""
        return [parameter for _, parameter in self._named(parts)]

    def _named(self, parts: Parts) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield these parts' parameters with their names in the whole model."""
        norms = {id(one) for module in self.modules() if isinstance(module, NORMS) for one in module.parameters()}
        for part in ALL:
            for name, parameter in getattr(self, part).named_parameters():
                if part in parts or (part == "backbone" and "layers" in parts and id(parameter) not in norms):
                    yield f"{part}.{name}", parameter

    def sizes(self, parts: Parts) -> list[int]:
        return [parameter.numel() for parameter in self.parameters_of(parts)]

    def read(self, parts: Parts) -> Tensor:
        """Return a copy of these parts' parameters as one vector."""
        values = [value.detach().flatten() for value in self.parameters_of(parts)]
        return torch.cat([torch.empty(0, device=self.device), *values]).cpu()

    def shaped(self, parts: Parts, vector: Tensor) -> list[Tensor]:
        """Return the vector (P,) as tensors like these parts' parameters, on the model's device."""
        pieces = vector.to(self.device).split(self.sizes(parts))
        return [values.view_as(like) for values, like in zip(pieces, self.parameters_of(parts), strict=True)]

    @torch.no_grad()
    def write(self, parts: Parts, vector: Tensor) -> None:
        for parameter, values in zip(self.parameters_of(parts), self.shaped(parts, vector), strict=True):
            parameter.copy_(values)

    @torch.no_grad()
    def cut_head(self, outputs: int) -> None:
        """Keep only the head's first outputs."""
        self.head.weight = nn.Parameter(self.head.weight[:outputs].clone())
        self.head.bias = nn.Parameter(self.head.bias[:outputs].clone())
        self.head.out_features = outputs

    def read_private(self, shared: Parts) -> dict[str, Tensor]:
        """Return a copy of a client's private entries by name: parameters of parts not shared, and all buffers."""
        given = {name for name, _ in self._named(shared)}
        return {
            name: value.detach().to("cpu", copy=True) for name, value in self.state_dict().items() if name not in given
        }

    @torch.no_grad()
    def write_private(self, state: Mapping[str, object]) -> None:
        """Write every entry that has the name of a weight of this model; other entries are not the model's."""
        for name, value in self.state_dict().items():
            kept = state.get(name)
            if isinstance(kept, Tensor):
                value.copy_(kept)
