"""Copies and casts of tensors in several memory layouts, compared with Python lists."""

from __future__ import annotations

from math import inf, isnan, nan, prod
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    LARGEST_FLOAT16,
    SIGNIFICANT_BITS,
    as_stored,
    ask_all,
    dtype_of,
    exactly,
    flat_list,
    formats_on,
    rounded,
    tensor_of,
)
from .number_lists import columns_of, joined, repeated, sawtooth, scaled

SHAPES = ((1, 1), (3, 17), (33, 65), (129, 31), (1025, 3), (2, 8195))
"""Shapes of the matrices: a single number, wide and high matrices, and rows longer than a kernel's
block."""
CAST_FORMATS = (
    "float32",
    "bfloat16",
    "float16",
    "float64",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
)


EXTREMES = (nan, inf, -inf, 0.0, -0.0, 2.0**-24, -(2.0**-20), 1.0, -65_504.0)
"""NaN, infinities, both zeros, and the smallest and largest numbers of float16."""


class Matrix(NamedTuple):
    """A matrix of whole numbers below 100."""

    rows: List[List[int]]

    def flat(self) -> List[int]:
        """Returns the elements in row-major order."""
        return joined(self.rows)

    def transposed(self) -> Matrix:
        return Matrix(columns_of(self.rows))

    def with_frame(self, before: Sequence[int], after: Sequence[int]) -> List[int]:
        """Returns the elements in row-major order, with `before` and `after` added to each row."""
        framed: List[int] = []
        for row in self.rows:
            framed += [*before, *row, *after]
        return framed


def matrix_of(height: int, width: int) -> Matrix:
    """Make a matrix in which neighbouring elements differ along both axes."""
    rows: List[List[int]] = []
    for number in range(height):
        # Numbers below 97 fit into every format here, also int8.
        row = [(37 * number + 11 * column) % 97 for column in range(width)]
        rows.append(row)
    return Matrix(rows)


FILLING = 99
"""The number in the gaps of a layout. It is larger than all elements of a matrix."""


class Laid(NamedTuple):
    """A matrix as a tensor, with the name of its memory layout."""

    method: str
    tensor: Any


def laid_in_ways(matrix: Matrix, dtype_name: str, device: str) -> Iterator[Laid]:
    """Yields the matrix in four memory layouts: contiguous, column-major, every second element, and
    framed."""
    height = len(matrix.rows)
    width = len(matrix.rows[0])
    plain = tensor_of(matrix.flat(), dtype_name, device, height, width)
    yield Laid("plain", plain)

    columns = tensor_of(matrix.transposed().flat(), dtype_name, device, width, height)
    yield Laid("by columns", columns.t())

    # The next two layouts are views: of every second element, and of all columns except three.
    with_gaps = joined((number, FILLING) for number in matrix.flat())
    spread = tensor_of(with_gaps, dtype_name, device, height, 2 * width)
    yield Laid("every second", spread[:, ::2])

    with_frame = matrix.with_frame([FILLING, FILLING], [FILLING])
    framed = tensor_of(with_frame, dtype_name, device, height, width + 3)
    yield Laid("framed", framed[:, 2:-1])


def strides(device: str) -> Outcome:
    """Check that copies and casts between memory layouts keep every element."""
    questions = (
        copies,
        casts,
        casts_that_round,
        casts_of_extremes,
        images_of_other_layouts,
        gradients_of_slices,
    )
    return ask_all(device, questions, "the lists that were put in")


def copies(device: str) -> Iterator[Part]:
    """Catches a copy that leaves out a row or column for unusual strides or odd sizes."""
    for dtype_name in ("float32", "bfloat16", "int64", "uint8", "float64"):
        if dtype_name == "bfloat16" and dtype_name not in formats_on(device):
            continue
        for shape in SHAPES:
            matrix = matrix_of(*shape)
            for laid in laid_in_ways(matrix, dtype_name, device):
                label = f"of {shape} {dtype_name}, {laid.method}"
                yield from copies_of(laid.tensor, matrix, label)


