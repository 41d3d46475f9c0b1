"""Sums, means, norms and gradients of whole numbers, most of which are exact in float32.

torch adds up 16-bit numbers in float32 and rounds the sum once. A sum of ones that is kept in 16
bits would stop growing at 256 (bfloat16) or 2,048 (float16).
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Iterator, List

import torch

from ...judging.tolerance import Part
from ...values import Outcome, kind
from .answers import (
    HALVES,
    SIGNIFICANT_BITS,
    Limit,
    as_stored,
    ask_all,
    dice,
    dtype_name_of,
    dtype_of,
    exactly,
    formats_on,
    near,
    rounded,
    roundoff,
    tensor_of,
)
from .number_lists import ONE, columns_of, joined, there_and_back

LENGTHS = (1, 17, 129, 1000, 1025, 4099, 32_769)
"""Row lengths below and above a kernel's vector, a block of 1,024, and the part of one CPU thread
(32,768)."""
LONGEST = 1_048_579
"""A length above 2**20, which gives many blocks and a partial one."""


def sums(device: str) -> Outcome:
    """Check that sums over rows, columns and whole tensors, norms, and accumulated gradients are
    right."""
    questions = (
        sums_of_rows_and_columns,
        sums_that_cancel,
        long_sums,
        products_with_ones,
        gradients_that_add_up,
        gradients_of_what_was_spread,
        lengths_of_vectors,
        lengths_of_ones,
    )
    return ask_all(device, questions, "whole numbers")


def row_of(length: int, salt: str) -> List[int]:
    """A row of random numbers from 0 to 3 that ends with 64, so that a sum without the last element
    is clearly wrong."""
    chance = dice(f"sum {length} {salt}")
    row = [chance.randint(0, 3) for _ in range(length)]
    row[-1] = 64
    return row


def nearest(total: int, dtype_name: str) -> float:
    """Returns the exact sum, rounded to the format."""
    nearest_number = rounded(total, SIGNIFICANT_BITS[dtype_name])
    return as_stored(nearest_number, dtype_name)


def sum_limit(dtype_name: str) -> Limit:
    """The error allowed in a sum. It is 0, except in 16-bit formats, where each thread may round
    its part."""
    if dtype_name in HALVES:
        return Limit(relative=4 * roundoff(dtype_name))
    return Limit()


# --- sums -----------------------------------------------------------------------------------------


def sums_of_rows_and_columns(device: str) -> Iterator[Part]:
    """Catches a sum that is kept in 16 bits, leaves out the end of a row, or adds along the wrong
    axis."""
    for dtype_name in formats_on(device):
        for length in LENGTHS:
            rows = [row_of(length, f"{number}") for number in range(3)]
            yield from sums_of_rows(rows, dtype_name, device)


def sums_of_rows(rows: List[List[int]], dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the sums and means of a few rows in several memory layouts."""
    height = len(rows)
    length = len(rows[0])
    inputs = tensor_of(joined(rows), dtype_name, device, height, length)
    turned = tensor_of(joined(zip(*rows)), dtype_name, device, length, height)
    totals = [sum(row) for row in rows]
    exact = [nearest(total, dtype_name) for total in totals]
    label = f"of {length} {dtype_name} numbers"
    limit = sum_limit(dtype_name)

    computed = inputs.sum(1)
    yield near(f"sum of rows {label}", computed, exact, limit)
    computed = turned.sum(0)
    yield near(f"sum of columns {label}", computed, exact, limit)
    computed = turned.t().sum(1)
    yield near(f"sum of strided rows {label}", computed, exact, limit)
    computed = turned.expand(2, -1, -1).sum(1)
    yield near(f"sum of the middle axis {label}", computed, exact * 2, limit)
    whole = nearest(sum(totals), dtype_name)
    computed = inputs.sum()
    yield near(f"sum of everything {label}", computed, [whole], limit)

    means = [total / length for total in totals]
    computed = inputs.mean(1)
    yield near(f"mean of rows {label}", computed, means, Limit(4 * roundoff(dtype_name)))
    # With dtype=float64, even a sum of 16-bit numbers is not rounded.
    computed = inputs.sum(1, dtype=torch.float64)
    yield exactly(f"sum in float64 {label}", computed, totals)


