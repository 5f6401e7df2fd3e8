"""Backbones: small networks for a CPU, and ResNet-18 up to the global average pooling (He et al. 2016).

Normalisation layers follow `model.norm`. Convolutions on maps so small that most of a kernel sees padding can be
computed as products of matrices.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Norm = Literal["group", "batch-local", "none"]


class LocalBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics never leave the client; a single value has no statistics."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and inputs.numel() == inputs.shape[1]:
            statistics = (self.running_mean, self.running_var)
            return functional.batch_norm(inputs, *statistics, self.weight, self.bias, eps=self.eps)
        return super().forward(inputs)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept (B, channels) of a fully connected layer and (B, channels, steps) of series too."""


def norm_layer(norm: Norm, channels: int) -> nn.Module:
    if norm == "group":
        groups = max(count for count in range(1, 33) if channels % count == 0)
        return nn.GroupNorm(groups, channels)
    if norm == "batch-local":
        return LocalBatchNorm(channels)
    return nn.Identity()


def cnn(shape: tuple[int, int, int], norm: Norm) -> tuple[nn.Module, int]:
    """Build three strided convolutions 32-64-128, pooled to at most 2 x 2: width 512 from 9 pixels up."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for outputs in (32, 64, 128):
        layers += [nn.Conv2d(channels, outputs, 3, stride=2, padding=1), norm_layer(norm, outputs), nn.ReLU()]
        channels, height, width = outputs, (height + 1) // 2, (width + 1) // 2
    pooled = (min(2, height), min(2, width))
    layers += [nn.AdaptiveAvgPool2d(pooled), nn.Flatten()]
    return nn.Sequential(*layers), channels * pooled[0] * pooled[1]


def mlp(shape: tuple[int, ...], norm: Norm) -> tuple[nn.Module, int]:
    """Build two fully connected layers, 256 and 128 wide."""
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(shape)
    for outputs in (256, 128):
        layers += [nn.Linear(inputs, outputs), norm_layer(norm, outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers), inputs


def series_cnn(channels: int, steps: int, norm: Norm) -> tuple[nn.Module, int]:
    """Build three strided convolutions 32-64-128 over the steps, pooled to at most 4: width 512 from 25 steps up."""
    layers: list[nn.Module] = []
    for outputs in (32, 64, 128):
        layers += [nn.Conv1d(channels, outputs, 5, stride=2, padding=2), norm_layer(norm, outputs), nn.ReLU()]
        channels, steps = outputs, (steps + 1) // 2
    pooled = min(4, steps)
    layers += [nn.AdaptiveAvgPool1d(pooled), nn.Flatten()]
    return nn.Sequential(*layers), channels * pooled


class SmallMapConv2d(nn.Conv2d):
    """A convolution with an odd kernel, padded by half of it, that multiplies no zeros where the map is small.

    Where every output pixel sees every input pixel (a 3x3 kernel on 1x1 and 2x2 maps) it is one dense matrix made of
    the kernel's taps: the same sums without the padding's zeros. Larger maps use torch's own convolution. The choice
    depends on shapes alone.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, *, bias: bool) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=kernel // 2, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (B, inputs, H, W) to (B, outputs, ceil(H / stride), ceil(W / stride))."""
        reach, stride, largest = self.kernel_size[0] // 2, self.stride[0], max(inputs.shape[2:])
        if largest <= reach + 1:
            return self._dense(inputs)
        if reach == 0 and largest <= 2 * stride:
            return self._pixelwise(inputs[:, :, ::stride, ::stride])
        return super().forward(inputs)

    def _dense(self, inputs: Tensor) -> Tensor:
        rows, columns = self._taps(inputs.shape[2]), self._taps(inputs.shape[3])  # (Ho, H), (Wo, W)
        taps = self.weight.permute(2, 3, 0, 1)  # a view (k, k, outputs, inputs), of which whole rows are gathered
        blocks = taps[rows[:, None, :, None], columns[None, :, None, :]]  # (Ho, Wo, H, W, outputs, inputs)
        height, width = blocks.shape[:2]
        matrix = blocks.permute(0, 1, 4, 2, 3, 5).flatten(3).flatten(0, 2)  # (Ho * Wo * outputs, H * W * inputs)
        bias = None if self.bias is None else self.bias.repeat(height * width)
        pixels = functional.linear(inputs.permute(0, 2, 3, 1).flatten(1), matrix, bias)
        return pixels.view(-1, height, width, self.out_channels).permute(0, 3, 1, 2)

    def _taps(self, size: int) -> Tensor:
        """Return the tap that connects an output pixel with an input pixel, along one axis: (output size, size)."""
        pixels = torch.arange(size, device=self.weight.device)
        return pixels - pixels[:: self.stride[0], None] + self.kernel_size[0] // 2

    def _pixelwise(self, inputs: Tensor) -> Tensor:
        """Apply a 1x1 kernel at stride 1: one matrix for every pixel."""
        return functional.linear(inputs.permute(0, 2, 3, 1), self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


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
    """Build (B, channels, H, W) -> (B, 512); with `products`, convolutions on the smallest maps are matrix products."""
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
