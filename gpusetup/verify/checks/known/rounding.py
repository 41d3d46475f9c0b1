"""How matrix products are rounded: single products in each format, and long sums.

The factors are whole numbers, so Python knows each sum exactly and also the nearest number in the
format. A kernel that truncates, or rounds at random, is wrong in many elements at once.
"""

from __future__ import annotations

from math import sqrt
from random import Random
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import torch

from ...database.calls import exact_products
from ...judging.precision import read_precision
from ...judging.tolerance import Part, holds
from ...values import Outcome
from .answers import (
    HALVES,
    SIGNIFICANT_BITS,
    Limit,
    ask_all,
    dice,
    flat_list,
    formats_on,
    near,
    rounded,
    tensor_of,
)
from .number_lists import joined

Rows = List[List[int]]
INNER_LENGTHS = (1, 3, 17, 31, 33, 65, 127, 128, 255, 257, 509, 513, 1021, 1025, 2049, 4099, 8192)
"""Inner lengths of the products: odd, prime and long ones, below and above the block sizes of
kernels."""
LONGEST = 65_537
"""One more than 2**16."""
SIDE = 5
"""The number of rows and columns in each product. It is small, because Python computes the product
too."""
MISROUNDED_SHARE = 0.05
"""The share of elements that may differ from the nearest number, because they were rounded twice.
Truncation changes half of the elements, and rounding at random a quarter."""
SPREAD = 2**13
"""The typical size of a sum in the 16-bit formats. It needs more than their 11 binary digits, so it
is rounded, and it is far below float16's largest number, 65,504."""
SIGMAS = 6.5
"""The largest deviation allowed, in standard deviations. Fair coins exceed it about once in ten
billion tries."""


class ExactFactors(NamedTuple):
    """Two matrices of whole numbers, the second one by columns, and their exact product."""

    first_factor: Rows
    right_columns: Rows
    product: List[int]
    """The elements of the exact product, row by row."""

    @property
    def inner(self) -> int:
        return len(self.first_factor[0])


def rounding(device: str) -> Outcome:
    """Check that matrix products are rounded to the nearest number, for many inner lengths and for
    every function that multiplies matrices."""
    with exact_products(torch):
        questions = (halves_round_once, single_products, long_sums_lean_to_no_side)
        return ask_all(device, questions, "whole numbers, rounded by hand")


def factors_of(inner: int, largest: int, salt: str) -> ExactFactors:
    """Two random matrices of whole numbers from -`largest` to `largest`, and their exact
    product."""
    chance = dice(f"factors {inner} {salt}")
    first_factor = rows_of(chance, -largest, largest, inner)
    columns = rows_of(chance, -largest, largest, inner)
    return multiplied(first_factor, columns)


def multiplied(first_factor: Rows, columns: Rows) -> ExactFactors:
    """Multiply the factors exactly, and return them with their product."""
    product = products_of(first_factor, columns)
    return ExactFactors(first_factor, columns, product)


def rows_of(chance: Random, low: int, high: int, inner: int) -> Rows:
    """Draw SIDE rows of `inner` random whole numbers from `low` to `high`."""
    rows: Rows = []
    for _ in range(SIDE):
        row = [chance.randint(low, high) for _ in range(inner)]
        rows.append(row)
    return rows


def products_of(first_factor: Rows, columns: Rows) -> List[int]:
    """Multiply every row with every column, exactly, with Python integers."""
    product = []
    for row in first_factor:
        for column in columns:
            terms = map(int.__mul__, row, column)
            product.append(sum(terms))
    return product


# --- ways to multiply -----------------------------------------------------------------------------


class Operands(NamedTuple):
    """The tensors of one product. `first_factor` contains the rows of the left factor,
    `right_columns` the columns of the right factor."""

    first_factor: Any
    right_columns: Any

    def transposed(self) -> Any:
        """The right factor in the orientation that `mm` expects."""
        return self.right_columns.t()


def by_mm(operands: Operands) -> Any:
    return torch.mm(operands.first_factor, operands.transposed())


def by_plain_mm(operands: Operands) -> Any:
    """Multiply with mm, with both factors row-major in memory."""
    right_factor = operands.transposed().contiguous()
    return torch.mm(operands.first_factor, right_factor)


def by_bmm(operands: Operands) -> Any:
    """Multiply with bmm, as the second product in a batch."""
    zeros = torch.zeros_like(operands.first_factor)
    first_factors = torch.stack([zeros, operands.first_factor])
    right_columns = torch.stack([operands.right_columns, operands.right_columns])
    right_factors = right_columns.transpose(1, 2)
    # The first product in the batch is all zeros.
    products = torch.bmm(first_factors, right_factors)
    return products[1]


def by_linear(operands: Operands) -> Any:
    return torch.nn.functional.linear(operands.first_factor, operands.right_columns)


def by_mv(operands: Operands) -> Any:
    """Multiply with mv, one column at a time."""
    columns: List[Any] = []
    for right_column in operands.right_columns:
        columns.append(torch.mv(operands.first_factor, right_column))
    return torch.stack(columns, 1)


WAYS: Dict[str, Callable[[Operands], Any]] = {
    "mm": by_mm,
    "plain mm": by_plain_mm,
    "bmm": by_bmm,
    "linear": by_linear,
    "mv": by_mv,
}
"""Maps the name that a report shows to the function that multiplies."""


def operands_of(factors: ExactFactors, dtype_name: str, device: str) -> Operands:
    """Both factors as tensors in one format on the device."""
    shape = (SIDE, factors.inner)
    return Operands(
        tensor_of(joined(factors.first_factor), dtype_name, device, *shape),
        tensor_of(joined(factors.right_columns), dtype_name, device, *shape),
    )


# --- questions ------------------------------------------------------------------------------------


