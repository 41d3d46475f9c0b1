"""Sums, means, norms and gradients of whole numbers, which are exact in float32.

A sum of 16-bit numbers is made in float32 and rounded once. Kept in 16 bits, it would stand still
at 256 (bfloat16) or 2,048 (float16).
"""

from __future__ import annotations

from math import sqrt
from typing import Iterator, List

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    HALVES,
    SIGNIFICANT_BITS,
    Limit,
    as_stored,
    ask_all,
    dice,
    exactly,
    formats_on,
    near,
    rounded,
    roundoff,
    tensor_of,
)

LENGTHS = (1, 17, 129, 1000, 1025, 4099, 32_769)
LONGEST = 1_048_579
"""A prime past 2 to the 20: many blocks, and a rest."""


def sums(device: str) -> Outcome:
    """Sums over rows, columns and everything, norms and accumulated gradients are exact."""
    questions = (
        sums_of_rows_and_columns,
        long_sums,
        products_with_ones,
        gradients_that_add_up,
        gradients_of_what_was_spread,
        lengths_of_vectors,
    )
    return ask_all(device, questions, "whole numbers")


def row_of(length: int, salt: str) -> List[int]:
    """Numbers from 0 to 3, the last one far above them: whoever leaves it out is far away."""
    chance = dice(f"sum {length} {salt}")
    row = [chance.randint(0, 3) for _ in range(length)]
    row[-1] = 64
    return row


def nearest(total: int, name: str) -> float:
    """A sum as its format holds it."""
    return as_stored(rounded(total, SIGNIFICANT_BITS[name]), name)


def sum_limit(name: str) -> Limit:
    """Halves may be rounded by each thread: two more roundings."""
    if name in HALVES:
        return Limit(relative=4 * roundoff(name))
    return Limit()


def sums_of_rows_and_columns(device: str) -> Iterator[Part]:
    """Catches a sum that is kept in 16 bits, loses its end, or adds along another axis."""
    for name in formats_on(device):
        for length in LENGTHS:
            rows = [row_of(length, f"{number}") for number in range(3)]
            values = [value for row in rows for value in row]
            by_columns = [value for column in zip(*rows) for value in column]
            inputs = tensor_of(values, name, device, 3, length)
            turned = tensor_of(by_columns, name, device, length, 3)
            exact = [nearest(sum(row), name) for row in rows]
            label = f"of {length} {name} numbers"
            limit = sum_limit(name)
            computed = inputs.sum(1)
            yield near(f"sum of rows {label}", computed, exact, limit)
            computed = turned.sum(0)
            yield near(f"sum of columns {label}", computed, exact, limit)
            computed = turned.t().sum(1)
            yield near(f"sum of strided rows {label}", computed, exact, limit)
            middle = turned.expand(2, -1, -1).sum(1)
            yield near(f"sum of the middle axis {label}", middle, exact * 2, limit)
            total = nearest(sum(values), name)
            computed = inputs.sum()
            yield near(f"sum of everything {label}", computed, [total], limit)
            means = [sum(row) / length for row in rows]
            rough = Limit(4 * roundoff(name))
            computed = inputs.mean(1)
            yield near(f"mean of rows {label}", computed, means, rough)
            wide = inputs.sum(1, dtype=torch.float64)
            yield exactly(f"sum in float64 {label}", wide, [float(sum(row)) for row in rows])


def long_sums(device: str) -> Iterator[Part]:
    """Catches a sum of a million numbers that leaves out its last block."""
    row = row_of(LONGEST, "long")
    for name in ("float32", "float64", "int32", "uint8"):
        inputs = tensor_of(row, name, device)
        computed = inputs.sum()
        yield exactly(f"sum of a million {name} numbers", computed, [sum(row)])
        counted = sum(1 for value in row if value)
        computed = inputs.count_nonzero()
        yield exactly(f"count of a million {name} numbers", computed, [counted])


