"""Products of integer matrices: in batches, with vectors, with expanded operands, and scaled with a
bias.

Every sum stays below 256, so every format holds it exactly, and the result must equal Python's
integers.
"""

from __future__ import annotations

from itertools import cycle, islice
from math import nan
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    Limit,
    ask_all,
    dice,
    exactly,
    formats_on,
    near_in_periods,
    tensor_of,
)
from .number_lists import joined

Matrix = List[List[int]]
ONES = 24
"""The largest number of nonzero elements drawn for a row of the left factor. The sum of 24 products
of at most 2 * 4 stays below 256."""
Shape = Tuple[int, int, int]
"""The lengths of a product: rows, inner length and columns."""
SHAPES: Tuple[Shape, ...] = (
    (1, 1, 1),
    (5, 33, 3),
    (17, 65, 9),
    (129, 17, 2),
    (3, 513, 5),
    (1030, 31, 1),
    (2, 64, 130),
    (33, 128, 33),
    (1, 255, 65),
)
BATCHED_SHAPES = SHAPES[1:4]
"""Only small shapes, because a batch contains up to 130 products."""
BATCHES = (1, 2, 7, 17, 33, 130)
"""The batch sizes: how many products a batch contains."""


class Product(NamedTuple):
    """Two integer matrices and their exact product."""

    first: Matrix
    second: Matrix
    exact: Matrix


def batches(device: str) -> Outcome:
    """Check that matrix products are exact: in batches, with vectors, with an expanded operand and
    with a scaled bias."""
    questions = (
        single_products,
        spread_operands,
        batched_products,
        very_many_products,
        scaled_sums,
    )
    return ask_all(device, questions, "products of integers in Python")


def product_of(shape: Shape, salt: int = 0) -> Product:
    """Make two random integer matrices and their product. The last elements along the inner axis
    are never zero, so that a kernel that leaves them out gets a wrong result."""
    rows, inner, columns = shape
    chance = dice(f"product {shape} {salt}")
    first: Matrix = []
    for _ in range(rows):
        row = [0] * inner
        # If a position is drawn twice, the row has fewer nonzero elements.
        for position in chance.choices(range(inner), k=ONES):
            row[position] = chance.choice((-2, -1, 1, 2))
        row[-1] = 2
        first.append(row)

    second: Matrix = []
    for _ in range(inner):
        line = [chance.randint(-4, 4) for _ in range(columns)]
        second.append(line)
    second[-1] = [4] * columns
    return Product(first, second, multiplied(first, second))


def multiplied(first: Matrix, second: Matrix) -> Matrix:
    """The exact product of two integer matrices. Zeros in the first matrix are skipped for
    speed."""
    product: Matrix = []
    for row in first:
        sums = [0] * len(second[0])
        for factor, line in zip(row, second):
            if not factor:
                continue
            for column, value in enumerate(line):
                sums[column] += factor * value
        product.append(sums)
    return product


class FactorsOnDevice(NamedTuple):
    """Both factors of a product as tensors on a device."""

    first: Any
    second: Any


def factors_of(product: Product, dtype_name: str, device: str) -> FactorsOnDevice:
    """Both factors as tensors in one format on the device."""
    first = matrix_tensor(product.first, dtype_name, device)
    second = matrix_tensor(product.second, dtype_name, device)
    return FactorsOnDevice(first, second)


def matrix_tensor(matrix: Matrix, dtype_name: str, device: str) -> Any:
    """A matrix as a row-major tensor on the device."""
    height = len(matrix)
    width = len(matrix[0])
    return tensor_of(joined(matrix), dtype_name, device, height, width)


def single_products(device: str) -> Iterator[Part]:
    """Catches a product that leaves out the last rows, columns or inner elements."""
    for shape in SHAPES:
        product = product_of(shape)
        for dtype_name in formats_on(device):
            factors = factors_of(product, dtype_name, device)
            label = f"of {shape} {dtype_name}"
            yield from products_of_matrices(factors, joined(product.exact), label)
            first_column = [row[0] for row in product.exact]
            yield from products_with_vector(factors, first_column, label)
            # A linear layer multiplies by the transposed weight. Its input here is a batch of one
            # matrix.
            batch = factors.first[None]
            weight = factors.second.t()
            computed = torch.nn.functional.linear(batch, weight)
            yield exactly(f"linear {label}", computed, joined(product.exact))


