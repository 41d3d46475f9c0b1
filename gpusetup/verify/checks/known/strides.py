"""Copies and casts of tensors in every layout: Python's lists say what must arrive where."""

from __future__ import annotations

from math import inf, nan
from typing import Any, Iterator, List, NamedTuple, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    SIGNIFICANT_BITS,
    as_stored,
    ask_all,
    exactly,
    flat_list,
    formats_on,
    repeated,
    rounded,
    tensor_of,
)

SHAPES = ((1, 1), (3, 17), (33, 65), (129, 31), (1025, 3), (2, 8195))
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
"""With the least and the largest number of float16."""


class Matrix(NamedTuple):
    """Whole numbers below 100, in rows."""

    rows: List[List[int]]

    def flat(self) -> List[int]:
        return [value for row in self.rows for value in row]

    def turned(self) -> Matrix:
        return Matrix([list(column) for column in zip(*self.rows)])


def matrix_of(height: int, width: int) -> Matrix:
    return Matrix(
        [[(37 * row + 11 * column) % 97 for column in range(width)] for row in range(height)]
    )


class Laid(NamedTuple):
    """The same matrix as a tensor that lies in memory in some way."""

    method: str
    tensor: Any


def laid_in_ways(matrix: Matrix, name: str, device: str) -> Iterator[Laid]:
    """One after the other, by columns, with gaps, after an offset."""
    height, width = len(matrix.rows), len(matrix.rows[0])
    yield Laid("plain", tensor_of(matrix.flat(), name, device, height, width))
    columns = tensor_of(matrix.turned().flat(), name, device, width, height)
    yield Laid("by columns", columns.t())
    spread = [value for number in matrix.flat() for value in (number, 99)]
    yield Laid("every second", tensor_of(spread, name, device, height, 2 * width)[:, ::2])
    framed = [value for row in matrix.rows for value in (99, 99, *row, 99)]
    yield Laid("framed", tensor_of(framed, name, device, height, width + 3)[:, 2:-1])


def strides(device: str) -> Outcome:
    """Every element of a copy or cast arrives, from any layout in any other one."""
    questions = (copies, casts, casts_that_round, casts_of_extremes, images_of_other_layouts)
    return ask_all(device, questions, "the lists that were put in")


def copies(device: str) -> Iterator[Part]:
    """Catches a copy that loses a row or column where strides or sizes are odd."""
    for name in ("float32", "bfloat16", "int64", "uint8", "float64"):
        if name == "bfloat16" and name not in formats_on(device):
            continue
        for shape in SHAPES:
            matrix = matrix_of(*shape)
            exact, turned = matrix.flat(), matrix.turned().flat()
            for laid in laid_in_ways(matrix, name, device):
                label = f"of {shape} {name}, {laid.method}"
                inputs = laid.tensor
                computed = inputs.contiguous()
                yield exactly(f"contiguous {label}", computed, exact)
                computed = inputs.t().contiguous()
                yield exactly(f"transposed copy {label}", computed, turned)
                kept_values = torch.empty_strided(
                    shape, (1, shape[0]), dtype=inputs.dtype, device=device
                )
                computed = kept_values.copy_(inputs)
                yield exactly(f"copy_ by columns {label}", computed, exact)
                gaps = torch.zeros(shape[0], shape[1] + 1, dtype=inputs.dtype, device=device)
                gaps[:, 1:].copy_(inputs)
                framed = [value for row in matrix.rows for value in (0, *row)]
                yield exactly(f"copy_ into a part {label}", gaps, framed)
                first = torch.zeros_like(inputs[:1]).copy_(inputs[:1]).expand(3, -1)
                computed = first.clone()
                yield exactly(f"expanded row {label}", computed, matrix.rows[0] * 3)


def casts(device: str) -> Iterator[Part]:
    """Catches a cast between two formats that loses elements of some layout."""
    names = [name for name in CAST_FORMATS if name != "bfloat16" or name in formats_on(device)]
    for number, source in enumerate(names):
        # Another shape for each format: all come round.
        for step, target in enumerate(names):
            shape = SHAPES[(number + step) % (len(SHAPES) - 1)]
            matrix = matrix_of(*shape)
            for laid in laid_in_ways(matrix, source, device):
                computed = laid.tensor.to(getattr(torch, target))
                label = f"{source} to {target} of {shape}, {laid.method}"
                yield exactly(label, computed, matrix.flat())


