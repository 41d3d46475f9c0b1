"""Pools of images: the largest pixel and the mean of each window, also of windows without numbers.

Asked by the check `images`. Python lists the pixels of each window.
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
"""Images, channels, rows and columns."""
SIZE, STRIDE, PADDING = 3, 2, 1
"""Of the windows of a pool."""


def pool_windows(shape: Shape) -> List[List[int]]:
    """For each place of a window, the flat positions of the pixels in it."""
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
    """Along an axis: for each place of the window, the pixels of the image in it."""
    last_start = length + PADDING - SIZE
    ranges: List[range] = []
    for start in range(-PADDING, last_start + 1, STRIDE):
        # The padding holds no pixels.
        first = max(start, 0)
        end = min(start + SIZE, length)
        ranges.append(range(first, end))
    return ranges


def pools(device: str) -> Iterator[Part]:
    """Catches pools that lose a border, count the padding, or name another pixel's place."""
    for shape in POOLED:
        for dtype_name in formats_on(device):
            numbers = numbers_of(shape, "pool")
            plain = tensor_of(numbers, dtype_name, device, *shape)
            # A mean is a sum and a quotient.
            unit = 4 * roundoff(dtype_name)
            limit = Limit(unit, unit)
            for layout, inputs in in_both_layouts(plain):
                label = f"of {shape} {dtype_name}, {layout}"
                yield from largest_of_windows(inputs, shape, label)
                yield from means_of_windows(inputs, shape, label, limit)


def largest_of_windows(inputs: Any, shape: Shape, label: str) -> Iterator[Part]:
    """Compare each window's largest pixel, and the pixel at the position that the pool returns."""
    numbers = numbers_of(shape, "pool")
    windows = pool_windows(shape)
    largest = [max(elements_at(window, numbers)) for window in windows]
    computed, places = torch.nn.functional.max_pool2d(
        inputs, SIZE, STRIDE, PADDING, return_indices=True
    )
    yield exactly(f"max_pool2d {label}", computed, largest)

    # A place is counted within its own plane, so it is added to the plane's start.
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
    """Compare the mean of each window, with and without the padding, and that of each channel."""
    functional = torch.nn.functional
    numbers = numbers_of(shape, "pool")
    means: List[float] = []
    means_with_padding: List[float] = []
    for window in pool_windows(shape):
        total = sum(elements_at(window, numbers))
        means.append(total / len(window))
        # The pixels of the padding count as zeros.
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
    """The options of a pool, each along the height and the width."""

    size: Tuple[int, int]
    stride: Tuple[int, int]
    padding: Tuple[int, int] = (0, 0)
    ceil_mode: bool = False
    """Whether a last window that is not full counts, too."""


OPTION_POOLS = (
    Pool((2, 2), (2, 2), ceil_mode=True),
    Pool((3, 2), (2, 1), (1, 0)),
    Pool((2, 3), (1, 2), (0, 1), ceil_mode=True),
    Pool((3, 4), (3, 3), (1, 2), ceil_mode=True),
    Pool((1, 3), (1, 2), (0, 0)),
)
"""Other sizes, steps and paddings along the height than along the width."""
OPTION_SHAPES = ((1, 1, 5, 5), (2, 3, 8, 7), (1, 37, 6, 9))
"""The last one has more channels than a vector has lanes: 32 numbers of 16 bits at most."""


class Span(NamedTuple):
    """The place of a window along one axis."""

    pixels: range
    """Without the padding."""
    length: int
    """With the padding, but not with what `ceil_mode` adds behind it."""


def spans_along(length: int, pool: Pool, axis: int) -> List[Span]:
    """Every place of the window along an axis, as torch's documentation defines it."""
    size, stride, padding = pool.size[axis], pool.stride[axis], pool.padding[axis]
    padded_end = length + padding
    last_start = padded_end - size
    if pool.ceil_mode:
        # A further window may begin inside the image, or in the padding before it; none behind it.
        last_start = min(last_start + stride - 1, length - 1)
    spans: List[Span] = []
    for start in range(-padding, last_start + 1, stride):
        end = min(start + size, padded_end)
        pixels = range(max(start, 0), min(end, length))
        spans.append(Span(pixels, end - start))
    return spans


