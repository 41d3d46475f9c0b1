"""Convolution, pooling, padding and upsampling of images that contain small whole numbers, computed
pixel by pixel in Python.

Every sum stays below 256, so it is exact in every format.
"""

from __future__ import annotations

import functools
from itertools import product
from typing import Callable, Iterator, List, NamedTuple, Sequence, Tuple, Union

import torch

from ...judging.tolerance import Part
from ...values import Outcome, kind
from .answers import Limit, ask_all, exactly, formats_on, near, roundoff, tensor_of
from .pixels import Pixel, Shape, numbers_of, pixels_of
from .pools import (
    POOLED,
    pools,
    pools_of_special_numbers,
    pools_of_special_rows,
    pools_with_options,
)

Along = Union[int, Tuple[int, int]]
"""A layer's option: one value for both axes, or one for the height and one for the width."""


def along(option: Along, axis: int) -> int:
    """The value of an option along the height (axis 0) or the width (axis 1)."""
    if isinstance(option, int):
        return option
    return option[axis]


class ConvolutionLayer(NamedTuple):
    """The sizes and options of a convolution."""

    images: int
    channels: int
    filters: int
    height: int
    width: int
    kernel: Along
    stride: Along = 1
    padding: Along = 0
    dilation: Along = 1
    groups: int = 1

    def output_length(self, axis: int) -> int:
        """The output's height (axis 0) or width (axis 1), which is the number of kernel positions
        along that axis."""
        # The number of pixels that the dilated kernel spans.
        reach = along(self.dilation, axis) * (along(self.kernel, axis) - 1) + 1
        length = (self.height, self.width)[axis]
        padded_length = length + 2 * along(self.padding, axis)
        last_start = padded_length - reach
        return last_start // along(self.stride, axis) + 1

    @property
    def input_shape(self) -> Shape:
        return (self.images, self.channels, self.height, self.width)

    @property
    def weight_shape(self) -> Shape:
        """The weight's shape. Each filter only uses the channels of its group."""
        group_channels = self.channels // self.groups
        return (self.filters, group_channels, along(self.kernel, 0), along(self.kernel, 1))

    @property
    def output_shape(self) -> Shape:
        """The shape of the output: images, filters, height and width."""
        height = self.output_length(0)
        width = self.output_length(1)
        return (self.images, self.filters, height, width)

    @property
    def is_invertible_in_size(self) -> bool:
        """Whether the transposed convolution restores the images' height.

        With a stride, several heights have the same output height, and torch's transposed
        convolution returns the smallest of them.
        """
        stride = along(self.stride, 0)
        if stride == 1:
            return True
        return self.output_length(0) * stride <= self.height


LAYERS = (
    ConvolutionLayer(1, 1, 1, 5, 5, kernel=1),
    ConvolutionLayer(2, 3, 8, 9, 7, kernel=3, padding=1),
    ConvolutionLayer(1, 17, 5, 8, 6, kernel=1, stride=2),
    ConvolutionLayer(5, 4, 3, 10, 9, kernel=3, stride=2, padding=1),
    ConvolutionLayer(2, 2, 2, 17, 16, kernel=5, padding=2),
    ConvolutionLayer(3, 6, 6, 9, 9, kernel=3, padding=1, groups=6),
    ConvolutionLayer(1, 4, 32, 7, 8, kernel=3, dilation=2, padding=2, groups=2),
    ConvolutionLayer(2, 1, 3, 33, 5, kernel=2, stride=2),
    # Depthwise: each channel is a group with one filter, or with several.
    ConvolutionLayer(2, 4, 4, 9, 8, kernel=3, padding=2, dilation=2, groups=4),
    ConvolutionLayer(1, 5, 5, 8, 11, (3, 3), (1, 1), (1, 2), dilation=(1, 2), groups=5),
    ConvolutionLayer(3, 3, 6, 11, 7, (3, 2), (1, 2), (3, 0), dilation=(3, 1), groups=3),
    ConvolutionLayer(2, 8, 8, 7, 9, (2, 3), (2, 1), (0, 1), groups=8),
    # Groups with several channels.
    ConvolutionLayer(3, 4, 6, 8, 13, (2, 5), (1, 3), (1, 4), dilation=(1, 2), groups=2),
    ConvolutionLayer(2, 6, 3, 13, 6, (4, 1), (3, 1), (2, 0), dilation=(2, 1), groups=3),
    # All channels in one group.
    ConvolutionLayer(1, 3, 4, 6, 12, (1, 4), (2, 3), (0, 3), dilation=(1, 2)),
    ConvolutionLayer(2, 2, 3, 11, 8, (3, 3), (2, 1), (2, 1), dilation=(2, 1)),
    # Images of height 1, which are also tested with `conv1d`.
    ConvolutionLayer(2, 4, 4, 1, 17, (1, 3), 1, (0, 2), dilation=(1, 2), groups=4),
    ConvolutionLayer(3, 6, 4, 1, 20, (1, 4), (1, 3), (0, 5), dilation=(1, 3), groups=2),
    ConvolutionLayer(1, 3, 5, 1, 33, (1, 2), (1, 2), (0, 1), dilation=(1, 5)),
)
"""Layers for every option, with values that differ along height and width, with odd sizes, with few
and many channels, and with one group or several."""


