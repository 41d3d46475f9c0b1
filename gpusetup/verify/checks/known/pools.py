"""Max and average pooling of images, including NaN, infinity and partial windows. Part of the check
`images`.

The expected results come from Python lists with the pixels of each window.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from math import inf, isnan, nan
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part, holds
from .answers import (
    Limit,
    dtype_name_of,
    exactly,
    flat_list,
    formats_on,
    in_both_layouts,
    near,
    offered,
    roundoff,
    tensor_of,
)
from .number_lists import elements_at
from .pixels import Pixel, Shape, numbers_of

POOLED = ((1, 1, 5, 5), (2, 3, 9, 7), (1, 17, 8, 6), (3, 2, 17, 65))
"""Shapes of the tensors to pool: images, channels, rows and columns."""
SIZE, STRIDE, PADDING = 3, 2, 1
"""Size, stride and padding of the pooling windows."""


def pool_windows(shape: Shape) -> List[List[int]]:
    """For each window, the positions of its pixels in the flattened images."""
    images, channels, height, width = shape
    all_rows = pool_ranges(height)
    all_columns = pool_ranges(width)
    windows: List[List[int]] = []
    for image, channel, rows, columns in product(
        range(images), range(channels), all_rows, all_columns
    ):
        window: List[int] = []
        for row, column in product(rows, columns):
            pixel = Pixel(image, channel, row, column)
            window.append(pixel.position_in(shape))
        windows.append(window)
    return windows


def pool_ranges(length: int) -> List[range]:
    """For each position of the window along an axis, the range of pixels that it covers."""
    last_start = length + PADDING - SIZE
    ranges: List[range] = []
    for start in range(-PADDING, last_start + 1, STRIDE):
        # The padding contains no pixels.
        first = max(start, 0)
        end = min(start + SIZE, length)
        ranges.append(range(first, end))
    return ranges


def pools(device: str) -> Iterator[Part]:
    """Catches pooling that leaves out a border, counts the padding, or returns the position of the
    wrong pixel."""
    for shape in POOLED:
        for dtype_name in formats_on(device):
            numbers = numbers_of(shape, "pool")
            plain = tensor_of(numbers, dtype_name, device, *shape)
            # A mean is a sum and a division, so it is rounded a few times.
            unit = 4 * roundoff(dtype_name)
            limit = Limit(unit, unit)
            for layout, inputs in in_both_layouts(plain):
                label = f"of {shape} {dtype_name}, {layout}"
                yield from largest_of_windows(inputs, shape, label)
                yield from means_of_windows(inputs, shape, label, limit)


def largest_of_windows(inputs: Any, shape: Shape, label: str) -> Iterator[Part]:
    """Compare each window's largest pixel, and the pixel at the position that torch returns."""
    numbers = numbers_of(shape, "pool")
    windows = pool_windows(shape)
    largest = [max(elements_at(window, numbers)) for window in windows]
    computed, places = torch.nn.functional.max_pool2d(
        inputs, SIZE, STRIDE, PADDING, return_indices=True
    )
    yield exactly(f"max_pool2d {label}", computed, largest)

    # torch counts positions within a channel of an image, so add the start of that channel.
    plane_size = shape[2] * shape[3]
    positions: List[int] = []
    are_all_inside = True
    for window, place in zip(windows, flat_list(places)):
        plane = window[0] // plane_size
        position = plane * plane_size + place
        positions.append(position)
        if position not in window:
            are_all_inside = False
    yield holds(f"places of max_pool2d {label}", are_all_inside, "a pixel of another window")
    if are_all_inside:
        values = elements_at(positions, numbers)
        yield exactly(f"pixels at the places of max_pool2d {label}", computed, values)


