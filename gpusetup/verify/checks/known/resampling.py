"""Resizing, folding, convolution and sampling of rows and images, and gradients of resizing and
pooling.

Each new pixel is a weighted sum of a few source pixels, with simple weights that Python can
compute.
"""

from __future__ import annotations

import functools
from itertools import product
from math import floor
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    Limit,
    ask_all,
    exactly,
    flat_list,
    formats_on,
    in_both_layouts,
    near,
    offered,
    roundoff,
    tensor_of,
)
from .number_lists import columns_of, joined, rows_of_length, sawtooth
from .row_layers import (
    gradients_of_pools,
    rows_convolved,
    strided_transposed_rows,
    volumes_convolved,
    whole_row,
)

LENGTHS = (5, 17, 65, 1027)
"""Row lengths in pixels. The longest row is longer than a block of 1,024."""
Shares = Dict[int, float]
"""Maps the position of a source pixel to its weight in a new pixel."""
Weigher = Callable[[int, int, int], Shares]
"""Takes the position of a new pixel, the old length and the new length, and returns the weights of
the old pixels."""


def resampling(device: str) -> Outcome:
    """Check that resized, pooled, folded and convolved rows and images agree with weighted sums in
    Python."""
    questions = (
        enlarged_rows,
        enlarged_images,
        gradients_of_pools,
        rows_convolved,
        volumes_convolved,
        strided_transposed_rows,
        folded_images,
        shuffled_pixels,
        sampled_images,
    )
    return ask_all(device, questions, "weighted sums in Python")


# --- resizing -------------------------------------------------------------------------------------


def linear_shares(position: int, old: int, new: int) -> Shares:
    """Linear interpolation between the two old pixels whose centers are nearest to the new pixel's
    center. Before the first center and after the last one, the new pixel equals that old pixel."""
    center = (position + 0.5) * old / new
    source = max(0.0, center - 0.5)
    return between(source, old)


def corner_shares(position: int, old: int, new: int) -> Shares:
    """Linear interpolation with `align_corners=True`, where the first and last pixels of the old
    and the new row coincide.

    `new` must be at least 2. All rows here have at least three pixels.
    """
    old_last = old - 1
    new_last = new - 1
    source = position * old_last / new_last
    return between(source, old)


def between(source: float, length: int) -> Shares:
    """The weights of the two pixels around a position. The nearer pixel has the larger weight.

    >>> between(1.25, 4), between(3.5, 4)
    ({1: 0.75, 2: 0.25}, {3: 1.0})
    """
    last = length - 1
    first = min(floor(source), last)
    second = min(first + 1, last)
    if second == first:
        return {first: 1.0}
    second_share = source - first
    return {first: 1 - second_share, second: second_share}


def nearest_shares(position: int, old: int, new: int) -> Shares:
    """The source pixel under the start of the new pixel (`nearest`)."""
    source = position * old // new
    return {source: 1.0}


def exact_nearest_shares(position: int, old: int, new: int) -> Shares:
    """The source pixel under the center of the new pixel (`nearest-exact`)."""
    center = (position + 0.5) * old / new
    return {floor(center): 1.0}