class Contribution(NamedTuple):
    """One product in a convolution, as positions in memory: `output` is the sum to which the
    product of `input` and `weight` is added."""

    output: int
    input: int
    weight: int


def images(device: str) -> Outcome:
    """Check that convolution and its gradients, pooling, padding and upsampling are right at each
    pixel."""
    questions = (
        convolutions,
        convolutions_of_rows,
        transposed_convolutions,
        pools,
        pools_with_options,
        pools_of_special_numbers,
        pools_of_special_rows,
        padded_and_enlarged,
    )
    return ask_all(device, questions, "pixels worked out in Python")


def contributions_of(layer: ConvolutionLayer) -> Iterator[Contribution]:
    """Yields every product of a pixel and a weight in a convolution."""
    group_filters = layer.filters // layer.groups
    group_channels = layer.channels // layer.groups
    one_filter = (1, *layer.weight_shape[1:])
    row_stride, column_stride = along(layer.stride, 0), along(layer.stride, 1)
    row_dilation, column_dilation = along(layer.dilation, 0), along(layer.dilation, 1)
    for output_position, output in enumerate(pixels_of(layer.output_shape)):
        filter_number = output.channel
        group = filter_number // group_filters
        top = output.row * row_stride - along(layer.padding, 0)
        first_column = output.column * column_stride - along(layer.padding, 1)
        for tap in pixels_of(one_filter):
            row = top + tap.row * row_dilation
            column = first_column + tap.column * column_dilation
            # Positions outside the image are padding, which is zero and contributes nothing.
            is_inside = 0 <= row < layer.height and 0 <= column < layer.width
            if not is_inside:
                continue
            channel = group * group_channels + tap.channel
            pixel = Pixel(output.image, channel, row, column)
            # In a weight tensor, the first axis is the filter, not the image.
            weight = tap._replace(image=filter_number)
            yield Contribution(
                output_position,
                pixel.position_in(layer.input_shape),
                weight.position_in(layer.weight_shape),
            )


class Convolved(NamedTuple):
    """The exact inputs, outputs and gradients of a convolution. `upstream` is the gradient of the
    output."""

    input: List[int]
    weight: List[int]
    bias: List[int]
    upstream: List[int]
    output: List[int]
    input_gradient: List[int]
    weight_gradient: List[int]
    bias_gradient: List[int]


@functools.lru_cache(maxsize=None)
def convolved(layer: ConvolutionLayer) -> Convolved:
    """The exact outputs and gradients of a layer, computed once for all formats."""
    inputs = numbers_of(layer.input_shape, "in")
    weight = numbers_of(layer.weight_shape, "weight")
    upstream = numbers_of(layer.output_shape, "upstream")
    # From -2 to 2.
    bias = [kernel % 5 - 2 for kernel in range(layer.filters)]

    # Each output starts with its filter's bias. The bias's gradient is the sum of the upstream
    # gradients of that filter's outputs.
    output: List[int] = []
    bias_gradient = [0] * layer.filters
    for pixel, arriving in zip(pixels_of(layer.output_shape), upstream):
        output.append(bias[pixel.channel])
        bias_gradient[pixel.channel] += arriving

    input_gradient = [0] * len(inputs)
    weight_gradient = [0] * len(weight)
    for item in contributions_of(layer):
        pixel_value = inputs[item.input]
        weight_value = weight[item.weight]
        arriving = upstream[item.output]
        output[item.output] += pixel_value * weight_value
        input_gradient[item.input] += arriving * weight_value
        weight_gradient[item.weight] += arriving * pixel_value
    gradients = (input_gradient, weight_gradient, bias_gradient)
    return Convolved(inputs, weight, bias, upstream, output, *gradients)