def products_of_matrices(factors: FactorsOnDevice, exact: List[int], label: str) -> Iterator[Part]:
    """Compare the product of two matrices, stored row-major and column-major."""
    computed = factors.first @ factors.second
    yield exactly(f"mm {label}", computed, exact)
    # The same matrices in column-major order.
    first_by_columns = factors.first.t().contiguous().t()
    second_by_columns = factors.second.t().contiguous().t()
    computed = first_by_columns @ second_by_columns
    yield exactly(f"mm of columns {label}", computed, exact)


def products_with_vector(factors: FactorsOnDevice, exact: List[int], label: str) -> Iterator[Part]:
    """Compare the product of the first matrix and the first column of the second matrix."""
    column = factors.second[:, 0]
    computed = torch.mv(factors.first, column)
    yield exactly(f"matrix by vector {label}", computed, exact)
    # Here `addmv` adds the product to zeros, and the column is contiguous in memory.
    zeros = factors.first.new_zeros(len(factors.first))
    computed = torch.addmv(zeros, factors.first, column.contiguous())
    yield exactly(f"addmv {label}", computed, exact)


def spread_operands(device: str) -> Iterator[Part]:
    """Catches wrong batched products if an operand is one matrix expanded to the batch (stride
    0)."""
    for shape in BATCHED_SHAPES:
        product = product_of(shape)
        for dtype_name in formats_on(device):
            factors = factors_of(product, dtype_name, device)
            for count in (3, 17):
                exact = joined(product.exact) * count
                label = f"of {count} x {shape} {dtype_name}"
                yield from products_of_spread(factors, count, exact, label)


def products_of_spread(
    factors: FactorsOnDevice, count: int, exact: List[int], label: str
) -> Iterator[Part]:
    """Compare a batch of `count` equal products, with the left, the right or both operands
    expanded."""
    many_left = factors.first.expand(count, -1, -1)
    many_right = factors.second.expand(count, -1, -1)
    copied_left = many_left.clone()
    copied_right = many_right.clone()
    computed = many_left @ copied_right
    yield exactly(f"bmm, left one spread {label}", computed, exact)
    computed = torch.bmm(copied_left, many_right)
    yield exactly(f"bmm, right one spread {label}", computed, exact)
    computed = many_left @ many_right
    yield exactly(f"bmm, both spread {label}", computed, exact)
    # A batch of matrices times a single matrix.
    computed = copied_left @ factors.second
    yield exactly(f"matmul of a batch {label}", computed, exact)


def batched_products(device: str) -> Iterator[Part]:
    """Catches a batched product whose last matrices are not computed, or are computed from the
    wrong inputs."""
    for number, count in enumerate(BATCHES):
        # Use the shapes in turn.
        shape = BATCHED_SHAPES[number % len(BATCHED_SHAPES)]
        # At most five different products, repeated to fill the batch.
        different_count = min(count, 5)
        different_products = [product_of(shape, salt) for salt in range(different_count)]
        products = list(islice(cycle(different_products), count))
        for dtype_name in formats_on(device):
            label = f"of {count} x {shape} {dtype_name}"
            yield from products_of_batch(products, dtype_name, device, label)


def products_of_batch(
    products: List[Product], dtype_name: str, device: str, label: str
) -> Iterator[Part]:
    """Compare all products of one batch, with bmm, bmm of column-major matrices, and baddbmm with
    beta=0."""
    exact: List[int] = []
    all_factors: List[FactorsOnDevice] = []
    for product in products:
        exact += joined(product.exact)
        all_factors.append(factors_of(product, dtype_name, device))
    first = torch.stack([factors.first for factors in all_factors])
    second = torch.stack([factors.second for factors in all_factors])

    computed = torch.bmm(first, second)
    yield exactly(f"bmm {label}", computed, exact)
    by_columns = second.transpose(1, 2).contiguous().transpose(1, 2)
    computed = torch.bmm(first, by_columns)
    yield exactly(f"bmm by columns {label}", computed, exact)
    # With beta=0 the added tensor must be ignored, even if it is NaN.
    added = torch.full_like(computed, nan)
    computed = torch.baddbmm(added, first, second, beta=0)
    yield exactly(f"baddbmm without its first argument {label}", computed, exact)


