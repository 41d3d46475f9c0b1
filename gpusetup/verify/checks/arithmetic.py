"""Known answers of arithmetic: products, sums, functions of single numbers, and what cuSOLVER
computes."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List

import torch

from ..judging.answers import (
    answered,
    closely,
    exactly,
    flat,
    format_of,
    formats,
    product,
    relatively,
    rounded,
    tensor,
    whole_numbers,
)
from ..judging.tolerance import ROUNDOFF, Part

INNER_LENGTHS = (17, 33, 64, 255, 513)
"""Odd inner lengths, one that fills a tile, and one with a tail of a single number behind it."""


def nearest_products(device: str) -> Iterator[Part]:
    # Leave out float32, the first format, which holds these sums exactly. If a failure is asked
    # again, float64 is the only format.
    for name in formats(device)[1:] or formats(device):
        for inner in INNER_LENGTHS:
            # The sums stay below float16's largest number, 65,504.
            most = 15 if inner < 256 else 7
            a = whole_numbers(9 * inner, most, f"left {inner}")
            b = whole_numbers(9 * inner, most, f"right {inner}")
            known = [rounded(number, name) for number in product(a, b, 9, inner, 9)]
            left = tensor(a, device, 9, inner, name=name)
            right = tensor(b, device, inner, 9, name=name)
            yield exactly(f"9 x {inner} x 9 of {name}", left @ right, known)
            # The same numbers, with the right factor stored by columns, as in a linear layer.
            transposed = right.t().contiguous().t()
            yield exactly(f"9 x {inner} x 9 of {name}, by columns", left @ transposed, known)


rounding = answered("whole numbers, rounded to the nearest", nearest_products)


def batched_products(device: str) -> Iterator[Part]:
    # bfloat16 holds each whole number up to 256, which four products of two numbers may reach.
    most = 8
    for name in formats(device, "float64"):
        for count in (3, 17, 65):
            a, b = (whole_numbers(count * 12, most, f"batch {side} {count}") for side in "ab")
            known: List[int] = []
            for place in range(0, count * 12, 12):
                known += product(a[place : place + 12], b[place : place + 12], 3, 4, 3)
            left = tensor(a, device, count, 3, 4, name=name)
            right = tensor(b, device, count, 4, 3, name=name)
            yield exactly(f"{count} matrices of {name}", torch.bmm(left, right), known)
            vectors = right[:, :, :1]
            yield exactly(f"{count} vectors of {name}", left @ vectors, known[::3])


def biased_products(device: str) -> Iterator[Part]:
    for name in formats(device):
        # So small that 16 bits hold every sum of products.
        most = 9 if name == "float32" else 1
        for rows, inner, columns in ((5, 257, 65), (129, 65, 33), (3, 1025, 7)):
            a = whole_numbers(rows * inner, most, f"biased {inner}")
            b = whole_numbers(inner * columns, most, f"weight {inner}")
            bias = whole_numbers(columns, 9, f"bias {inner}")
            known = product(a, b, rows, inner, columns)
            left = tensor(a, device, rows, inner, name=name)
            right = tensor(b, device, inner, columns, name=name)
            # The same shapes again with another bias: a kernel may keep the one before.
            for turn in (1, 2, 3):
                found = torch.addmm(tensor(bias, device, name=name) * turn, left, right)
                right_sums = [n + turn * bias[place % columns] for place, n in enumerate(known)]
                label = f"{rows} x {inner} x {columns} of {name} with bias {turn}"
                yield exactly(label, found, right_sums)


batches = answered("products of whole numbers", batched_products, biased_products)


def whole_sums(device: str) -> Iterator[Part]:
    for name in formats(device, "float64"):
        ones = torch.ones(3, 4096, device=device, dtype=getattr(torch, name))
        yield exactly(f"a row's sum of {name}", ones.sum(1), [4096] * 3)
        yield exactly(f"a column's sum of {name}", ones.t().contiguous().sum(0), [4096] * 3)
        yield exactly(f"mean of {name}", ones.mean(), [1])
        # Before torch 2.0, a CPU keeps the sum in 16 bits, unless it is told not to.
        wide = format_of("float64" if name == "float64" else "float32")
        yield exactly(f"norm of {name}", torch.linalg.vector_norm(ones[0], dtype=wide), [64])
        ones[1, 4095:] = 3
        yield exactly(f"largest of {name}", ones.amax(1), [1, 3, 1])
    for count in (17, 2049, 70_001):
        numbers = whole_numbers(count, 9, f"sum {count}")
        for name in ("float32", "int64", "int32"):
            found = tensor(numbers, device, name=name).sum()
            yield exactly(f"sum of {count} {name}", found, [sum(numbers)])


def running_sums(device: str) -> Iterator[Part]:
    for count in (17, 2049, 70_001):
        numbers = whole_numbers(count, 9, f"running {count}")
        known, total = [], 0
        for number in numbers:
            total += number
            known.append(total)
        for name in ("float32", "int64"):
            found = tensor(numbers, device, name=name).cumsum(0)
            yield exactly(f"running sum of {count} {name}", found, known)


def gathered_gradients(device: str) -> Iterator[Part]:
    """The gradient of a parameter that is used in every row is the sum over the rows; a second
    backward pass adds the same sum once more."""
    numbers = whole_numbers(33 * 65, 9, "broadcast")
    bias = torch.zeros(65, device=device, requires_grad=True)
    for turn in (1, 2):
        # The bias is all zeros; with 1 added, the product is not, and its gradient is the same.
        (tensor(numbers, device, 33, 65) * (bias + 1)).sum().backward()
        known = [turn * sum(numbers[place::65]) for place in range(65)]
        yield exactly(f"gradient of a bias, {turn} times", bias.grad, known)


sums = answered("whole numbers", whole_sums, running_sums, gathered_gradients)


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


def functions_of_numbers(device: str) -> Iterator[Part]:
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
            given = flat(numbers).tolist()
            known = [by_math(x) for x in given]
            error = FUNCTION_ROUNDINGS * ROUNDOFF["float32"] + 2 * ROUNDOFF[dtype]
            yield relatively(f"{name} of {dtype}", run(numbers), known, error)


def odd_numbers(device: str) -> Iterator[Part]:
    odd = [math.nan, math.inf, -math.inf, -1.0, 0.0, 2.0]
    x = tensor(odd * 7, device)
    for label, found, known in (
        ("isnan", x.isnan(), [1, 0, 0, 0, 0, 0]),
        ("isfinite", x.isfinite(), [0, 0, 0, 1, 1, 1]),
        ("above 1", x > 1, [0, 1, 0, 0, 0, 1]),
        # A kernel that compares with `<` alone loses NaN.
        ("NaN through a sum", (x + 1).isnan(), [1, 0, 0, 0, 0, 0]),
        ("NaN through maximum", torch.maximum(x, -x).isnan(), [1, 0, 0, 0, 0, 0]),
        ("NaN through clamp", x.clamp(min=0).isnan(), [1, 0, 0, 0, 0, 0]),
    ):
        yield exactly(label, found, known * 7)
    yield exactly("NaN through max", x.max().isnan(), [1])


def divisions(device: str) -> Iterator[Part]:
    numbers = whole_numbers(67, 99, "dividends")
    divisors = [n or 7 for n in whole_numbers(67, 9, "divisors")]
    pairs = list(zip(numbers, divisors))
    for name in ("int64", "int32", "float32"):
        a, b = (tensor(values, device, name=name) for values in (numbers, divisors))
        yield exactly(f"floor division of {name}", a // b, [n // d for n, d in pairs])
        yield exactly(f"remainder of {name}", a % b, [n % d for n, d in pairs])
        yield exactly(f"which is less, of {name}", a < b, [n < d for n, d in pairs])


pointwise = answered("Python's math", functions_of_numbers, odd_numbers, divisions)


SOLVE_ROUNDINGS = 64
"""A condition number below two loses hardly any digit."""
DECOMPOSITION_ROUNDINGS = 16
"""This is for one row: the errors of a sum grow like the root of the number of its terms."""


def solved_systems(device: str) -> Iterator[Part]:
    for rows in (3, 33, 129):
        # The diagonal outweighs the sum of its row's noise (-1, 0 and 1), so the matrix is well
        # conditioned and, with its transpose, positive definite, as Cholesky needs it.
        noise = tensor(whole_numbers(rows * rows, 1, f"system {rows}"), device, rows, rows)
        matrix = noise + 4 * rows * torch.eye(rows, device=device)
        known = tensor(whole_numbers(rows * 2, 9, f"solution {rows}"), device, rows, 2)
        found = torch.linalg.solve(matrix, matrix @ known)
        yield closely(f"solve {rows}", found, known, SOLVE_ROUNDINGS, "float32")
        symmetric = matrix + matrix.t()
        lower = torch.linalg.cholesky(symmetric)
        q, r = torch.linalg.qr(matrix)
        values, vectors = torch.linalg.eigh(symmetric)
        for label, back, given in (
            ("cholesky", lower @ lower.t(), symmetric),
            ("qr", q @ r, matrix),
            ("eigenvectors", (vectors * values) @ vectors.t(), symmetric),
        ):
            roundings = DECOMPOSITION_ROUNDINGS * rows**0.5
            yield closely(f"{label} {rows}", back, given, roundings, "float32")


linalg = answered("products of whole numbers", solved_systems)