def copies_of(inputs: Any, matrix: Matrix, label: str) -> Iterator[Part]:
    """Compare copies of one tensor, some of them into tensors with another memory layout."""
    exact = matrix.flat()
    computed = inputs.contiguous()
    yield exactly(f"contiguous {label}", computed, exact)
    computed = inputs.t().contiguous()
    yield exactly(f"transposed copy {label}", computed, matrix.transposed().flat())

    height, width = inputs.shape
    by_columns = inputs.new_empty((width, height)).t()
    computed = by_columns.copy_(inputs)
    yield exactly(f"copy_ by columns {label}", computed, exact)

    wider = inputs.new_zeros(height, width + 1)
    wider[:, 1:].copy_(inputs)
    exact = matrix.with_frame([0], [])
    yield exactly(f"copy_ into a part {label}", wider, exact)

    # Expand one row to three rows that share its memory.
    first_row = inputs[:1]
    copied_row = torch.zeros_like(first_row).copy_(first_row)
    computed = copied_row.expand(3, -1).clone()
    yield exactly(f"expanded row {label}", computed, matrix.rows[0] * 3)


def casts(device: str) -> Iterator[Part]:
    """Catches a cast between two formats that leaves out elements in some memory layout."""
    dtype_names = [*CAST_FORMATS]
    if "bfloat16" not in formats_on(device):
        dtype_names.remove("bfloat16")
    # The last shape is left out, because it is large and would be cast many times.
    shapes = SHAPES[:-1]
    for source_number, source in enumerate(dtype_names):
        for target_number, target in enumerate(dtype_names):
            # Each pair of formats is tested with one of the shapes, in turn.
            shape = shapes[(source_number + target_number) % len(shapes)]
            matrix = matrix_of(*shape)
            for laid in laid_in_ways(matrix, source, device):
                computed = laid.tensor.to(dtype_of(target))
                label = f"{source} to {target} of {shape}, {laid.method}"
                yield exactly(label, computed, matrix.flat())


def numbers_to_round() -> List[int]:
    """Positive and negative whole numbers with 5 to 18 binary digits. The 16-bit formats have to
    round most of them."""
    positive: List[int] = []
    for exponent in range(1, 15):
        power = 2**exponent * 8
        # The part that is rounded away is less than, exactly, or more than half of the last digit
        # that is kept.
        for odd in range(1, 32, 2):
            positive.append(power + odd)
    negative = [-value for value in positive]
    return positive + negative


def casts_that_round(device: str) -> Iterator[Part]:
    """Catches a cast that truncates instead of rounding, or handles overflow wrongly."""
    numbers = numbers_to_round()
    for target in formats_on(device):
        exact: List[float] = []
        for number in numbers:
            nearest = rounded(number, SIGNIFICANT_BITS[target])
            exact.append(as_stored(nearest, target))
        for source in ("float64", "float32", "int64"):
            inputs = tensor_of(numbers, source, device)
            computed = inputs.to(dtype_of(target))
            yield exactly(f"{source} rounded to {target}", computed, exact)
            zeros = torch.zeros(len(numbers), dtype=dtype_of(target), device=device)
            computed = zeros.copy_(inputs)
            yield exactly(f"{source} copied into {target}", computed, exact)

    # float32 holds 24 binary digits of an integer, so these have to be rounded.
    large = [2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**24) - 1]
    nearest_float32 = [rounded(value, 24) for value in large]
    computed = tensor_of(large, "int64", device).to(torch.float32)
    yield exactly("int64 rounded to float32", computed, nearest_float32)

    # A cast to an integer truncates toward zero. A cast to bool is true for every number except
    # zero.
    fractions = [2.75, -2.75, 0.5, -0.5, 99.99]
    computed = tensor_of(fractions, "float32", device).to(torch.int32)
    yield exactly("fractions cut to int32", computed, [2, -2, 0, 0, 99])
    computed = tensor_of([0.0, 0.25, -3.0, -0.0], "float32", device).to(torch.bool)
    yield exactly("numbers as flags", computed, [False, True, True, False])


def casts_of_extremes(device: str) -> Iterator[Part]:
    """Catches a cast that turns NaN into a number, or changes infinity, zero or a subnormal
    number."""
    for length in (9, 1025):
        values = repeated(EXTREMES, length)
        for source in formats_on(device):
            inputs = tensor_of(values, source, device)
            # Read the numbers back, because bfloat16 rounds one of them: it has too few digits for
            # the largest float16.
            stored_values = flat_list(inputs)
            are_nan = [isnan(value) for value in stored_values]
            for target in formats_on(device):
                label = f"extremes of {length} {source} numbers to {target}"
                exact = [extreme_as_stored(value, target) for value in stored_values]
                computed = inputs.to(dtype_of(target))
                yield exactly(label, computed, exact)
                computed = inputs.to(dtype_of(target)).isnan()
                yield exactly(f"NaN among {label}", computed, are_nan)