def limit_for(dtype_name: str, device: str) -> Limit:
    """The error allowed in a convolution's whole-number result.

    A GPU library may use a transform with rounded fractions (Winograd), whose error is far below
    1/8. If a pixel or a weight is left out, the error is at least 1.
    """
    unit = roundoff(dtype_name)
    if kind(device) == "cuda":
        return Limit(2 * unit, 1 / 8)
    return Limit(2 * unit, 64 * unit)


LAYOUTS = (torch.contiguous_format, torch.channels_last)
"""Memory layouts: either the pixels of each channel or the channels of each pixel are contiguous.
"""


def convolutions(device: str) -> Iterator[Part]:
    """Catches a convolution that leaves out filters, kernel elements, images or borders. Tests the
    forward and the backward pass in both memory layouts."""
    for layer in LAYERS:
        for dtype_name in formats_on(device):
            for layout_number in range(len(LAYOUTS)):
                yield from convolution(layer, layout_number, dtype_name, device)


def convolution(
    layer: ConvolutionLayer, layout_number: int, dtype_name: str, device: str
) -> Iterator[Part]:
    """Compare one layer's outputs and the gradients of its images, filters and biases."""
    exact = convolved(layer)
    layout = LAYOUTS[layout_number]
    images = tensor_of(exact.input, dtype_name, device, *layer.input_shape)
    weight = tensor_of(exact.weight, dtype_name, device, *layer.weight_shape)
    bias = tensor_of(exact.bias, dtype_name, device)
    upstream = tensor_of(exact.upstream, dtype_name, device, *layer.output_shape)
    leaves = (
        images.contiguous(memory_format=layout).requires_grad_(),
        weight.contiguous(memory_format=layout).requires_grad_(),
        bias.requires_grad_(),
    )
    options = (layer.stride, layer.padding, layer.dilation, layer.groups)
    computed = torch.nn.functional.conv2d(*leaves, *options)
    gradients = torch.autograd.grad(computed, leaves, upstream)

    # Different kernels compute the output and the three gradients.
    label = f"{tuple(layer)} of {dtype_name}, layout {layout_number}"
    limit = limit_for(dtype_name, device)
    yield near(f"conv2d {label}", computed, exact.output, limit)
    yield near(f"gradient of images {label}", gradients[0], exact.input_gradient, limit)
    yield near(f"gradient of filters {label}", gradients[1], exact.weight_gradient, limit)
    yield near(f"gradient of biases {label}", gradients[2], exact.bias_gradient, limit)


def convolutions_of_rows(device: str) -> Iterator[Part]:
    """Catches a `conv1d` that applies an option, such as the stride, to the wrong axis, in its
    output or its gradients."""
    for layer in LAYERS:
        if layer.height > 1:
            continue
        exact = convolved(layer)
        options = (layer.stride, layer.padding, layer.dilation)
        stride, padding, dilation = [along(option, 1) for option in options]
        for dtype_name in formats_on(device):
            images = tensor_of(exact.input, dtype_name, device, *layer.input_shape)
            weight = tensor_of(exact.weight, dtype_name, device, *layer.weight_shape)
            bias = tensor_of(exact.bias, dtype_name, device)
            upstream = tensor_of(exact.upstream, dtype_name, device, *layer.output_shape)
            # Remove the axis of the height, which is 1.
            rows = images.squeeze(2).requires_grad_()
            filters = weight.squeeze(2).requires_grad_()
            computed = torch.nn.functional.conv1d(
                rows, filters, bias, stride, padding, dilation, layer.groups
            )
            gradients = torch.autograd.grad(computed, (rows, filters), upstream.squeeze(2))

            label = f"{tuple(layer)} of {dtype_name}"
            limit = limit_for(dtype_name, device)
            yield near(f"conv1d {label}", computed, exact.output, limit)
            yield near(f"gradient of rows {label}", gradients[0], exact.input_gradient, limit)
            exact_gradient = exact.weight_gradient
            yield near(f"gradient of filters of rows {label}", gradients[1], exact_gradient, limit)