def means_of_windows(inputs: Any, shape: Shape, label: str, limit: Limit) -> Iterator[Part]:
    """Compare the mean of each window, with and without the padding, and the mean of each
    channel."""
    functional = torch.nn.functional
    numbers = numbers_of(shape, "pool")
    means: List[float] = []
    means_with_padding: List[float] = []
    for window in pool_windows(shape):
        total = sum(elements_at(window, numbers))
        means.append(total / len(window))
        # Here the padding counts as zeros.
        means_with_padding.append(total / SIZE**2)
    computed = functional.avg_pool2d(inputs, SIZE, STRIDE, PADDING, count_include_pad=False)
    yield near(f"avg_pool2d {label}", computed, means, limit)
    computed = functional.avg_pool2d(inputs, SIZE, STRIDE, PADDING)
    yield near(f"avg_pool2d with its padding {label}", computed, means_with_padding, limit)

    plane_size = shape[2] * shape[3]
    plane_means: List[float] = []
    for start in range(0, len(numbers), plane_size):
        plane = numbers[start : start + plane_size]
        plane_means.append(sum(plane) / plane_size)
    computed = functional.adaptive_avg_pool2d(inputs, 1)
    yield near(f"adaptive_avg_pool2d {label}", computed, plane_means, limit)


# --- options --------------------------------------------------------------------------------------


class Pool(NamedTuple):
    """The options of a pooling layer. Size, stride and padding have one value for the height and
    one for the width."""

    size: Tuple[int, int]
    stride: Tuple[int, int]
    padding: Tuple[int, int] = (0, 0)
    ceil_mode: bool = False
    """Whether a partial window at the end counts too."""


OPTION_POOLS = (
    Pool((2, 2), (2, 2), ceil_mode=True),
    Pool((3, 2), (2, 1), (1, 0)),
    Pool((2, 3), (1, 2), (0, 1), ceil_mode=True),
    Pool((3, 4), (3, 3), (1, 2), ceil_mode=True),
    Pool((1, 3), (1, 2), (0, 0)),
)
"""Sizes, strides and paddings that mostly differ between height and width."""
OPTION_SHAPES = ((1, 1, 5, 5), (2, 3, 8, 7), (1, 37, 6, 9))
"""Shapes of the images. The last one has more channels than a vector has lanes (at most 32 16-bit
numbers)."""


class Span(NamedTuple):
    """The part of an axis that a window covers."""

    pixels: range
    """The pixels in the window, without the padding."""
    length: int
    """The length of the window with the padding, but without the part after the padding that
    `ceil_mode` allows."""


def spans_along(length: int, pool: Pool, axis: int) -> List[Span]:
    """The windows along an axis, as torch's documentation defines them."""
    size, stride, padding = pool.size[axis], pool.stride[axis], pool.padding[axis]
    padded_end = length + padding
    last_start = padded_end - size
    if pool.ceil_mode:
        # `ceil_mode` adds a partial window if it begins in the image or in the padding before it,
        # but not after the image.
        last_start = min(last_start + stride - 1, length - 1)
    spans: List[Span] = []
    for start in range(-padding, last_start + 1, stride):
        end = min(start + size, padded_end)
        pixels = range(max(start, 0), min(end, length))
        spans.append(Span(pixels, end - start))
    return spans


