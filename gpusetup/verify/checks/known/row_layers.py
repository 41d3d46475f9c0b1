"""Pooling and convolution of rows and volumes, with their gradients. Part of the check
`resampling`.

All numbers are small and whole, so the sums are exact unless a library uses transforms (such as
Winograd).
"""

from __future__ import annotations

import functools
from itertools import product
from typing import Iterator, List, NamedTuple

import torch

from ...judging.tolerance import Part
from .answers import Limit, dice, exactly, formats_on, near, offered, roundoff, tensor_of
from .number_lists import random_wholes, rows_of_length, sawtooth


def whole_row(length: int, salt: str) -> List[float]:
    """Random whole numbers from -4 to 4."""
    chance = dice(f"resampled {length} {salt}")
    return random_wholes(chance, length, -4, 4)


def small_row(length: int, salt: str, numbers: int, lowest: int) -> List[float]:
    """A row of random whole numbers. They have `numbers` different values, from `lowest` upward."""
    values: List[float] = []
    for value in whole_row(length, salt):
        step = value % numbers
        values.append(lowest + step)
    return values


# --- gradients of pooling -------------------------------------------------------------------------

WINDOW = 3
"""The number of elements in a pooling window."""
WINDOW_STEP = 2
"""The stride of the windows. It is smaller than the window, so neighbouring windows overlap."""


class PooledRows(NamedTuple):
    """Rows of distinct numbers, the pooling windows over them, and the upstream gradient of each
    window."""

    channels: int
    length: int
    values: List[int]
    windows: List[List[int]]
    """The positions in each window. Neighbouring windows have one position in common."""
    upstream: List[float]

    def gradient_of_largest(self) -> List[float]:
        """The exact gradient of max pooling. The largest number in a window gets the window's whole
        upstream gradient."""
        gradient = [0.0] * len(self.values)
        for window, arriving in zip(self.windows, self.upstream):
            largest = max(window, key=self.values.__getitem__)
            # A number may be the largest in two windows.
            gradient[largest] += arriving
        return gradient

    def gradient_of_means(self) -> List[float]:
        """The exact gradient of average pooling. Each number in a window gets an equal share of the
        window's upstream gradient."""
        gradient = [0.0] * len(self.values)
        for window, arriving in zip(self.windows, self.upstream):
            for position in window:
                gradient[position] += arriving / WINDOW
        return gradient


def pooled_rows(channels: int, length: int) -> PooledRows:
    """Make random rows of distinct numbers, and windows that do not cross the end of a row."""
    # Every number occurs once, so that each window has a single largest number.
    values = list(range(channels * length))
    dice(f"pooled {channels} {length}").shuffle(values)
    windows: List[List[int]] = []
    last_start = length - WINDOW
    for channel in range(channels):
        for start in range(0, last_start + 1, WINDOW_STEP):
            first = channel * length + start
            window = range(first, first + WINDOW)
            windows.append(list(window))
    upstream = sawtooth(len(windows), period=3, start=1)
    return PooledRows(channels, length, values, windows, upstream)


def gradients_of_pools(device: str) -> Iterator[Part]:
    """Catches pooling whose gradient reaches the wrong element, or is not divided within a
    window."""
    for channels, length in ((1, 17), (3, 66), (17, 9), (2, 1027)):
        rows = pooled_rows(channels, length)
        # The 16-bit formats cannot hold thousands of different whole numbers.
        for dtype_name in ("float32", "float64"):
            yield from gradients_of_largest(rows, dtype_name, device)
            yield from gradients_of_means(rows, dtype_name, device)