def spans_of_parts(length: int, parts: int) -> List[Span]:
    """The windows of an adaptive pool: parts of almost equal length, which may overlap."""
    spans: List[Span] = []
    for part in range(parts):
        first = part * length // parts
        # Rounded up.
        end = -(-(part + 1) * length // parts)
        spans.append(Span(range(first, end), end - first))
    return spans


class Window(NamedTuple):
    """One place of a window."""

    positions: List[int]
    """Of its pixels in memory."""
    area: int
    """With its part of the padding."""


def windows_of(shape: Shape, rows: List[Span], columns: List[Span]) -> List[Window]:
    """Each place of the window in each channel, in the order of the answers."""
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
    """Each place of the window of a pool."""
    rows = spans_along(shape[2], pool, 0)
    columns = spans_along(shape[3], pool, 1)
    return windows_of(shape, rows, columns)


def largest_of(values: Sequence[float]) -> float:
    """The largest number; NaN if one is NaN."""
    if any(map(isnan, values)):
        return nan
    return max(values)


def largest_in(windows: Sequence[Window], values: Sequence[float]) -> List[float]:
    """The largest pixel of each window."""
    return [largest_of(elements_at(window.positions, values)) for window in windows]


def means_in(
    windows: Sequence[Window], values: Sequence[float], with_padding: bool = False
) -> List[float]:
    """The mean of each window; pixels of the padding count as zeros, or not at all."""
    means: List[float] = []
    for window in windows:
        # NaN stays NaN in a sum, and so does infinity minus infinity.
        total = sum(elements_at(window.positions, values))
        count = window.area if with_padding else len(window.positions)
        means.append(total / count)
    return means


def pools_with_options(device: str) -> Iterator[Part]:
    """Catches height taken for width, and a last window that is lost or divided by another size."""
    for shape, pool in product(OPTION_SHAPES, OPTION_POOLS):
        numbers = numbers_of(shape, "pool options")
        yield from pools_of_images(shape, pool, numbers, device)


SPECIAL = (nan, inf, -inf)
"""Values that are not finite; they show that a training went wrong, so a pool must keep them."""


def special_numbers(shape: Shape) -> List[float]:
    """Whole numbers with one special number in each 5, and minus infinity in the last third."""
    numbers = [float(number) for number in numbers_of(shape, "special pool")]
    for position in range(2, len(numbers), 5):
        numbers[position] = SPECIAL[position // 5 % len(SPECIAL)]
    # Windows of which no pixel is above the number that a kernel may begin with.
    tail = len(numbers) // 3
    numbers[-tail:] = [-inf] * tail
    return numbers


def pools_of_special_numbers(device: str) -> Iterator[Part]:
    """Catches a pool that swallows NaN or infinity, or spreads it to other windows."""
    for number, shape in enumerate(OPTION_SHAPES):
        numbers = special_numbers(shape)
        # Two of the pools for each shape.
        for pool in (OPTION_POOLS[number], OPTION_POOLS[number + 2]):
            yield from pools_of_images(shape, pool, numbers, device)
        yield from adaptive_pools(shape, numbers, device)


class PoolAnswers(NamedTuple):
    """What a pool has to answer, worked out once for all formats."""

    numbers: Sequence[float]
    windows: List[Window]
    largest: List[float]
    means: List[float]
    means_with_padding: List[float]


def answers_of(windows: List[Window], numbers: Sequence[float]) -> PoolAnswers:
    """The largest pixel and both means of each window."""
    largest = largest_in(windows, numbers)
    means = means_in(windows, numbers)
    means_with_padding = means_in(windows, numbers, with_padding=True)
    return PoolAnswers(numbers, windows, largest, means, means_with_padding)


def mean_limit(dtype_name: str) -> Limit:
    """The error allowed in a mean, which is a sum and a quotient."""
    unit = 4 * roundoff(dtype_name)
    return Limit(unit, unit)


def pools_of_images(
    shape: Shape, pool: Pool, numbers: Sequence[float], device: str
) -> Iterator[Part]:
    """Compare the results of one pool in each format and layout."""
    exact = answers_of(windows_of_pool(shape, pool), numbers)
    for dtype_name in formats_on(device):
        plain = tensor_of(numbers, dtype_name, device, *shape)
        for layout, inputs in in_both_layouts(plain):
            label = f"of {shape} {dtype_name}, {layout}, {tuple(pool)}"
            yield from largest_by_pool(inputs, pool, exact, label)
            yield from means_by_pool(inputs, pool, exact, label)


def largest_by_pool(inputs: Any, pool: Pool, exact: PoolAnswers, label: str) -> Iterator[Part]:
    """Compare the largest pixels, and the pixels at the positions that the pool returns."""
    size, stride, padding, ceil_mode = pool
    # The dilation is 1: the pixels of a window are neighbours.
    options = (size, stride, padding, 1, ceil_mode)
    compute = partial(torch.nn.functional.max_pool2d, inputs, *options, return_indices=True)
    answer = offered(compute)
    if answer is None:
        return
    yield exactly(f"max_pool2d {label}", answer[0], exact.largest)
    # Each window has a pixel of its own plane at its place.
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
"""Rows and columns of the answers of an adaptive pool; most images are no multiple of it."""


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
    """Catches a pool of rows that swallows NaN or infinity; `max_pool1d` has its own kernel."""
    functional = torch.nn.functional
    for length, size, stride in ((5, 2, 1), (33, 3, 2), (1027, 4, 4)):
        # A row is an image of one line, and so are its windows.
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
