"""A model in three parts: backbone, feature layer, head. Which of them are shared is the method's choice."""

from collections.abc import Callable, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from refprotofl.core.parts import ALL, Parts

FORWARD_BATCH = 512  # images that pass forward together where nothing is trained


class SplitModel(nn.Module):
    """`backbone` maps images to (B, width); the adapter is everything behind it."""

    def __init__(
        self,
        backbone: nn.Module,
        width: int,
        embedding: int,
        outputs: int,
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature = nn.Linear(width, embedding)
        self.head = nn.Linear(embedding, outputs)
        per_channel = (1, -1, 1, 1)
        self._scale = 1 / (255 * torch.tensor(std, dtype=torch.float32).view(per_channel))
        self._shift = (torch.tensor(mean) / torch.tensor(std)).to(torch.float32).view(per_channel)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `to` goes through: the constants of `prepare` go along, but keep their precision."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._scale, self._shift = self._scale.to(self.device), self._shift.to(self.device)
        return self

    @property
    def device(self) -> torch.device:
        """Where the model computes; what it reads and writes as vectors and states is on the CPU."""
        return self.feature.weight.device

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 (B, channels, H, W) to the normalised float32 that the backbone takes."""
        return images.to(torch.float32).mul_(self._scale).sub_(self._shift)

    def embed(self, inputs: Tensor) -> Tensor:
        """The embedding of Eq. (9), (B, m)."""
        return self.embed_features(self.backbone(inputs))

    def embed_features(self, features: Tensor) -> Tensor:
        """The same from what the backbone made of the inputs, (B, width): the feature layer and its ReLU."""
        return torch.relu(self.feature(features))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (B, C)."""
        logits: Tensor = self.head(self.embed(inputs))
        return logits

    def parameters_of(self, parts: Parts) -> list[nn.Parameter]:
        """Always in the order backbone, feature, head, each as torch lists its own."""
        return [parameter for part in ALL if part in parts for parameter in getattr(self, part).parameters()]

    def sizes(self, parts: Parts) -> list[int]:
        return [parameter.numel() for parameter in self.parameters_of(parts)]

    def read(self, parts: Parts) -> Tensor:
        """A copy of these parts' parameters as one vector."""
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
        """Keeps the head's first outputs only."""
        self.head.weight = nn.Parameter(self.head.weight[:outputs].clone())
        self.head.bias = nn.Parameter(self.head.bias[:outputs].clone())
        self.head.out_features = outputs

    def read_private(self, shared: Parts) -> dict[str, Tensor]:
        """A copy of what stays with a client, by name: parameters of parts not shared, and all buffers."""
        buffers = {name for name, _ in self.named_buffers()}
        return {
            name: value.detach().to("cpu", copy=True)
            for name, value in self.state_dict().items()
            if name in buffers or name.partition(".")[0] not in shared
        }

    @torch.no_grad()
    def write_private(self, state: Mapping[str, object]) -> None:
        """Writes every entry that is named like a weight of this model; other entries are not the model's."""
        for name, value in self.state_dict().items():
            kept = state.get(name)
            if isinstance(kept, Tensor):
                value.copy_(kept)