def extreme_as_stored(value: float, dtype_name: str) -> float:
    """Returns an extreme number as the format stores it."""
    if dtype_name == "bfloat16" and value == -LARGEST_FLOAT16:
        # The nearest number with eight binary digits is -2**16.
        return -65_536.0
    return as_stored(value, dtype_name)


ImageShape = Tuple[int, int, int, int]
"""Images, channels, rows and columns."""
IMAGE_SHAPES: Tuple[ImageShape, ...] = ((2, 3, 5, 7), (1, 17, 9, 4), (3, 64, 3, 3))
"""The shapes to test: images, channels, rows and columns."""


def images_of_other_layouts(device: str) -> Iterator[Part]:
    """Catches channels or pixels that are mixed up in conversions between contiguous and
    channels-last images."""
    for dtype_name in ("float32", "float64", "float16"):
        for shape in IMAGE_SHAPES:
            values = sawtooth(prod(shape), period=97)
            inputs = tensor_of(values, dtype_name, device, *shape)
            label = f"of {shape} {dtype_name}"

            channels_last = inputs.contiguous(memory_format=torch.channels_last)
            yield exactly(f"channels last {label}", channels_last, values)
            computed = channels_last.contiguous()
            yield exactly(f"channels last and back {label}", computed, values)
            computed = (channels_last + channels_last).contiguous()
            doubled = scaled(values, 2)
            yield exactly(f"sum in channels last {label}", computed, doubled)

            rows_of_channels = channels_last.permute(0, 2, 3, 1).reshape(-1, shape[1])
            exact = channels_of_pixels(values, shape)
            yield exactly(f"channels of pixels {label}", rows_of_channels, exact)


def channels_of_pixels(values: List[float], shape: ImageShape) -> List[float]:
    """The elements of the images in channels-last order, pixel by pixel."""
    images, channels, height, width = shape
    pixels = height * width
    image_size = channels * pixels
    by_pixels: List[float] = []
    for image in range(images):
        for pixel in range(pixels):
            first = image * image_size + pixel
            end = first + image_size
            by_pixels += values[first:end:pixels]
    return by_pixels


# --- gradients of slices --------------------------------------------------------------------------

SLICE_STEPS = (1, 2, 3, 7)
FIRST_TAKEN = 1
"""The index at which a slice starts. It is not 0, so that the slice leaves out elements before it
too."""


def gradients_of_slices(device: str) -> Iterator[Part]:
    """Catches a slice whose gradient reaches elements outside the slice."""
    for dtype_name in ("float32", "float64"):
        for height, width in ((3, 17), (33, 65)):
            for step in SLICE_STEPS:
                leaf = torch.zeros(
                    height, width, dtype=dtype_of(dtype_name), device=device, requires_grad=True
                )
                label = f"{height} x {width} {dtype_name}, every {step}. one"
                taken = leaf[:, FIRST_TAKEN::step]
                places = [
                    row * width + column
                    for row in range(height)
                    for column in range(FIRST_TAKEN, width, step)
                ]
                yield gradient_of_slice(f"column of {label}", leaf, taken, places)

                taken = leaf[FIRST_TAKEN::step]
                places = [
                    row * width + column
                    for row in range(FIRST_TAKEN, height, step)
                    for column in range(width)
                ]
                yield gradient_of_slice(f"row of {label}", leaf, taken, places)


def gradient_of_slice(label: str, leaf: Any, taken: Any, places: Sequence[int]) -> Part:
    """Compare the gradient of a slice. Its elements, at the positions `places`, must get their
    upstream gradients, and all others must get 0."""
    upstream = sawtooth(len(places), period=5, start=1)
    arriving = torch.tensor(upstream, dtype=taken.dtype).reshape(taken.shape).to(taken.device)
    (computed,) = torch.autograd.grad(taken, leaf, arriving)
    exact = [0.0] * leaf.numel()
    for place, number in zip(places, upstream):
        exact[place] = number
    return exactly(f"gradient of a slice: {label}", computed, exact)
