"""Convolutions on maps so small that most of a kernel sees padding, as products of matrices."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class SmallMapConv2d(nn.Conv2d):
    """A convolution with an odd kernel, padded by half of it, that multiplies no zeros where the map is small.

    Where every output pixel sees every input pixel (a 3x3 kernel on 1x1 and 2x2 maps) it is one dense matrix made of
    the kernel's taps: the same sums without the padding's zeros. Larger maps take torch's own way. Which way is a
    function of shapes alone.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, *, bias: bool) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=kernel // 2, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, inputs, H, W) to (B, outputs, ceil(H / stride), ceil(W / stride))."""
        reach, stride, largest = self.kernel_size[0] // 2, self.stride[0], max(inputs.shape[2:])
        if largest <= reach + 1:
            return self._dense(inputs)
        if reach == 0 and largest <= 2 * stride:
            return self._pixelwise(inputs[:, :, ::stride, ::stride])
        return super().forward(inputs)

    def _dense(self, inputs: Tensor) -> Tensor:
        rows, columns = self._taps(inputs.shape[2]), self._taps(inputs.shape[3])  # (Ho, H), (Wo, W)
        taps = self.weight.permute(2, 3, 0, 1)  # a view (k, k, outputs, inputs): what is gathered are whole rows
        blocks = taps[rows[:, None, :, None], columns[None, :, None, :]]  # (Ho, Wo, H, W, outputs, inputs)
        height, width = blocks.shape[:2]
        matrix = blocks.permute(0, 1, 4, 2, 3, 5).flatten(3).flatten(0, 2)  # (Ho * Wo * outputs, H * W * inputs)
        bias = None if self.bias is None else self.bias.repeat(height * width)
        pixels = functional.linear(inputs.permute(0, 2, 3, 1).flatten(1), matrix, bias)
        return pixels.view(-1, height, width, self.out_channels).permute(0, 3, 1, 2)

    def _taps(self, size: int) -> Tensor:
        """Which tap an output pixel puts on an input pixel, along one axis: (output size, size)."""
        pixels = torch.arange(size, device=self.weight.device)
        return pixels - pixels[:: self.stride[0], None] + self.kernel_size[0] // 2

    def _pixelwise(self, inputs: Tensor) -> Tensor:
        """A 1x1 kernel at stride 1: one matrix for every pixel."""
        return functional.linear(inputs.permute(0, 2, 3, 1), self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)
