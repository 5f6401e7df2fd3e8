"""A model in three parts: private backbone, shared feature layer, shared head."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

BACKBONE = "backbone."


class SplitModel(nn.Module):
    """`backbone` maps images to (B, width); the adapter is everything behind it."""

    def __init__(
        self,
        backbone: nn.Module,
        width: int,
        embedding: int,
        num_classes: int,
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature = nn.Linear(width, embedding)
        self.head = nn.Linear(embedding, num_classes)
        per_channel = (1, -1, 1, 1)
        self._scale = 1 / (255 * torch.tensor(std, dtype=torch.float32).view(per_channel))
        self._shift = (torch.tensor(mean) / torch.tensor(std)).to(torch.float32).view(per_channel)

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 (B, channels, H, W) to the normalised float32 that the backbone takes."""
        return images.to(torch.float32).mul_(self._scale).sub_(self._shift)

    def embed(self, inputs: Tensor) -> Tensor:
        """The embedding of Eq. (9), behind the feature layer's ReLU: (B, m)."""
        return torch.relu(self.feature(self.backbone(inputs)))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (B, C)."""
        logits: Tensor = self.head(self.embed(inputs))
        return logits

    def adapter_parameters(self) -> list[Tensor]:
        return [self.feature.weight, self.feature.bias, self.head.weight, self.head.bias]

    @property
    def adapter_sizes(self) -> list[int]:
        return [parameter.numel() for parameter in self.adapter_parameters()]

    def read_adapter(self) -> Tensor:
        """A copy of the adapter as one vector (d,)."""
        return torch.cat([parameter.detach().flatten() for parameter in self.adapter_parameters()])

    @torch.no_grad()
    def write_adapter(self, vector: Tensor) -> None:
        for parameter, part in zip(self.adapter_parameters(), vector.split(self.adapter_sizes), strict=True):
            parameter.copy_(part.view_as(parameter))

    def read_backbone(self) -> dict[str, Tensor]:
        """A copy of the private part, buffers included, by name."""
        return {BACKBONE + name: value.detach().clone() for name, value in self.backbone.state_dict().items()}

    @torch.no_grad()
    def write_backbone(self, state: Mapping[str, Tensor]) -> None:
        for name, value in self.backbone.state_dict().items():
            value.copy_(state[BACKBONE + name])