def spans_of_parts(length: int, parts: int) -> List[Span]:
    """The windows of adaptive pooling: parts of almost equal length, which may overlap."""
    spans: List[Span] = []
    for part in range(parts):
        first = part * length // parts
        # The end of a part is rounded up.
        end = -(-(part + 1) * length // parts)
        spans.append(Span(range(first, end), end - first))
    return spans


class Window(NamedTuple):
    """A window at one position in an image."""

    positions: List[int]
    """The positions of the window's pixels in memory."""
    area: int
    """The number of pixels in the window, including the padding."""


def windows_of(shape: Shape, rows: List[Span], columns: List[Span]) -> List[Window]:
    """The windows of each channel, in the order of the output."""
    images, channels, _, _ = shape
    windows: List[Window] = []
    for image, channel, down, across in product(range(images), range(channels), rows, columns):
        positions: List[int] = []
        for row, column in product(down.pixels, across.pixels):
            pixel = Pixel(image, channel, row, column)
            positions.append(pixel.position_in(shape))
        windows.append(Window(positions, down.length * across.length))
    return windows


def windows_of_pool(shape: Shape, pool: Pool) -> List[Window]:
    """The windows of a pooling layer for images of this shape."""
    rows = spans_along(shape[2], pool, 0)
    columns = spans_along(shape[3], pool, 1)
    return windows_of(shape, rows, columns)


def largest_of(values: Sequence[float]) -> float:
    """The largest number, or NaN if one of the numbers is NaN."""
    if any(map(isnan, values)):
        return nan
    return max(values)


def largest_in(windows: Sequence[Window], values: Sequence[float]) -> List[float]:
    """The largest pixel of each window."""
    return [largest_of(elements_at(window.positions, values)) for window in windows]


def means_in(
    windows: Sequence[Window], values: Sequence[float], with_padding: bool = False
) -> List[float]:
    """The mean of each window. With `with_padding`, the padding counts as zeros; otherwise it does
    not count."""
    means: List[float] = []
    for window in windows:
        # A sum with NaN is NaN, and so is infinity minus infinity.
        total = sum(elements_at(window.positions, values))
        count = window.area if with_padding else len(window.positions)
        means.append(total / count)
    return means


def pools_with_options(device: str) -> Iterator[Part]:
    """Catches pooling that confuses height and width, leaves out the last window, or divides its
    sum by the wrong size."""
    for shape, pool in product(OPTION_SHAPES, OPTION_POOLS):
        numbers = numbers_of(shape, "pool options")
        yield from pools_of_images(shape, pool, numbers, device)


SPECIAL = (nan, inf, -inf)
"""Values that are not finite. They show that a training run has failed, so pooling must not hide
them."""


def special_numbers(shape: Shape) -> List[float]:
    """Whole numbers in which every fifth number is NaN or infinite, and the last third is minus
    infinity."""
    numbers = [float(number) for number in numbers_of(shape, "special pool")]
    for position in range(2, len(numbers), 5):
        numbers[position] = SPECIAL[position // 5 % len(SPECIAL)]
    # In windows of only minus infinity, no pixel is larger than the value with which a kernel may
    # start its search.
    tail = len(numbers) // 3
    numbers[-tail:] = [-inf] * tail
    return numbers


def pools_of_special_numbers(device: str) -> Iterator[Part]:
    """Catches pooling that drops NaN or infinity, or lets them reach other windows."""
    for number, shape in enumerate(OPTION_SHAPES):
        numbers = special_numbers(shape)
        # To save time, test two of the pools for each shape.
        for pool in (OPTION_POOLS[number], OPTION_POOLS[number + 2]):
            yield from pools_of_images(shape, pool, numbers, device)
        yield from adaptive_pools(shape, numbers, device)


class PoolAnswers(NamedTuple):
    """The expected results of a pooling layer, computed once for all formats."""

    numbers: Sequence[float]
    windows: List[Window]
    largest: List[float]
    means: List[float]
    means_with_padding: List[float]


def answers_of(windows: List[Window], numbers: Sequence[float]) -> PoolAnswers:
    """Compute the largest pixel and both means of each window."""
    largest = largest_in(windows, numbers)
    means = means_in(windows, numbers)
    means_with_padding = means_in(windows, numbers, with_padding=True)
    return PoolAnswers(numbers, windows, largest, means, means_with_padding)


def mean_limit(dtype_name: str) -> Limit:
    """The error allowed in a mean, which is a sum and a division."""
    unit = 4 * roundoff(dtype_name)
    return Limit(unit, unit)


def pools_of_images(
    shape: Shape, pool: Pool, numbers: Sequence[float], device: str
) -> Iterator[Part]:
    """Compare the results of one pooling layer in each format and memory layout."""
    exact = answers_of(windows_of_pool(shape, pool), numbers)
    for dtype_name in formats_on(device):
        plain = tensor_of(numbers, dtype_name, device, *shape)
        for layout, inputs in in_both_layouts(plain):
            label = f"of {shape} {dtype_name}, {layout}, {tuple(pool)}"
            yield from largest_by_pool(inputs, pool, exact, label)
            yield from means_by_pool(inputs, pool, exact, label)


def largest_by_pool(inputs: Any, pool: Pool, exact: PoolAnswers, label: str) -> Iterator[Part]:
    """Compare the largest pixels, and the pixels at the positions that torch returns."""
    size, stride, padding, ceil_mode = pool
    # The dilation is 1, so the pixels of a window are neighbours.
    options = (size, stride, padding, 1, ceil_mode)
    compute = partial(torch.nn.functional.max_pool2d, inputs, *options, return_indices=True)
    answer = offered(compute)
    if answer is None:
        return
    yield exactly(f"max_pool2d {label}", answer[0], exact.largest)
    # torch counts positions within a channel of an image. Each position must be inside its window.
    plane_size = inputs.shape[2] * inputs.shape[3]
    values: List[float] = []
    wrong_places = 0
    for window, place in zip(exact.windows, flat_list(answer[1])):
        plane = window.positions[0] // plane_size
        position = plane * plane_size + place
        if position in window.positions:
            values.append(exact.numbers[position])
        else:
            wrong_places += 1
    message = f"{wrong_places} of them lie outside of their windows"
    yield holds(f"places of max_pool2d {label}", not wrong_places, message)
    if not wrong_places:
        yield exactly(f"pixels at the places of max_pool2d {label}", answer[0], values)


def means_by_pool(inputs: Any, pool: Pool, exact: PoolAnswers, label: str) -> Iterator[Part]:
    """Compare the means without and with the padding."""
    limit = mean_limit(dtype_name_of(inputs))
    expected_means = (exact.means, exact.means_with_padding)
    for counts_padding, expected in zip((False, True), expected_means):
        compute = partial(torch.nn.functional.avg_pool2d, inputs, *pool, counts_padding)
        computed = offered(compute)
        if computed is not None:
            name = f"avg_pool2d, padding counts: {counts_padding}, {label}"
            yield near(name, computed, expected, limit)


PARTS = (2, 3)
"""Rows and columns of the output of adaptive pooling. Most image sizes are not multiples of them.
"""


def adaptive_pools(shape: Shape, numbers: Sequence[float], device: str) -> Iterator[Part]:
    """Compare the largest pixel and the mean of each part, for several parts and for the whole
    plane."""
    functional = torch.nn.functional
    for rows, columns in (PARTS, (1, 1)):
        row_spans = spans_of_parts(shape[2], rows)
        column_spans = spans_of_parts(shape[3], columns)
        exact = answers_of(windows_of(shape, row_spans, column_spans), numbers)
        for dtype_name in formats_on(device):
            plain = tensor_of(numbers, dtype_name, device, *shape)
            for layout, inputs in in_both_layouts(plain):
                label = f"of {shape} {dtype_name}, {layout}, {rows} x {columns} parts"
                size = (rows, columns)
                computed = offered(partial(functional.adaptive_max_pool2d, inputs, size))
                if computed is not None:
                    yield exactly(f"adaptive_max_pool2d {label}", computed, exact.largest)
                computed = offered(partial(functional.adaptive_avg_pool2d, inputs, size))
                if computed is not None:
                    limit = mean_limit(dtype_name)
                    yield near(f"adaptive_avg_pool2d {label}", computed, exact.means, limit)


def pools_of_special_rows(device: str) -> Iterator[Part]:
    """Catches pooling of rows that drops NaN or infinity. `max_pool1d` has its own kernel."""
    functional = torch.nn.functional
    for length, size, stride in ((5, 2, 1), (33, 3, 2), (1027, 4, 4)):
        # Treat a row as an image of height 1.
        shape = (1, 1, 1, length)
        numbers = special_numbers(shape)
        pool = Pool((1, size), (1, stride))
        exact = answers_of(windows_of_pool(shape, pool), numbers)
        for dtype_name in formats_on(device):
            row = tensor_of(numbers, dtype_name, device, 1, 1, length)
            label = f"of {length} {dtype_name} numbers with NaN and infinity"
            computed = offered(partial(functional.max_pool1d, row, size, stride))
            if computed is not None:
                yield exactly(f"max_pool1d {label}", computed, exact.largest)
            computed = offered(partial(functional.avg_pool1d, row, size, stride))
            if computed is not None:
                limit = mean_limit(dtype_name)
                yield near(f"avg_pool1d {label}", computed, exact.means, limit)
