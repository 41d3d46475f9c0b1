"""Known answers of arithmetic: products, sums, and functions of single numbers."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any, Dict, Iterator

import torch

from ..judging.answers import (
    checked_against,
    exactly,
    format_of,
    formats,
    relatively,
    tensor,
    whole_numbers,
)
from ..judging.tolerance import ROUNDOFF, Comparison

INNER_LENGTHS = (17, 33, 64, 255, 513)
"""Odd inner lengths, one that fills a tile, and one with a tail of a single number behind it."""


def nearest_products(device: str) -> Iterator[Comparison]:
    """Products in 16 bits equal the exact ones, rounded once to the nearest number."""
    # Leave out float32, the first format, which holds these sums exactly. In the last try after a
    # failure, float64 is the only format.
    for name in formats(device)[1:] or formats(device):
        for inner in INNER_LENGTHS:
            # The sums stay below float16's largest number, 65,504.
            most = 15 if inner < 256 else 7
            a = whole_numbers(9, inner, most=most, salt=f"left {inner}")
            b = whole_numbers(inner, 9, most=most, salt=f"right {inner}")
            # float64 holds each sum exactly, so it is rounded only once, to the nearest number.
            known = (a @ b).to(format_of(name))
            left, right = (x.to(device, format_of(name)) for x in (a, b))
            yield exactly(f"9 x {inner} x 9 of {name}", left @ right, known)
            # The same numbers, with the right factor stored by columns, as in a linear layer.
            transposed = right.t().contiguous().t()
            yield exactly(f"9 x {inner} x 9 of {name}, by columns", left @ transposed, known)


rounding = checked_against("whole numbers, rounded to the nearest", nearest_products)


def batched_products(device: str) -> Iterator[Comparison]:
    """Products of many matrices, and with vectors, equal those of one pair after the other."""
    for name in formats(device, "float64"):
        for count in (3, 17, 65):
            # bfloat16 holds each whole number up to 256, which four products may reach.
            a = whole_numbers(count, 3, 4, most=8, salt=f"left batch {count}")
            b = whole_numbers(count, 4, 3, most=8, salt=f"right batch {count}")
            # One product after the other does not use the kernel for batches.
            known = torch.stack([left @ right for left, right in zip(a, b)])
            left, right = (x.to(device, format_of(name)) for x in (a, b))
            yield exactly(f"{count} matrices of {name}", torch.bmm(left, right), known)
            vectors = right[:, :, :1]
            yield exactly(f"{count} vectors of {name}", left @ vectors, known[:, :, :1])


def biased_products(device: str) -> Iterator[Comparison]:
    """Products with an added bias are exact, also if the same shapes come with another bias."""
    for name in formats(device):
        # So small that 16 bits hold the sums: of 1025 products of -1, 0 and 1, most cancel out.
        most = 9 if name == "float32" else 1
        for rows, inner, columns in ((5, 257, 65), (129, 65, 33), (3, 1025, 7)):
            a = whole_numbers(rows, inner, most=most, salt=f"biased {inner}")
            b = whole_numbers(inner, columns, most=most, salt=f"weight {inner}")
            bias = whole_numbers(columns, most=9, salt=f"bias {inner}")
            left, right, added = (x.to(device, format_of(name)) for x in (a, b, bias))
            # The same shapes again with another bias: a kernel may keep the one before.
            for turn in (1, 2, 3):
                found = torch.addmm(added * turn, left, right)
                label = f"{rows} x {inner} x {columns} of {name} with bias {turn}"
                yield exactly(label, found, a @ b + bias * turn)


batches = checked_against("products of whole numbers", batched_products, biased_products)


def whole_sums(device: str) -> Iterator[Comparison]:
    """Sums of small whole numbers are exact in any order. The counts of numbers are a few, one more
    than whole blocks of a kernel, and many blocks."""
    for name in formats(device, "float64"):
        ones = torch.ones(3, 4096, device=device, dtype=getattr(torch, name))
        yield exactly(f"a row's sum of {name}", ones.sum(1), [4096] * 3)
        yield exactly(f"a column's sum of {name}", ones.t().contiguous().sum(0), [4096] * 3)
        yield exactly(f"mean of {name}", ones.mean(), [1])
        ones[1, -1] = 3
        yield exactly(f"largest of {name}", ones.amax(1), [1, 3, 1])
    for count in (17, 2049, 70_001):
        numbers = whole_numbers(count, most=9, salt=f"sum {count}")
        running = list(accumulate(numbers.tolist()))
        for name in ("float32", "int64", "int32"):
            x = numbers.to(device, format_of(name))
            yield exactly(f"sum of {count} {name}", x.sum(), running[-1:])
            yield exactly(f"running sum of {count} {name}", x.cumsum(0), running)


def gathered_gradients(device: str) -> Iterator[Comparison]:
    """The gradient of a parameter that is used in every row is the sum over the rows; a second
    backward pass adds the same sum once more."""
    numbers = whole_numbers(33, 65, most=9, salt="broadcast")
    bias = torch.zeros(65, device=device, requires_grad=True)
    for turn in (1, 2):
        # A bias of zeros would make every product 0; adding 1 does not change the gradient.
        (numbers.to(device, torch.float32) * (bias + 1)).sum().backward()
        yield exactly(f"gradient of a bias, {turn} times", bias.grad, turn * numbers.sum(0))


sums = checked_against("whole numbers", whole_sums, gathered_gradients)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


FUNCTIONS: Dict[str, Any] = {
    **{name: getattr(math, name) for name in ("exp", "expm1", "log1p", "sin", "tanh", "erf")},
    "sigmoid": sigmoid,
    "sqrt": lambda x: math.sqrt(abs(x)),
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
}
"""A function of torch -> the same by Python's `math`."""
FUNCTION_ROUNDINGS = 64
"""How far a function may be off, in roundings. torch documents no limit; libraries promise a few
units in the last place, and `gelu` multiplies the rest of a difference."""


def functions_of_numbers(device: str) -> Iterator[Comparison]:
    """Functions of numbers from 1e-9 to 3 are as exact as Python's `math`."""
    near_zero = [s * 10.0**power for power in range(-9, 1) for s in (1, 3)]
    functional = torch.nn.functional
    for name, by_math in FUNCTIONS.items():
        run = getattr(torch, name, None) or getattr(functional, name)
        for dtype in formats(device):
            # 5 copies and a tail, so that both the vectors and the rest of a kernel are used.
            numbers = tensor(near_zero * 5 + [2.0], device, name=dtype)
            if dtype != "float32":
                # Below 6e-5 float16 has fewer digits, and some 16-bit kernels flush to zero.
                numbers = numbers.clamp(min=1e-3)
            known = [by_math(x) for x in numbers.tolist()]
            # Kernels compute in float32 or better, and round the answer to the format.
            error = FUNCTION_ROUNDINGS * ROUNDOFF["float32"] + 2 * ROUNDOFF[dtype]
            yield relatively(f"{name} of {dtype}", run(numbers), known, error)


pointwise = checked_against("Python's math", functions_of_numbers)
