"""Products of whole numbers in batches, with vectors and spread operands, added and scaled.

Every sum stays below 256, so it is exact in every format, and Python's integers say what it is.
"""

from __future__ import annotations

from math import nan
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import ask_all, dice, exactly, formats_on, tensor_of

Matrix = List[List[int]]
ONES = 24
"""Numbers other than zero in a row of the left factor: 24 products of up to 2 * 4 are below 256."""
SHAPES: Tuple[Tuple[int, int, int], ...] = (
    *((1, 1, 1), (5, 33, 3), (17, 65, 9), (129, 17, 2), (3, 513, 5), (1030, 31, 1), (2, 64, 130)),
    *((33, 128, 33), (1, 255, 65)),
)
"""Rows, inner length and columns."""
BATCHES = (1, 2, 7, 17, 33, 130)


class Product(NamedTuple):
    """Two matrices and their product."""

    first: Matrix
    second: Matrix
    exact: Matrix

    @property
    def shape(self) -> Tuple[int, int, int]:
        return (len(self.first), len(self.second), len(self.second[0]))


def batches(device: str) -> Outcome:
    """Products in batches and with vectors are exact, also if an operand is spread or scaled."""
    questions = (single_products, spread_operands, batched_products, scaled_sums)
    return ask_all(device, questions, "products of integers in Python")


def product_of(shape: Tuple[int, int, int], salt: int = 0) -> Product:
    rows, inner, columns = shape
    chance = dice(f"product {shape} {salt}")
    first: Matrix = []
    for _ in range(rows):
        row = [0] * inner
        for position in chance.choices(range(inner), k=ONES):
            row[position] = chance.choice((-2, -1, 1, 2))
        # The last number counts in every row.
        row[-1] = 2
        first.append(row)
    second: Matrix = []
    for _ in range(inner):
        second.append([chance.randint(-4, 4) for _ in range(columns)])
    second[-1] = [4] * columns
    return Product(first, second, multiplied(first, second))


def multiplied(first: Matrix, second: Matrix) -> Matrix:
    """Row by column; the zeros of a row are skipped."""
    exact: Matrix = []
    for row in first:
        sums = [0] * len(second[0])
        for factor, line in zip(row, second):
            if factor:
                sums = [total + factor * value for total, value in zip(sums, line)]
        exact.append(sums)
    return exact


def flat(rows: Matrix) -> List[int]:
    return [value for row in rows for value in row]


def on(device: str, name: str, matrix: Matrix) -> Any:
    height, width = len(matrix), len(matrix[0])
    return tensor_of(flat(matrix), name, device, height, width)


def single_products(device: str) -> Iterator[Part]:
    """Catches a product that loses a tail of rows, columns or the inner length."""
    for shape in SHAPES:
        product = product_of(shape)
        exact = flat(product.exact)
        first_column = [row[0] for row in product.exact]
        for name in formats_on(device):
            first, second = on(device, name, product.first), on(device, name, product.second)
            label = f"of {shape} {name}"
            yield exactly(f"mm {label}", first @ second, exact)
            turned_left, turned_right = first.t().contiguous().t(), second.t().contiguous().t()
            yield exactly(f"mm of columns {label}", turned_left @ turned_right, exact)
            computed = torch.mv(first, second[:, 0])
            yield exactly(f"matrix by vector {label}", computed, first_column)
            vector = second[:, 0].contiguous()
            computed = torch.addmv(zeros(first), first, vector)
            yield exactly(f"addmv {label}", computed, first_column)
            linear = torch.nn.functional.linear(first[None], second.t())
            yield exactly(f"linear {label}", linear, exact)


def zeros(first: Any) -> Any:
    """A zero for each row."""
    return first.new_zeros(first.shape[0])


def spread_operands(device: str) -> Iterator[Part]:
    """Catches a batch of which one operand is the same tensor for all, with no stride."""
    for shape in SHAPES[1:4]:
        product = product_of(shape)
        for name in formats_on(device):
            first, second = on(device, name, product.first), on(device, name, product.second)
            for count in (3, 17):
                exact = flat(product.exact) * count
                many_left, many_right = first.expand(count, -1, -1), second.expand(count, -1, -1)
                label = f"of {count} x {shape} {name}"
                yield exactly(
                    f"bmm, left one spread {label}", many_left @ many_right.clone(), exact
                )
                computed = torch.bmm(many_left.clone(), many_right)
                yield exactly(f"bmm, right one spread {label}", computed, exact)
                yield exactly(f"bmm, both spread {label}", many_left @ many_right, exact)
                yield exactly(f"matmul of a batch {label}", many_left.clone() @ second, exact)


def batched_products(device: str) -> Iterator[Part]:
    """Catches a batch whose last matrices are not computed, or are those of other places."""
    for number, count in enumerate(BATCHES):
        shape = SHAPES[1:4][number % 3]
        products = [product_of(shape, salt) for salt in range(min(count, 5))]
        in_order = [products[position % len(products)] for position in range(count)]
        exact = [value for product in in_order for value in flat(product.exact)]
        for name in formats_on(device):
            first = torch.stack([on(device, name, product.first) for product in in_order])
            second = torch.stack([on(device, name, product.second) for product in in_order])
            label = f"of {count} x {shape} {name}"
            computed = torch.bmm(first, second)
            yield exactly(f"bmm {label}", computed, exact)
            by_columns = second.transpose(1, 2).contiguous().transpose(1, 2)
            computed = torch.bmm(first, by_columns)
            yield exactly(f"bmm by columns {label}", computed, exact)
            empty = torch.full((count, shape[0], shape[2]), nan, dtype=first.dtype, device=device)
            computed = torch.baddbmm(empty, first, second, beta=0)
            yield exactly(f"baddbmm without its first argument {label}", computed, exact)


class Scaling(NamedTuple):
    """`beta * bias + alpha * product`."""

    beta: int
    alpha: int


def scaled_sums(device: str) -> Iterator[Part]:
    """Catches a bias that is not added, kept from another call, or counted although beta is 0."""
    for shape in SHAPES:
        product = product_of(shape)
        bias = [column % 5 - 2 for column in range(shape[2])]
        biases = (bias, [value + 1 for value in bias])
        for name in formats_on(device):
            first, second = on(device, name, product.first), on(device, name, product.second)
            # Two calls one after the other: the second one has another bias.
            for bias in biases:
                added = tensor_of(bias, name, device)
                for scaling in (Scaling(1, 1), Scaling(2, 1), Scaling(0, 1)):
                    inputs = added if scaling.beta else torch.full_like(added, nan)
                    computed = torch.addmm(
                        inputs, first, second, beta=scaling.beta, alpha=scaling.alpha
                    )
                    exact = with_bias(product.exact, bias, scaling)
                    yield exactly(f"addmm {tuple(scaling)} of {shape} {name}", computed, exact)
                computed = torch.nn.functional.linear(first, second.t(), added)
                exact = with_bias(product.exact, bias, Scaling(1, 1))
                yield exactly(f"linear with a bias of {shape} {name}", computed, exact)


def with_bias(product: Matrix, bias: Sequence[int], scaling: Scaling) -> List[int]:
    rows = []
    for row in product:
        for value, more in zip(row, bias):
            rows.append(scaling.alpha * value + scaling.beta * more)
    return rows