def halves_round_once(device: str) -> Iterator[Part]:
    """Catches a 16-bit product that is truncated, rounded stochastically, or summed in 16 bits.

    Every partial sum is exact in float32, so only the final result should be rounded.
    """
    # Older GPUs do not support bfloat16.
    dtype_names = [dtype_name for dtype_name in HALVES if dtype_name in formats_on(device)]
    for inner in (*INNER_LENGTHS, LONGEST):
        # Both formats use the same factors, so compute the exact product once.
        factors = factors_of(inner, largest_factor(inner), "halves")
        for dtype_name in dtype_names:
            label = f"{dtype_name}, inner length {inner}"
            yield from products_rounded(factors, dtype_name, device, label)


def largest_factor(inner: int) -> int:
    """The largest factor for which a sum of `inner` products is typically about SPREAD, but at
    least 2."""
    square = 3 * SPREAD / sqrt(inner)
    largest = int(sqrt(square))
    # With factors of only -1, 0 and 1, every sum would be small.
    return max(2, largest)


def products_rounded(
    factors: ExactFactors, dtype_name: str, device: str, label: str
) -> Iterator[Part]:
    """Compare the same product, computed by each function that multiplies matrices."""
    operands = operands_of(factors, dtype_name, device)
    for method, multiply in WAYS.items():
        computed = multiply(operands)
        yield rounded_to_nearest(f"{method} of {label}", dtype_name, computed, factors.product)


def rounded_to_nearest(label: str, dtype_name: str, computed: Any, product: List[int]) -> Part:
    """Check that every element is within one unit in the last place, and that almost all elements
    are the nearest number."""
    bits = SIGNIFICANT_BITS[dtype_name]
    nearest = [rounded(value, bits) for value in product]
    # The next number of the format is one unit in the last place away, at most 2**(1 - bits) times
    # the number.
    part = near(label, computed, nearest, Limit(relative=2.0 ** (1 - bits)))
    if part.worst > 1:
        return part
    misrounded_count = 0
    for value, exact in zip(flat_list(computed), nearest):
        if int(value) != exact:
            misrounded_count += 1
    count = len(product)
    allowed_count = max(1, int(MISROUNDED_SHARE * count))
    message = f"{misrounded_count} of {count} elements are not rounded to the nearest number"
    return holds(label, misrounded_count <= allowed_count, message)


def single_products(device: str) -> Iterator[Part]:
    """Catches a product of two numbers that is truncated, or computed with too few digits.

    In each row of the left factor only one number is not zero, so each result is a single rounded
    product.
    """
    for dtype_name in formats_of_all_digits(device):
        for inner in (1, 7, 64, 129, 1023):
            factors = with_one_number_a_row(inner, SIGNIFICANT_BITS[dtype_name])
            label = f"single {dtype_name} numbers, inner length {inner}"
            yield from products_rounded(factors, dtype_name, device, label)


def formats_of_all_digits(device: str) -> List[str]:
    """The 32-bit and 64-bit formats whose products keep all digits under the current settings.
    float32 is left out if TF32 is on."""
    # TF32 drops 13 of float32's 24 digits.
    precision = read_precision(torch, device)
    if precision.name == "ieee":
        return ["float32", "float64"]
    return ["float64"]


def with_one_number_a_row(inner: int, bits: int) -> ExactFactors:
    """Make factors that use all digits of the format. Each row of the left factor has a single
    nonzero number."""
    chance = dice(f"single {inner} {bits}")
    largest = 2**bits - 1
    first_factor: Rows = [[0] * inner for _ in range(SIDE)]
    for row in first_factor:
        number = chance.randint(1, largest)
        position = chance.randrange(inner)
        row[position] = number
    columns = rows_of(chance, -largest, largest, inner)
    return multiplied(first_factor, columns)


def long_sums_lean_to_no_side(device: str) -> Iterator[Part]:
    """Catches sums that are truncated at each step. Almost all their errors have the same sign."""
    for dtype_name in formats_of_all_digits(device):
        bits = SIGNIFICANT_BITS[dtype_name]
        for inner in (1021, 4099):
            tally = Tally()
            for number in range(4):
                factors = of_positive_numbers(inner, bits, number)
                operands = operands_of(factors, dtype_name, device)
                computed = flat_list(by_mm(operands))
                tally = tally.with_errors(computed, factors.product)
            yield tally.judged(f"long sums of {dtype_name}, inner length {inner}")


def of_positive_numbers(inner: int, bits: int, number: int) -> ExactFactors:
    """Make positive factors that use all digits of the format, so that each step of a sum is
    rounded."""
    chance = dice(f"positive {inner} {bits} {number}")
    largest = 2**bits - 1
    # No zeros, and all numbers have the same sign, so that a sum grows at each step.
    first_factor = rows_of(chance, 1, largest, inner)
    columns = rows_of(chance, 1, largest, inner)
    return multiplied(first_factor, columns)


class Tally(NamedTuple):
    """The number of sums that were too small, and of those that were too large."""

    below: int = 0
    above: int = 0

    def with_errors(self, computed: List[float], product: List[int]) -> Tally:
        """Returns the tally after more sums are counted. Python compares floats and integers
        exactly."""
        below, above = self
        for value, exact in zip(computed, product):
            if value < exact:
                below += 1
            elif value > exact:
                above += 1
        return Tally(below, above)

    def judged(self, label: str) -> Part:
        """Check that sums are too small about as often as too large."""
        difference = abs(self.below - self.above)
        # Each rounded sum is like one toss of a fair coin.
        throws = self.below + self.above
        allowed = SIGMAS * sqrt(throws)
        message = f"{self.below} sums are too small and {self.above} too large"
        return holds(label, difference <= allowed, message)