def casts_that_round(device: str) -> Iterator[Part]:
    """Catches a cast that cuts digits off, or makes something else of what is too large."""
    whole: List[int] = []
    for exponent in range(1, 15):
        for odd in range(1, 32, 2):
            whole.append(2**exponent * 8 + odd)
    numbers = whole + [-value for value in whole]
    for name in formats_on(device):
        bits = SIGNIFICANT_BITS[name]
        exact = [rounded(value, bits) for value in numbers]
        expected = [as_stored(value, name) for value in exact]
        for source in ("float64", "float32", "int64"):
            inputs = tensor_of(numbers, source, device)
            computed = inputs.to(getattr(torch, name))
            yield exactly(f"{source} rounded to {name}", computed, expected)
            target = torch.zeros(len(numbers), dtype=getattr(torch, name), device=device)
            computed = target.copy_(inputs)
            yield exactly(f"{source} copied into {name}", computed, expected)
    large = [2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**24) - 1]
    computed = tensor_of(large, "int64", device).to(torch.float32)
    yield exactly("int64 rounded to float32", computed, [rounded(value, 24) for value in large])
    fractions = [2.75, -2.75, 0.5, -0.5, 99.99]
    computed = tensor_of(fractions, "float32", device).to(torch.int32)
    yield exactly("fractions cut to int32", computed, [2, -2, 0, 0, 99])
    computed = tensor_of([0.0, 0.25, -3.0, -0.0], "float32", device).to(torch.bool)
    yield exactly("numbers as flags", computed, [False, True, True, False])


def casts_of_extremes(device: str) -> Iterator[Part]:
    """Catches a cast that makes a number of NaN, or another one of infinity, zero and denormals."""
    for length in (9, 1025):
        values = repeated(EXTREMES, length)
        for source in formats_on(device):
            inputs = tensor_of(values, source, device)
            # bfloat16 has too few digits for the largest number of float16.
            numbers = flat_list(inputs)
            for target in formats_on(device):
                label = f"extremes of {length} {source} numbers to {target}"
                exact = [as_stored(value, target) for value in numbers]
                computed = inputs.to(getattr(torch, target))
                if target == "bfloat16":
                    exact = [-65_536.0 if value == -65_504.0 else value for value in exact]
                yield exactly(label, computed, exact)
                computed = inputs.to(getattr(torch, target)).isnan()
                yield exactly(f"NaN among {label}", computed, [v != v for v in numbers])


def images_of_other_layouts(device: str) -> Iterator[Part]:
    """Catches channels or pixels that are mixed up between the two layouts of images."""
    for name in ("float32", "float64", "float16"):
        for shape in ((2, 3, 5, 7), (1, 17, 9, 4), (3, 64, 3, 3)):
            count = shape[0] * shape[1] * shape[2] * shape[3]
            values = [position % 97 for position in range(count)]
            inputs = tensor_of(values, name, device, *shape)
            label = f"of {shape} {name}"
            last = inputs.contiguous(memory_format=torch.channels_last)
            yield exactly(f"channels last {label}", last, values)
            computed = last.contiguous()
            yield exactly(f"channels last and back {label}", computed, values)
            doubled = (last + last).contiguous()
            yield exactly(f"sum in channels last {label}", doubled, [2 * v for v in values])
            pixels = last.permute(0, 2, 3, 1).reshape(-1, shape[1])
            exact = channels_of_pixels(values, shape)
            yield exactly(f"channels of pixels {label}", pixels, exact)


def channels_of_pixels(values: List[int], shape: Tuple[int, int, int, int]) -> List[int]:
    """The elements of images, pixel by pixel."""
    images, channels, height, width = shape
    pixels = height * width
    computed: List[int] = []
    for image in range(images):
        for pixel in range(pixels):
            start = image * channels * pixels + pixel
            computed += values[start : start + channels * pixels : pixels]
    return computed