def sums_that_cancel(device: str) -> Iterator[Part]:
    """Catches partial sums that are kept or added up in 16 bits, for a whole tensor or along an
    axis.

    All numbers except one cancel out, so that a lost digit shows.
    """
    # Three rows have fewer than 32,768 numbers. With more, a CPU splits the sum between threads,
    # each of which rounds its part.
    step_counts = [4096]
    if kind(device) == "cuda":
        # On a GPU, several blocks compute such a sum, and their partial sums are float32.
        step_counts.append(131_072)
    for dtype_name in formats_on(device):
        for steps in step_counts:
            for run in (1, 16, steps // 2):
                row = there_and_back(steps, run)
                inputs = tensor_of(row, dtype_name, device)
                label = f"of {len(row)} {dtype_name} numbers, runs of {run}"
                yield from sums_of_equal_rows(inputs, label)


def sums_of_equal_rows(inputs: Any, label: str) -> Iterator[Part]:
    """Compare the sums and means of one row, three equal rows, and three equal columns."""
    length = len(inputs)
    rows = inputs.expand(3, -1).contiguous()
    columns = rows.t().contiguous()

    yield exactly(f"sum of everything {label}", inputs.sum(), [ONE])
    yield exactly(f"sum of rows {label}", rows.sum(1), [ONE] * 3)
    yield exactly(f"sum of columns {label}", columns.sum(0), [ONE] * 3)
    yield exactly(f"sum without NaN {label}", inputs.nansum(), [ONE])
    # A mean is rounded twice: the number of elements is rounded to the format, and then the
    # quotient is rounded.
    limit = Limit(4 * roundoff(dtype_name_of(inputs)))
    mean = ONE / length
    yield near(f"mean of everything {label}", inputs.mean(), [mean], limit)
    yield near(f"mean of rows {label}", rows.mean(1), [mean] * 3, limit)
    yield near(f"mean of columns {label}", columns.mean(0), [mean] * 3, limit)


def long_sums(device: str) -> Iterator[Part]:
    """Catches a sum of a million numbers that leaves out the last block."""
    row = row_of(LONGEST, "long")
    # Torch adds up integers in 64 bits, so a sum of uint8 numbers can exceed 255.
    total = sum(row)
    count = len(row) - row.count(0)
    for dtype_name in ("float32", "float64", "int32", "uint8"):
        inputs = tensor_of(row, dtype_name, device)
        computed = inputs.sum()
        yield exactly(f"sum of a million {dtype_name} numbers", computed, [total])
        computed = inputs.count_nonzero()
        yield exactly(f"count of a million {dtype_name} numbers", computed, [count])


def products_with_ones(device: str) -> Iterator[Part]:
    """Catches dot, matrix-vector products and einsum that leave out the end of a vector."""
    for dtype_name in ("float32", "float64"):
        for length in (*LENGTHS, 250_007):
            yield from product_with_ones(length, dtype_name, device)


def product_with_ones(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare products of a row with a vector of ones. Each result is the row's sum."""
    row = row_of(length, "ones")
    total = sum(row)
    inputs = tensor_of(row, dtype_name, device)
    ones = torch.ones_like(inputs)
    label = f"of {length} {dtype_name} numbers"

    computed = torch.dot(inputs, ones)
    yield exactly(f"dot {label}", computed, [total])
    # A matrix of three equal rows that share memory (stride 0).
    three_rows = inputs.expand(3, -1)
    computed = torch.mv(three_rows, ones)
    yield exactly(f"matrix by vector {label}", computed, [total] * 3)
    twos = tensor_of([2, 2, 2], dtype_name, device)
    computed = torch.addmv(twos, three_rows, ones)
    yield exactly(f"vector plus matrix by vector {label}", computed, [total + 2] * 3)
    columns = three_rows.t().contiguous()
    computed = ones @ columns
    yield exactly(f"vector by matrix {label}", computed, [total] * 3)
    computed = torch.einsum("ij,j->i", three_rows, ones)
    yield exactly(f"einsum {label}", computed, [total] * 3)


# --- gradients ------------------------------------------------------------------------------------


def gradients_that_add_up(device: str) -> Iterator[Part]:
    """Catches a second backward pass that replaces the gradient instead of adding to it."""
    for dtype_name in formats_on(device):
        for length in (1, 33, 1025, 70_001):
            yield from gradients_of_factors(length, dtype_name, device)


def gradients_of_factors(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare accumulated gradients. The gradient of sum(parameter * factor) is the factor."""
    factors: List[List[int]] = []
    for number in range(3):
        # The sum of three factors is at most 60, which is exact in every format.
        factors.append([(5 * position + number) % 21 for position in range(length)])
    tensors = [tensor_of(factor, dtype_name, device) for factor in factors]
    parameter = torch.zeros_like(tensors[0]).requires_grad_()
    label = f"of {length} {dtype_name} numbers"

    for tensor in tensors:
        loss = (parameter * tensor).sum()
        loss.backward()
    exact = list(map(sum, zip(*factors)))
    yield exactly(f"three gradients {label}", parameter.grad, exact)

    # A parameter that is used twice in one backward pass gets the sum of both gradients.
    parameter.grad = None
    first_loss = (parameter * tensors[0]).sum()
    second_loss = (parameter * tensors[1]).sum()
    (first_loss + second_loss).backward()
    exact = list(map(sum, zip(*factors[:2])))
    yield exactly(f"gradient of a shared parameter {label}", parameter.grad, exact)


def gradients_of_what_was_spread(device: str) -> Iterator[Part]:
    """Catches a bias gradient that leaves out rows of the batch. It must be the sum of the rows,
    rounded once."""
    for dtype_name in formats_on(device):
        for height, width in ((7, 17), (1025, 3), (4099, 65), (3, 1026)):
            rows: List[List[int]] = []
            for row in range(height):
                # Use numbers from 0 to 3, so that their sum is exact in float32.
                rows.append([(3 * row + column) % 4 for column in range(width)])
            arriving = tensor_of(joined(rows), dtype_name, device, height, width)
            bias = arriving.new_zeros(width).requires_grad_()
            outputs = torch.zeros_like(arriving) + bias
            outputs.backward(arriving)

            totals = map(sum, columns_of(rows))
            exact = [nearest(total, dtype_name) for total in totals]
            label = f"gradient of a bias of {width} {dtype_name} numbers, {height} rows"
            yield near(label, bias.grad, exact, sum_limit(dtype_name))


# --- norms of vectors -----------------------------------------------------------------------------


def lengths_of_vectors(device: str) -> Iterator[Part]:
    """Catches a norm that leaves out the end of a long vector, and gradient clipping with the wrong
    norm."""
    for dtype_name in ("float32", "float64"):
        for length in LENGTHS:
            yield from norms_of_vector(length, dtype_name, device)


def norms_of_vector(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the norms of one row, and gradients clipped to a total norm of 1."""
    row = row_of(length, "norm")
    squares = sum(value * value for value in row)
    inputs = tensor_of(row, dtype_name, device)
    label = f"of {length} {dtype_name} numbers"
    unit = roundoff(dtype_name)
    limit = Limit((8 + sqrt(length)) * unit)

    computed = torch.linalg.vector_norm(inputs)
    yield near(f"vector_norm {label}", computed, [sqrt(squares)], limit)
    computed = torch.linalg.vector_norm(inputs, 1)
    yield near(f"sum of sizes {label}", computed, [sum(row)], limit)

    long_parameter = torch.zeros_like(inputs).requires_grad_()
    short_parameter = inputs.new_zeros(3).requires_grad_()
    long_parameter.grad = inputs.clone()
    short_parameter.grad = torch.ones_like(short_parameter)
    computed = torch.nn.utils.clip_grad_norm_([long_parameter, short_parameter], 1.0)
    norm = sqrt(squares + 3)
    yield near(f"norm of gradients {label}", computed, [norm], limit)
    clipped = [value / norm for value in row]
    # Allow an absolute error too, because clip_grad_norm_ adds 1e-6 to the norm.
    limit = Limit((16 + sqrt(length)) * unit, 1e-6)
    yield near(f"clipped gradients {label}", long_parameter.grad, clipped, limit)


def lengths_of_ones(device: str) -> Iterator[Part]:
    """Catches a norm of 16-bit numbers whose squares are summed in 16 bits. Such a sum stops
    growing."""
    # One CPU thread handles this many elements, and the sum of squares is far above 2,048, where
    # float16 stops counting ones.
    length = 128**2
    for dtype_name in formats_on(device):
        row = torch.ones(length, dtype=dtype_of(dtype_name), device=device)
        rows = row.expand(3, -1).contiguous()
        columns = rows.t().contiguous()
        label = f"of {length} {dtype_name} ones"
        # The norm, 128, is exact in each format.
        limit = Limit(4 * roundoff(dtype_name))
        norm = torch.linalg.vector_norm
        yield near(f"vector_norm {label}", norm(row), [128.0], limit)
        yield near(f"vector_norm of rows {label}", norm(rows, dim=1), [128.0] * 3, limit)
        yield near(f"vector_norm of columns {label}", norm(columns, dim=0), [128.0] * 3, limit)
