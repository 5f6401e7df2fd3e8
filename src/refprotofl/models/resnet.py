"""ResNet-18 up to the global average pooling (He et al. 2016), for small images too."""

from typing import Literal

import torch
from torch import Tensor, nn

from refprotofl.models.norms import Norm, norm_layer
from refprotofl.models.small_maps import SmallMapConv2d

WIDTH = 512


def _convolution(inputs: int, outputs: int, kernel: int, stride: int, norm: Norm, products: bool) -> nn.Conv2d:
    bias = norm == "none"
    layer = (
        SmallMapConv2d(inputs, outputs, kernel, stride, bias=bias)
        if products
        else nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=bias)
    )
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, products: bool) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, 3, stride, norm, products)
        self.norm1 = norm_layer(norm, outputs)
        self.conv2 = _convolution(outputs, outputs, 3, 1, norm, products)
        self.norm2 = norm_layer(norm, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            projection = _convolution(inputs, outputs, 1, stride, norm, products)
            self.shortcut = nn.Sequential(projection, norm_layer(norm, outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.norm1(self.conv1(inputs)))
        hidden = self.norm2(self.conv2(hidden))
        return torch.relu(hidden + self.shortcut(inputs))


def resnet18(channels: int, stem: Literal["imagenet", "cifar"], norm: Norm, products: bool = False) -> nn.Module:
    """(B, channels, H, W) to (B, 512); with `products`, convolutions on the smallest maps are matrix products."""
    kernel, stride = (7, 2) if stem == "imagenet" else (3, 1)
    first = [_convolution(channels, 64, kernel, stride, norm, products), norm_layer(norm, 64), nn.ReLU()]
    if stem == "imagenet":
        first.append(nn.MaxPool2d(3, 2, 1))
    stages: list[nn.Module] = []
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks = BasicBlock(inputs, outputs, stride, norm, products), BasicBlock(outputs, outputs, 1, norm, products)
        stages += blocks
        inputs = outputs
    return nn.Sequential(*first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten())