def products_with_ones(device: str) -> Iterator[Part]:
    """Catches a product of a vector that loses its end: dot, matrix by vector, einsum."""
    for name in ("float32", "float64"):
        for length in (*LENGTHS, 250_007):
            row = row_of(length, "ones")
            inputs = tensor_of(row, name, device)
            ones = torch.ones_like(inputs)
            label = f"of {length} {name} numbers"
            total = [float(sum(row))]
            computed = torch.dot(inputs, ones)
            yield exactly(f"dot {label}", computed, total)
            both = inputs.expand(3, -1)
            computed = torch.mv(both, ones)
            yield exactly(f"matrix by vector {label}", computed, total * 3)
            start = tensor_of([2, 2, 2], name, device)
            computed = torch.addmv(start, both, ones)
            yield exactly(f"vector plus matrix by vector {label}", computed, [total[0] + 2] * 3)
            columns = both.t().contiguous()
            yield exactly(f"vector by matrix {label}", ones @ columns, total * 3)
            computed = torch.einsum("ij,j->i", both, ones)
            yield exactly(f"einsum {label}", computed, total * 3)


def gradients_that_add_up(device: str) -> Iterator[Part]:
    """Catches a gradient that a second backward pass replaces, or adds to in part.

    The gradient of sum(parameter * factor) is the factor.
    """
    for name in formats_on(device):
        for length in (1, 33, 1025, 70_001):
            # Up to 3 * 20 in all: exact in every format.
            factors = [
                [(5 * position + number) % 21 for position in range(length)] for number in range(3)
            ]
            parameter = torch.zeros(length, dtype=getattr(torch, name), device=device)
            parameter.requires_grad_()
            label = f"of {length} {name} numbers"
            for factor in factors:
                (parameter * tensor_of(factor, name, device)).sum().backward()
            exact = [sum(column) for column in zip(*factors)]
            yield exactly(f"three gradients {label}", parameter.grad, exact)
            # Within one pass a parameter that is used twice gets both gradients.
            parameter.grad = None
            both = [parameter * tensor_of(factor, name, device) for factor in factors[:2]]
            (both[0].sum() + both[1].sum()).backward()
            exact = [first + second for first, second in zip(*factors[:2])]
            yield exactly(f"gradient of a shared parameter {label}", parameter.grad, exact)


def gradients_of_what_was_spread(device: str) -> Iterator[Part]:
    """Catches a bias whose gradient loses rows of the batch: it is their sum, rounded once."""
    for name in formats_on(device):
        for rows, width in ((7, 17), (1025, 3), (4099, 65), (3, 1026)):
            along = [[(3 * row + column) % 4 for column in range(width)] for row in range(rows)]
            values = [value for row in along for value in row]
            bias = torch.zeros(width, dtype=getattr(torch, name), device=device)
            bias.requires_grad_()
            spread = torch.zeros_like(tensor_of(values, name, device, rows, width)) + bias
            spread.backward(tensor_of(values, name, device, rows, width))
            exact = [nearest(sum(column), name) for column in zip(*along)]
            label = f"gradient of a bias of {width} {name} numbers, {rows} rows"
            yield near(label, bias.grad, exact, sum_limit(name))


def lengths_of_vectors(device: str) -> Iterator[Part]:
    """Catches a norm that loses the end of a long vector, and a clip that scales by another one."""
    for name in ("float32", "float64"):
        for length in LENGTHS:
            row = row_of(length, "norm")
            inputs = tensor_of(row, name, device)
            squares = sum(value * value for value in row)
            label = f"of {length} {name} numbers"
            limit = Limit(relative=(8 + sqrt(length)) * roundoff(name))
            computed = torch.linalg.vector_norm(inputs)
            yield near(f"vector_norm {label}", computed, [sqrt(squares)], limit)
            computed = torch.linalg.vector_norm(inputs, 1)
            yield near(f"sum of sizes {label}", computed, [sum(row)], limit)
            pair = [torch.zeros_like(inputs), torch.zeros(3, device=device, dtype=inputs.dtype)]
            for parameter in pair:
                parameter.requires_grad_()
            pair[0].grad, pair[1].grad = inputs.clone(), torch.ones_like(pair[1])
            total = torch.nn.utils.clip_grad_norm_(pair, 1.0)
            norm = sqrt(squares + 3)
            yield near(f"norm of gradients {label}", total, [norm], limit)
            clipped = [value / norm for value in row]
            rough = Limit((16 + sqrt(length)) * roundoff(name), 1e-6)
            yield near(f"clipped gradients {label}", pair[0].grad, clipped, rough)