def area_shares(position: int, old: int, new: int) -> Shares:
    """The mean of all source pixels that the new pixel covers, at least in part (`area`)."""
    start = position * old // new
    # Round the end up.
    stop = -(-(position + 1) * old // new)
    covered = range(start, stop)
    return dict.fromkeys(covered, 1 / len(covered))


class Mode(NamedTuple):
    """A mode of torch's `interpolate`: its name, its options, and the function that returns the
    weights of the source pixels."""

    name: str
    options: Dict[str, Any]
    weigher: Weigher


MODES = (
    Mode("linear", {"align_corners": False}, linear_shares),
    Mode("linear", {"align_corners": True}, corner_shares),
    Mode("nearest", {}, nearest_shares),
    Mode("nearest-exact", {}, exact_nearest_shares),
    Mode("area", {}, area_shares),
)


def weighed(row: Sequence[float], new: int, weigher: Weigher) -> List[float]:
    """The exact resized row: each new pixel is a weighted sum of source pixels."""
    pixels: List[float] = []
    for position in range(new):
        pixel = 0.0
        for source, share in weigher(position, len(row), new).items():
            pixel += share * row[source]
        pixels.append(pixel)
    return pixels


def gradient_of_weighed(upstream: Sequence[float], old: int, weigher: Weigher) -> List[float]:
    """Returns the gradient of each old pixel: the sum of the new pixels' gradients, each multiplied
    by the old pixel's weight in that new pixel."""
    gradient = [0.0] * old
    for position, value in enumerate(upstream):
        shares = weigher(position, old, len(upstream))
        for source, share in shares.items():
            gradient[source] += share * value
    return gradient


def enlarged_rows(device: str) -> Iterator[Part]:
    """Catches resized rows with wrong weights, shifted pixels or a missing end, and wrong
    gradients."""
    for mode in MODES:
        for length in LENGTHS:
            # Resize to twice the length, three times the length, and about half.
            for new_length in (2 * length, 3 * length, length // 2 + 1):
                yield from enlarged_row(mode, length, new_length, device)


def enlarged_row(mode: Mode, length: int, new_length: int, device: str) -> Iterator[Part]:
    """Compare one row resized to a new length, and the gradient of its pixels."""
    row = whole_row(length, "enlarged")
    exact = weighed(row, new_length, mode.weigher)
    upstream = whole_row(new_length, "upstream")
    exact_gradient = gradient_of_weighed(upstream, length, mode.weigher)
    for dtype_name in formats_on(device):
        leaf = tensor_of(row, dtype_name, device, 1, 1, length).requires_grad_()
        enlarge = functools.partial(
            torch.nn.functional.interpolate, leaf, new_length, mode=mode.name, **mode.options
        )
        computed = offered(enlarge)
        if computed is None:
            continue
        arriving = tensor_of(upstream, dtype_name, device, 1, 1, new_length)
        (gradient,) = torch.autograd.grad(computed, leaf, arriving)

        label = f"{mode.name} {length} to {new_length} of {dtype_name}, {mode.options}"
        limit = position_limit(dtype_name, length)
        yield near(label, computed, exact, limit)
        # The gradient of an old pixel is a sum over several new pixels, whose errors add up.
        gradient_limit = Limit(limit.relative, 4 * limit.absolute)
        yield near(f"gradient of {label}", gradient, exact_gradient, gradient_limit)


def position_limit(dtype_name: str, length: int) -> Limit:
    """The error allowed in resizing rows of this length.

    Positions are computed in float32 or better, so their error grows with the length of the row.
    """
    unit = roundoff(dtype_name)
    position_unit = min(unit, roundoff("float32"))
    # An error in a position is multiplied by the difference between two neighbouring pixels, which
    # is at most 8.
    from_position = 64 * length * position_unit
    return Limit(relative=4 * unit, absolute=16 * unit + from_position)


def enlarged_images(device: str) -> Iterator[Part]:
    """Catches a bilinear resize that swaps rows and columns. Tests both memory layouts."""
    height, width = 7, 12
    # The factors for rows and columns differ, so that swapping them shows.
    new_height, new_width = 3 * height, 2 * width
    longest_side = max(height, width)
    for channels in (1, 3, 17):
        pixels = whole_row(channels * height * width, "image")
        rows = rows_of_length(pixels, width)
        exact: List[float] = []
        for plane in rows_of_length(rows, height):
            exact += enlarged_plane(plane, new_height, new_width)

        for dtype_name in formats_on(device):
            limit = position_limit(dtype_name, longest_side)
            plain = tensor_of(pixels, dtype_name, device, 1, channels, height, width)
            for layout, images in in_both_layouts(plain):
                computed = torch.nn.functional.interpolate(
                    images, (new_height, new_width), mode="bilinear", align_corners=False
                )
                label = f"bilinear image of {channels} channels, {dtype_name}, {layout}"
                yield near(label, computed, exact, limit)


def enlarged_plane(rows: Sequence[Sequence[float]], new_height: int, new_width: int) -> List[float]:
    """The exact pixels of one resized channel, row by row. Each row is resized first, then each
    column."""
    wide_rows = [weighed(row, new_width, linear_shares) for row in rows]
    high_columns: List[List[float]] = []
    for column in columns_of(wide_rows):
        high_columns.append(weighed(column, new_height, linear_shares))
    new_rows = columns_of(high_columns)
    return joined(new_rows)


# --- pixels that move -----------------------------------------------------------------------------


def folded_images(device: str) -> Iterator[Part]:
    """Catches an unfold or fold that reads or writes a patch at the wrong place."""
    channels, height, width = 2, 6, 9
    patch_height, patch_width = 2, 3
    patch = (patch_height, patch_width)
    values = sawtooth(channels * height * width, period=61)
    rows = rows_of_length(values, width)
    # Each row of the output of `unfold` contains one pixel of the patch, for all patches.
    exact: List[float] = []
    pixels = product(range(channels), range(patch_height), range(patch_width))
    for channel, down, across in pixels:
        for top in range(down, height, patch_height):
            row = rows[channel * height + top]
            exact += row[across::patch_width]

    for dtype_name in ("float32", "float16", "float64"):
        inputs = tensor_of(values, dtype_name, device, 1, channels, height, width)
        patches = torch.nn.functional.unfold(inputs, patch, stride=patch)
        yield exactly(f"unfold of {dtype_name}", patches, exact)
        # The patches do not overlap, so `fold` must restore the image.
        image = torch.nn.functional.fold(patches, (height, width), patch, stride=patch)
        yield exactly(f"fold of {dtype_name}", image, values)


def shuffled_pixels(device: str) -> Iterator[Part]:
    """Catches a pixel_shuffle or pixel_unshuffle that moves channels to the wrong row or column."""
    height, width, factor = 3, 5, 2
    channels = factor * factor
    values = [float(position) for position in range(channels * height * width)]
    rows = rows_of_length(values, width)
    exact: List[float] = []
    for y, x in product(range(height * factor), range(width * factor)):
        # The channels of each pixel become a small square of pixels, row by row.
        row_number, down = divmod(y, factor)
        column, across = divmod(x, factor)
        channel = down * factor + across
        row = rows[channel * height + row_number]
        exact.append(row[column])

    for dtype_name in formats_on(device):
        inputs = tensor_of(values, dtype_name, device, 1, channels, height, width)
        computed = torch.nn.functional.pixel_shuffle(inputs, factor)
        yield exactly(f"pixel_shuffle of {dtype_name}", computed, exact)
        computed = torch.nn.functional.pixel_unshuffle(computed, factor)
        yield exactly(f"pixel_unshuffle of {dtype_name}", computed, flat_list(inputs))


def sampled_images(device: str) -> Iterator[Part]:
    """Catches a grid_sample that swaps axes, or handles positions outside the image wrongly."""
    height, width = 5, 9
    values = whole_row(height * width, "sampled")
    rows = rows_of_length(values, width)
    exact: List[float] = []
    grid: List[float] = []
    # Sample at multiples of a quarter of a pixel, so that positions and weights are exact. Some
    # positions are outside the image.
    for y, x in product(range(-3, 20, 3), range(-2, 36, 5)):
        row, column = y / 4, x / 4
        exact.append(sampled(rows, row, column))
        # In the grid, -1 is the first pixel and 1 is the last, and the column comes before the row.
        grid_x = 2 * column / (width - 1) - 1
        grid_y = 2 * row / (height - 1) - 1
        grid += (grid_x, grid_y)

    for dtype_name in ("float32", "float64"):
        inputs = tensor_of(values, dtype_name, device, 1, 1, height, width)
        places = tensor_of(grid, dtype_name, device, 1, 1, len(exact), 2)
        computed = torch.nn.functional.grid_sample(inputs, places, align_corners=True)
        limit = Limit(absolute=256 * roundoff(dtype_name))
        yield near(f"grid_sample of {dtype_name}", computed, exact, limit)


def sampled(rows: Sequence[Sequence[float]], y: float, x: float) -> float:
    """The exact bilinear sample at this position. Pixels outside the image count as zero."""
    top = floor(y)
    left_column = floor(x)
    rows_inside = range(len(rows))
    columns_inside = range(len(rows[0]))
    total = 0.0
    for down, across in product((0, 1), (0, 1)):
        row = top + down
        column = left_column + across
        if row not in rows_inside or column not in columns_inside:
            continue
        row_share = 1 - abs(y - row)
        column_share = 1 - abs(x - column)
        total += row_share * column_share * rows[row][column]
    return total