def gradients_of_largest(rows: PooledRows, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the gradients of max pooling, for the same rows in one, two and three dimensions."""
    functional = torch.nn.functional
    shape = (1, rows.channels, rows.length)
    leaf = tensor_of(rows.values, dtype_name, device, *shape).requires_grad_()
    arriving = tensor_of(rows.upstream, dtype_name, device, 1, rows.channels, -1)
    exact = rows.gradient_of_largest()
    label = f"{rows.channels} x {rows.length} {dtype_name}"

    pooled = functional.max_pool1d(leaf, WINDOW, WINDOW_STEP)
    (computed,) = torch.autograd.grad(pooled, leaf, arriving)
    yield exactly(f"gradient of max_pool1d, {label}", computed, exact)

    # Add an axis of length 1 for two dimensions.
    image = leaf[:, :, None]
    pooled = functional.max_pool2d(image, (1, WINDOW), (1, WINDOW_STEP))
    (computed,) = torch.autograd.grad(pooled, leaf, arriving[:, :, None])
    yield exactly(f"gradient of max_pool2d, {label}", computed, exact)

    # Add another axis for three dimensions.
    volume = leaf[:, :, None, None]
    pooled = functional.max_pool3d(volume, (1, 1, WINDOW), (1, 1, WINDOW_STEP))
    (computed,) = torch.autograd.grad(pooled, leaf, arriving[:, :, None, None])
    yield exactly(f"gradient of max_pool3d, {label}", computed, exact)


def gradients_of_means(rows: PooledRows, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the gradients of average pooling over windows and over whole rows."""
    functional = torch.nn.functional
    shape = (1, rows.channels, rows.length)
    leaf = tensor_of(rows.values, dtype_name, device, *shape).requires_grad_()
    arriving = tensor_of(rows.upstream, dtype_name, device, 1, rows.channels, 1, -1)
    label = f"{rows.channels} x {rows.length} {dtype_name}"
    # A third of a number is rounded, and so is each sum of thirds.
    limit = Limit(8 * roundoff(dtype_name))

    image = leaf[:, :, None]
    pooled = functional.avg_pool2d(image, (1, WINDOW), (1, WINDOW_STEP))
    (computed,) = torch.autograd.grad(pooled, leaf, arriving)
    exact = rows.gradient_of_means()
    yield near(f"gradient of avg_pool2d, {label}", computed, exact, limit)

    pooled = functional.adaptive_avg_pool1d(leaf, 1)
    (computed,) = torch.autograd.grad(pooled.sum(), leaf)
    # All numbers of a row contribute equally to its mean.
    share = 1 / rows.length
    exact = [share] * len(rows.values)
    yield near(f"gradient of adaptive_avg_pool1d, {label}", computed, exact, limit)


# --- convolutions of rows and volumes -------------------------------------------------------------


class RowLayer(NamedTuple):
    """The sizes of a one-dimensional convolution."""

    channels: int
    filters: int
    length: int
    taps: int

    @property
    def output_length(self) -> int:
        return self.length - self.taps + 1


ROW_LAYERS = (
    RowLayer(1, 1, 17, 3),
    RowLayer(3, 5, 33, 5),
    RowLayer(17, 2, 66, 1),
    RowLayer(2, 3, 1027, 7),
)


class ConvolvedRows(NamedTuple):
    """The exact inputs, outputs and gradients of a convolution of rows. `upstream` is the gradient
    of the output."""

    input: List[float]
    weight: List[float]
    upstream: List[float]
    output: List[float]
    input_gradient: List[float]
    weight_gradient: List[float]


def convolved_rows(layer: RowLayer) -> ConvolvedRows:
    """Compute the exact outputs and gradients, by adding up every product of an input and a
    weight."""
    channels, filters, length, taps = layer
    count = layer.output_length
    weight_count = filters * channels * taps
    row = small_row(channels * length, "row", numbers=3, lowest=-1)
    weight = small_row(weight_count, "weight", numbers=2, lowest=0)
    upstream = small_row(filters * count, "row upstream", numbers=2, lowest=0)

    output = [0.0] * len(upstream)
    input_gradient = [0.0] * len(row)
    weight_gradient = [0.0] * len(weight)
    for kernel, channel, tap in product(range(filters), range(channels), range(taps)):
        weight_index = (kernel * channels + channel) * taps + tap
        weight_value = weight[weight_index]
        first_output = kernel * count
        first_input = channel * length + tap
        # The weight is used at every position of the output.
        for position in range(count):
            output_index = first_output + position
            input_index = first_input + position
            input_value = row[input_index]
            arriving = upstream[output_index]
            output[output_index] += input_value * weight_value
            input_gradient[input_index] += arriving * weight_value
            weight_gradient[weight_index] += arriving * input_value
    return ConvolvedRows(row, weight, upstream, output, input_gradient, weight_gradient)


def rows_convolved(device: str) -> Iterator[Part]:
    """Catches a one-dimensional convolution that leaves out a kernel element, channel or border, in
    its output or its gradients."""
    for layer in ROW_LAYERS:
        channels, filters, length, taps = layer
        exact = convolved_rows(layer)
        for dtype_name in formats_on(device):
            rows = tensor_of(exact.input, dtype_name, device, 1, channels, length)
            weight = tensor_of(exact.weight, dtype_name, device, filters, channels, taps)
            upstream = tensor_of(exact.upstream, dtype_name, device, 1, filters, -1)
            # The rows and the filters require gradients.
            leaves = (rows.requires_grad_(), weight.requires_grad_())
            computed = torch.nn.functional.conv1d(*leaves)
            gradients = torch.autograd.grad(computed, leaves, upstream)

            label = f"conv1d {channels} x {length}, {filters} filters of {taps}, {dtype_name}"
            limit = convolution_limit(dtype_name, device)
            yield near(label, computed, exact.output, limit)
            exact_gradient = exact.input_gradient
            yield near(f"gradient of rows of {label}", gradients[0], exact_gradient, limit)
            exact_gradient = exact.weight_gradient
            yield near(f"gradient of filters of {label}", gradients[1], exact_gradient, limit)


def convolution_limit(dtype_name: str, device: str) -> Limit:
    """The error allowed in a convolution of whole numbers.

    A library may use transforms that round fractions, and transforms on GPUs round more than
    transforms on CPUs. If a number is left out, the error is at least 1.
    """
    relative = 2 * roundoff(dtype_name)
    if device == "cpu":
        return Limit(relative=relative, absolute=2.0**-4)
    return Limit(relative=relative, absolute=0.25)


def volumes_convolved(device: str) -> Iterator[Part]:
    """Catches a three-dimensional convolution that swaps depth, height and width."""
    depth, height, width = 4, 5, 7
    # The filter's depth and height. Its width is 1.
    deep, high = 2, 3
    values = small_row(depth * height * width, "volume", numbers=3, lowest=-1)
    weight = small_row(deep * high, "volume weight", numbers=3, lowest=0)
    rows = rows_of_length(values, width)
    weight_rows = rows_of_length(weight, high)
    # All positions of the filter along each axis.
    places = product(range(depth - deep + 1), range(height - high + 1), range(width))
    exact: List[float] = []
    for z, y, x in places:
        total = 0.0
        for down, across in product(range(deep), range(high)):
            row = rows[(z + down) * height + (y + across)]
            total += row[x] * weight_rows[down][across]
        exact.append(total)

    for dtype_name in formats_on(device):
        inputs = tensor_of(values, dtype_name, device, 1, 1, depth, height, width)
        filters = tensor_of(weight, dtype_name, device, 1, 1, deep, high, 1)
        convolve = functools.partial(torch.nn.functional.conv3d, inputs, filters)
        computed = offered(convolve)
        if computed is not None:
            # If a number is left out, the error is at least 1.
            limit = Limit(2 * roundoff(dtype_name), 2.0**-4)
            yield near(f"conv3d of {dtype_name}", computed, exact, limit)


class TransposedLayer(NamedTuple):
    """The sizes of a one-dimensional transposed convolution."""

    length: int
    taps: int
    stride: int
    padding: int
    extra: int
    """`output_padding`: how many numbers longer the output is. With a stride, several output
    lengths are possible."""

    @property
    def output_length(self) -> int:
        """The length of the output."""
        last_start = (self.length - 1) * self.stride
        reach = last_start + self.taps
        cut_off = 2 * self.padding
        return reach - cut_off + self.extra


TRANSPOSED_LAYERS = (
    TransposedLayer(9, 3, 2, 1, 1),
    TransposedLayer(17, 4, 2, 1, 0),
    TransposedLayer(33, 5, 3, 0, 2),
)


def strided_transposed_rows(device: str) -> Iterator[Part]:
    """Catches a transposed convolution with a wrong stride, padding or output padding."""
    for layer in TRANSPOSED_LAYERS:
        row = small_row(layer.length, "transposed", numbers=3, lowest=-1)
        weight = small_row(layer.taps, "transposed weight", numbers=3, lowest=1)
        exact = [0.0] * layer.output_length
        for position, tap in product(range(layer.length), range(layer.taps)):
            target = position * layer.stride + tap - layer.padding
            # The padding is removed at both ends.
            if 0 <= target < len(exact):
                exact[target] += row[position] * weight[tap]

        # The positional arguments that follow the bias in torch's function.
        options = (layer.stride, layer.padding, layer.extra)
        for dtype_name in formats_on(device):
            inputs = tensor_of(row, dtype_name, device, 1, 1, layer.length)
            filters = tensor_of(weight, dtype_name, device, 1, 1, layer.taps)
            computed = torch.nn.functional.conv_transpose1d(inputs, filters, None, *options)
            size = f"{layer.length} {dtype_name} numbers, stride {layer.stride}"
            limit = Limit(2 * roundoff(dtype_name), 2.0**-4)
            yield near(f"conv_transpose1d of {size}", computed, exact, limit)
