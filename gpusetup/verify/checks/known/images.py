"""Convolutions, pooling and padding of images of small whole numbers, pixel by pixel in Python.

Every sum stays below 256, so it is exact in every format.
"""

from __future__ import annotations

import functools
from itertools import product
from math import prod
from typing import Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part, holds
from ...values import Outcome, kind
from .answers import Limit, ask_all, dice, exactly, flat_list, formats_on, near, roundoff, tensor_of

Shape = Tuple[int, int, int, int]


class Layer(NamedTuple):
    """The sizes and options of a convolution."""

    images: int
    channels: int
    filters: int
    height: int
    width: int
    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    def output_length(self, length: int) -> int:
        """How many places the kernel has along an axis of the image."""
        reach = self.dilation * (self.kernel - 1) + 1
        return (length + 2 * self.padding - reach) // self.stride + 1

    @property
    def input_shape(self) -> Shape:
        return (self.images, self.channels, self.height, self.width)

    @property
    def weight_shape(self) -> Shape:
        return (self.filters, self.channels // self.groups, self.kernel, self.kernel)

    @property
    def output_shape(self) -> Shape:
        height, width = self.output_length(self.height), self.output_length(self.width)
        return (self.images, self.filters, height, width)


LAYERS = (
    Layer(1, 1, 1, 5, 5, kernel=1),
    Layer(2, 3, 8, 9, 7, kernel=3, padding=1),
    Layer(1, 17, 5, 8, 6, kernel=1, stride=2),
    Layer(5, 4, 3, 10, 9, kernel=3, stride=2, padding=1),
    Layer(2, 2, 2, 17, 16, kernel=5, padding=2),
    Layer(3, 6, 6, 9, 9, kernel=3, padding=1, groups=6),
    Layer(1, 4, 32, 7, 8, kernel=3, dilation=2, padding=2, groups=2),
    Layer(2, 1, 3, 33, 5, kernel=2, stride=2),
)


class Contribution(NamedTuple):
    """One product of a convolution, by the flat places of its three numbers."""

    output: int
    input: int
    weight: int


def images(device: str) -> Outcome:
    """Convolutions, their gradients, pools, pads and enlarged images are right at each pixel."""
    questions = (convolutions, transposed_convolutions, pools, padded_and_enlarged)
    return ask_all(device, questions, "pixels worked out in Python")


def numbers_of(shape: Shape, salt: str) -> List[int]:
    """Small whole numbers, the last one never zero."""
    chance = dice(f"image {shape} {salt}")
    numbers = [chance.choice((-1, 0, 0, 1, 2)) for _ in range(count_of(shape))]
    numbers[-1] = 2
    return numbers


def count_of(shape: Shape) -> int:
    return prod(shape)


def place_in(shape: Shape, image: int, channel: int, row: int, column: int) -> int:
    """The flat place of an element."""
    plane = image * shape[1] + channel
    line = plane * shape[2] + row
    return line * shape[3] + column


def contributions_of(layer: Layer) -> Iterator[Contribution]:
    """Every product of a pixel and a weight, with the output that it is part of."""
    filters_each = layer.filters // layer.groups
    channels_each = layer.channels // layer.groups
    _, _, height, width = layer.output_shape
    outputs = product(range(layer.images), range(layer.filters), range(height), range(width))
    for output, (image, kernel, row, column) in enumerate(outputs):
        first_channel = kernel // filters_each * channels_each
        taps = product(range(channels_each), range(layer.kernel), range(layer.kernel))
        for channel, down, across in taps:
            y = row * layer.stride - layer.padding + down * layer.dilation
            x = column * layer.stride - layer.padding + across * layer.dilation
            # Outside of the image there are zeros.
            if 0 <= y < layer.height and 0 <= x < layer.width:
                source = place_in(layer.input_shape, image, first_channel + channel, y, x)
                weight = place_in(layer.weight_shape, kernel, channel, down, across)
                yield Contribution(output, source, weight)


class Convolved(NamedTuple):
    """The numbers of a layer, what it makes of them, and the gradients of that along `upstream`."""

    input: List[int]
    weight: List[int]
    bias: List[int]
    upstream: List[int]
    output: List[int]
    input_gradient: List[int]
    weight_gradient: List[int]
    bias_gradient: List[int]


@functools.lru_cache(maxsize=None)
def convolved(layer: Layer) -> Convolved:
    """Worked out once for all formats."""
    inputs, weight = numbers_of(layer.input_shape, "in"), numbers_of(layer.weight_shape, "weight")
    upstream = numbers_of(layer.output_shape, "upstream")
    bias = [kernel % 5 - 2 for kernel in range(layer.filters)]
    pixels = layer.output_shape[2] * layer.output_shape[3]
    output = [bias[position // pixels % layer.filters] for position in range(len(upstream))]
    input_gradient, weight_gradient = [0] * len(inputs), [0] * len(weight)
    for item in contributions_of(layer):
        output[item.output] += inputs[item.input] * weight[item.weight]
        input_gradient[item.input] += upstream[item.output] * weight[item.weight]
        weight_gradient[item.weight] += upstream[item.output] * inputs[item.input]
    bias_gradient = [0] * layer.filters
    for position, number in enumerate(upstream):
        bias_gradient[position // pixels % layer.filters] += number
    gradients = (input_gradient, weight_gradient, bias_gradient)
    return Convolved(inputs, weight, bias, upstream, output, *gradients)


def limit_for(name: str, device: str) -> Limit:
    """How far a whole number may be off.

    A GPU's library may compute by transforms whose fractions are rounded (Winograd). They are off
    by far less than an eighth; a lost pixel or weight is off by 1 at least.
    """
    absolute = 1 / 8 if kind(device) == "cuda" else 64 * roundoff(name)
    return Limit(2 * roundoff(name), absolute)


def convolutions(device: str) -> Iterator[Part]:
    """Catches lost filters, taps, images or borders, in both layouts and in the backward pass."""
    for layer in LAYERS:
        exact = convolved(layer)
        options = (layer.stride, layer.padding, layer.dilation, layer.groups)
        for name in formats_on(device):
            limit = limit_for(name, device)
            for number, layout in enumerate((torch.contiguous_format, torch.channels_last)):
                inputs = tensor_of(exact.input, name, device, *layer.input_shape)
                weight = tensor_of(exact.weight, name, device, *layer.weight_shape)
                leaves = [inputs.contiguous(memory_format=layout).requires_grad_()]
                leaves.append(weight.contiguous(memory_format=layout).requires_grad_())
                leaves.append(tensor_of(exact.bias, name, device).requires_grad_())
                computed = torch.nn.functional.conv2d(*leaves, *options)
                upstream = tensor_of(exact.upstream, name, device, *layer.output_shape)
                gradients = torch.autograd.grad(computed, leaves, upstream)
                label = f"{tuple(layer)} of {name}, layout {number}"
                yield near(f"conv2d {label}", computed, exact.output, limit)
                yield near(f"gradient of images {label}", gradients[0], exact.input_gradient, limit)
                yield near(
                    f"gradient of filters {label}", gradients[1], exact.weight_gradient, limit
                )
                yield near(f"gradient of biases {label}", gradients[2], exact.bias_gradient, limit)


def transposed_convolutions(device: str) -> Iterator[Part]:
    """Catches a transposed convolution that is not the gradient of the plain one."""
    for layer in LAYERS:
        if layer.stride > 1 and layer.output_length(layer.height) * layer.stride > layer.height:
            continue  # its size would be another one
        exact = convolved(layer)
        for name in formats_on(device):
            upstream = tensor_of(exact.upstream, name, device, *layer.output_shape)
            weight = tensor_of(exact.weight, name, device, *layer.weight_shape)
            computed = torch.nn.functional.conv_transpose2d(
                upstream,
                weight,
                stride=layer.stride,
                padding=layer.padding,
                dilation=layer.dilation,
                groups=layer.groups,
            )
            if tuple(computed.shape) == layer.input_shape:
                label = f"conv_transpose2d {tuple(layer)} of {name}"
                yield near(label, computed, exact.input_gradient, limit_for(name, device))


# --- pools ----------------------------------------------------------------------------------------


POOLED = ((1, 1, 5, 5), (2, 3, 9, 7), (1, 17, 8, 6), (3, 2, 17, 65))
"""Images, channels, rows and columns."""


def windows_of(shape: Shape, size: int, stride: int, padding: int) -> List[List[int]]:
    """For each place of a window, the flat places of the pixels in it."""
    images_, channels, height, width = shape
    tops = range(-padding, height + padding - size + 1, stride)
    lefts = range(-padding, width + padding - size + 1, stride)
    windows: List[List[int]] = []
    for image, channel, top, first_column in product(range(images_), range(channels), tops, lefts):
        rows = [y for y in range(top, top + size) if 0 <= y < height]
        columns = [x for x in range(first_column, first_column + size) if 0 <= x < width]
        windows.append([place_in(shape, image, channel, y, x) for y, x in product(rows, columns)])
    return windows


def pools(device: str) -> Iterator[Part]:
    """Catches pools that lose a border, count the padding, or name another pixel's place."""
    functional = torch.nn.functional
    for shape in POOLED:
        numbers = numbers_of(shape, "pool")
        pixels = shape[2] * shape[3]
        windows = windows_of(shape, 3, 2, 1)
        largest = [max(numbers[position] for position in window) for window in windows]
        sums = [sum(numbers[position] for position in window) for window in windows]
        seen_means = [total / len(window) for total, window in zip(sums, windows)]
        for name in formats_on(device):
            plain = tensor_of(numbers, name, device, *shape)
            limit = Limit(4 * roundoff(name), 4 * roundoff(name))
            last = plain.contiguous(memory_format=torch.channels_last)
            for layout, inputs in (("plain", plain), ("channels last", last)):
                label = f"of {shape} {name}, {layout}"
                computed, positions = functional.max_pool2d(inputs, 3, 2, 1, return_indices=True)
                yield exactly(f"max_pool2d {label}", computed, largest)
                starts = [windows[n][0] // pixels * pixels for n in range(len(windows))]
                named_positions = [
                    start + position for start, position in zip(starts, flat_list(positions))
                ]
                inside = all(
                    position in window for position, window in zip(named_positions, windows)
                )
                yield holds(f"places of max_pool2d {label}", inside, "a pixel of another window")
                if inside:
                    values = [numbers[position] for position in named_positions]
                    yield exactly(f"pixels at the places of max_pool2d {label}", computed, values)
                computed = functional.avg_pool2d(inputs, 3, 2, 1, count_include_pad=False)
                yield near(f"avg_pool2d {label}", computed, seen_means, limit)
                computed = functional.avg_pool2d(inputs, 3, 2, 1)
                means = [total / 9 for total in sums]
                yield near(f"avg_pool2d with its padding {label}", computed, means, limit)
                computed = functional.adaptive_avg_pool2d(inputs, 1)
                channels = range(0, len(numbers), pixels)
                means = [sum(numbers[start : start + pixels]) / pixels for start in channels]
                yield near(f"adaptive_avg_pool2d {label}", computed, means, limit)


def padded_and_enlarged(device: str) -> Iterator[Part]:
    """Catches borders that are mirrored, repeated or enlarged from another pixel."""
    functional = torch.nn.functional
    for shape in POOLED:
        numbers = numbers_of(shape, "pad")
        rows, columns = range(-2, shape[2] + 2), range(-2, shape[3] + 2)
        mirrored = [mirror(row, shape[2]) for row in rows], [mirror(x, shape[3]) for x in columns]
        edges = [cut(row, shape[2]) for row in rows], [cut(x, shape[3]) for x in columns]
        doubled = [row // 2 for row in range(2 * shape[2])], [x // 2 for x in range(2 * shape[3])]
        tripled = [row // 3 for row in range(3 * shape[2])], [x // 3 for x in range(3 * shape[3])]
        for name in formats_on(device):
            inputs = tensor_of(numbers, name, device, *shape)
            label = f"of {shape} {name}"
            computed = functional.pad(inputs, (2, 2, 2, 2), mode="reflect")
            yield exactly(f"reflect {label}", computed, picked(numbers, shape, *mirrored))
            computed = functional.pad(inputs.flatten(0, 1), (2, 2), mode="reflect")
            exact = picked(numbers, shape, range(shape[2]), mirrored[1])
            yield exactly(f"reflect of rows {label}", computed, exact)
            computed = functional.pad(inputs, (2, 2, 2, 2), mode="replicate")
            yield exactly(f"replicate {label}", computed, picked(numbers, shape, *edges))
            computed = functional.interpolate(inputs, scale_factor=2)
            yield exactly(f"enlarged {label}", computed, picked(numbers, shape, *doubled))
            computed = functional.interpolate(inputs, scale_factor=3)
            yield exactly(
                f"enlarged three times {label}", computed, picked(numbers, shape, *tripled)
            )


def mirror(position: int, length: int) -> int:
    """A place outside, mirrored at the border pixel.

    >>> mirror(-2, 5), mirror(5, 5)
    (2, 3)
    """
    if position < 0:
        return -position
    return position if position < length else 2 * (length - 1) - position


def cut(position: int, length: int) -> int:
    """The nearest place inside."""
    return min(max(position, 0), length - 1)


def picked(
    numbers: Sequence[int], shape: Shape, rows: Sequence[int], columns: Sequence[int]
) -> List[int]:
    """The pixels of these rows and columns of every image and channel."""
    every = product(range(shape[0]), range(shape[1]), rows, columns)
    return [numbers[place_in(shape, *where)] for where in every]