MANY = 65_537
"""Two more than 65,535, the most blocks that a GPU can launch along the third axis of a grid."""
TINY_SHAPE = (2, 3, 2)
PERIOD = 7
"""The number of different products. Since 65,537 is not a multiple of it, a batch index that wraps
around finds a different product."""


def very_many_products(device: str) -> Iterator[Part]:
    """Catches a batched product that leaves out the products after the 65,535th, or computes them
    from the first matrices."""
    products = [product_of(TINY_SHAPE, salt) for salt in range(PERIOD)]
    exact = joined(joined(product.exact) for product in products)
    repeats = MANY // PERIOD + 1
    for dtype_name in formats_on(device):
        factors = [factors_of(product, dtype_name, device) for product in products]
        first = torch.stack([pair.first for pair in factors])
        second = torch.stack([pair.second for pair in factors])
        many_first = first.repeat(repeats, 1, 1)[:MANY]
        many_second = second.repeat(repeats, 1, 1)[:MANY]
        label = f"of {MANY} x {TINY_SHAPE} {dtype_name}"
        computed = torch.bmm(many_first, many_second)
        yield near_in_periods(f"bmm {label}", computed, exact, Limit())
        # With beta=0 the added tensor must be ignored, even if it is NaN.
        added = torch.full_like(computed, nan)
        computed = torch.baddbmm(added, many_first, many_second, beta=0)
        yield near_in_periods(f"baddbmm {label}", computed, exact, Limit())


class Scaling(NamedTuple):
    """The factors in `beta * bias + alpha * product`."""

    beta: int
    alpha: int


SCALINGS = (Scaling(1, 1), Scaling(2, 1), Scaling(0, 1))
"""The bias counts once, twice, or not at all. With beta=0 the bias must be ignored even if it is
NaN."""


def scaled_sums(device: str) -> Iterator[Part]:
    """Catches a bias that is not added, that is reused from an earlier call, or that is added
    although beta is 0."""
    for shape in SHAPES:
        product = product_of(shape)
        # The second call has a different bias, so a bias that is kept from the first call shows.
        first_bias = [column % 5 - 2 for column in range(shape[2])]
        second_bias = [value + 1 for value in first_bias]
        for dtype_name in formats_on(device):
            factors = factors_of(product, dtype_name, device)
            label = f"of {shape} {dtype_name}"
            for bias in (first_bias, second_bias):
                bias_tensor = tensor_of(bias, dtype_name, device)
                for scaling in SCALINGS:
                    exact = with_bias(product.exact, bias, scaling)
                    computed = scaled_sum(factors, bias_tensor, scaling)
                    yield exactly(f"addmm {tuple(scaling)} {label}", computed, exact)
                exact = with_bias(product.exact, bias, Scaling(1, 1))
                weight = factors.second.t()
                computed = torch.nn.functional.linear(factors.first, weight, bias_tensor)
                yield exactly(f"linear with a bias {label}", computed, exact)


def scaled_sum(factors: FactorsOnDevice, bias: Any, scaling: Scaling) -> Any:
    """Returns the result of torch's `addmm`. If beta is 0, the bias is replaced with NaN, which
    `addmm` must ignore."""
    if not scaling.beta:
        bias = torch.full_like(bias, nan)
    return torch.addmm(bias, *factors, beta=scaling.beta, alpha=scaling.alpha)


def with_bias(product: Matrix, bias: Sequence[int], scaling: Scaling) -> List[int]:
    """Returns the exact `beta * bias + alpha * product`, row by row."""
    sums: List[int] = []
    for row in product:
        for value, added in zip(row, bias):
            scaled_value = scaling.alpha * value
            scaled_bias = scaling.beta * added
            sums.append(scaled_value + scaled_bias)
    return sums