def transposed_convolutions(device: str) -> Iterator[Part]:
    """Catches a transposed convolution that is not the input gradient of the plain convolution."""
    for layer in LAYERS:
        if not layer.is_invertible_in_size:
            continue
        exact = convolved(layer)
        for dtype_name in formats_on(device):
            upstream = tensor_of(exact.upstream, dtype_name, device, *layer.output_shape)
            weight = tensor_of(exact.weight, dtype_name, device, *layer.weight_shape)
            computed = torch.nn.functional.conv_transpose2d(
                upstream,
                weight,
                stride=layer.stride,
                padding=layer.padding,
                dilation=layer.dilation,
                groups=layer.groups,
            )
            # `is_invertible_in_size` only looks at the height; the width may differ too.
            if tuple(computed.shape) == layer.input_shape:
                label = f"conv_transpose2d {tuple(layer)} of {dtype_name}"
                limit = limit_for(dtype_name, device)
                yield near(label, computed, exact.input_gradient, limit)


# --- padding and upsampling -----------------------------------------------------------------------

BORDER = 2
"""The number of pixels that padding adds on each side."""
SourceOf = Callable[[int, int], int]
"""Takes a position along a padded axis and the image's length along it, and returns the position of
the source pixel."""


def padded_and_enlarged(device: str) -> Iterator[Part]:
    """Catches reflection padding, replication padding and upsampling that read the wrong pixel."""
    for shape in POOLED:
        for dtype_name in formats_on(device):
            yield from padded_and_enlarged_images(shape, dtype_name, device)


def padded_and_enlarged_images(shape: Shape, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare reflection padding, replication padding and nearest-neighbor upsampling for images of
    one shape."""
    functional = torch.nn.functional
    inputs = tensor_of(numbers_of(shape, "pad"), dtype_name, device, *shape)
    label = f"of {shape} {dtype_name}"
    border = (BORDER, BORDER, BORDER, BORDER)

    exact = with_border(shape, mirror)
    computed = functional.pad(inputs, border, mode="reflect")
    yield exactly(f"reflect {label}", computed, exact)
    all_rows = range(shape[2])
    exact = picked(shape, all_rows, bordered_axis(shape[3], mirror))
    computed = functional.pad(inputs.flatten(0, 1), border[:2], mode="reflect")
    yield exactly(f"reflect of rows {label}", computed, exact)
    exact = with_border(shape, nearest_inside)
    computed = functional.pad(inputs, border, mode="replicate")
    yield exactly(f"replicate {label}", computed, exact)

    # By default (nearest neighbor), interpolate repeats each pixel.
    exact = enlarged(shape, 2)
    computed = functional.interpolate(inputs, scale_factor=2)
    yield exactly(f"enlarged {label}", computed, exact)
    exact = enlarged(shape, 3)
    computed = functional.interpolate(inputs, scale_factor=3)
    yield exactly(f"enlarged three times {label}", computed, exact)


def bordered_axis(length: int, source_of: SourceOf) -> List[int]:
    """Returns the position of the source pixel for each position along a padded axis."""
    sources: List[int] = []
    for position in range(-BORDER, length + BORDER):
        sources.append(source_of(position, length))
    return sources


def with_border(shape: Shape, source_of: SourceOf) -> List[int]:
    """The exact pixels of the images with a border added on every side."""
    rows = bordered_axis(shape[2], source_of)
    columns = bordered_axis(shape[3], source_of)
    return picked(shape, rows, columns)


def enlarged(shape: Shape, factor: int) -> List[int]:
    """The exact pixels of the images enlarged by `factor`, each pixel repeated along both axes."""
    rows = enlarged_axis(shape[2], factor)
    columns = enlarged_axis(shape[3], factor)
    return picked(shape, rows, columns)


def enlarged_axis(length: int, factor: int) -> List[int]:
    """Returns the position of the source pixel for each position along an enlarged axis."""
    new_length = factor * length
    return [position // factor for position in range(new_length)]


def mirror(position: int, length: int) -> int:
    """Reflect a position outside the image into the image.

    >>> mirror(-2, 5), mirror(5, 5)
    (2, 3)
    """
    last = length - 1
    if position < 0:
        return -position
    if position > last:
        return 2 * last - position
    return position


def nearest_inside(position: int, length: int) -> int:
    last = length - 1
    return min(max(position, 0), last)


def picked(shape: Shape, rows: Sequence[int], columns: Sequence[int]) -> List[int]:
    """Returns the pixels at these rows and columns, for every image and channel."""
    images, channels, _, _ = shape
    numbers = numbers_of(shape, "pad")
    values: List[int] = []
    for index in product(range(images), range(channels), rows, columns):
        position = Pixel(*index).position_in(shape)
        values.append(numbers[position])
    return values
