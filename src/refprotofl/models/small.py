"""Backbones that are quick on a CPU."""

from torch import nn

from refprotofl.models.norms import Norm, norm_layer


def cnn(shape: tuple[int, int, int], norm: Norm) -> tuple[nn.Module, int]:
    """Three strided convolutions 32-64-128, pooled to at most 2 x 2: width 512 from 9 pixels up."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for outputs in (32, 64, 128):
        layers += [nn.Conv2d(channels, outputs, 3, stride=2, padding=1), norm_layer(norm, outputs), nn.ReLU()]
        channels, height, width = outputs, (height + 1) // 2, (width + 1) // 2
    pooled = (min(2, height), min(2, width))
    layers += [nn.AdaptiveAvgPool2d(pooled), nn.Flatten()]
    return nn.Sequential(*layers), channels * pooled[0] * pooled[1]


def mlp(shape: tuple[int, int, int], norm: Norm) -> tuple[nn.Module, int]:
    """Two fully connected layers, 256 and 128 wide."""
    channels, height, width = shape
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = channels * height * width
    for outputs in (256, 128):
        layers += [nn.Linear(inputs, outputs), norm_layer(norm, outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers), inputs
