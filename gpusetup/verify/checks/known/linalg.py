"""Einsum, linear systems and decompositions of small matrices, compared with products in Python."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, Dict, Iterator, List, NamedTuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import Limit, ask_all, dice, exactly, formats_on, near, roundoff, tensor_of
from .number_lists import columns_of, joined, products_of_pairs, random_wholes
from .spectra import spectra

Matrix = List[List[float]]
SIZES = (1, 3, 17, 33, 65)
"""Numbers of rows and columns: 1, a few, and one more than 16, 32 and 64, which are sizes of a
kernel's blocks."""


def linalg(device: str) -> Outcome:
    """Check that einsum, solve, inverse, determinant, Cholesky, QR, eigenvalues and singular values
    agree with Python."""
    questions = (contractions, solved_systems, decompositions, spectra)
    return ask_all(device, questions, "products of whole numbers in Python")


# --- contractions ---------------------------------------------------------------------------------


EINSUMS: Dict[str, Dict[str, int]] = {
    "ij,jk->ik": {"i": 5, "j": 17, "k": 3},
    "bij,bjk->bik": {"b": 3, "i": 4, "j": 9, "k": 5},
    "bhqd,bhkd->bhqk": {"b": 2, "h": 3, "q": 5, "k": 7, "d": 9},
    "bhqk,bhkd->bqhd": {"b": 2, "h": 3, "q": 4, "k": 9, "d": 5},
    "bij,kj->bik": {"b": 3, "i": 5, "j": 17, "k": 2},
    "i,j->ij": {"i": 17, "j": 33},
    "ij,ij->i": {"i": 9, "j": 33},
    "bik,bjk->ji": {"b": 3, "i": 4, "j": 5, "k": 9},
}
"""Equations for products, batches, attention and reordered axes, with the length of each letter's
axis."""


class Operand(NamedTuple):
    """An operand of an einsum: its letters (one per axis), their lengths, and its elements in
    memory order."""

    letters: str
    lengths: Dict[str, int]
    values: List[float]

    @property
    def shape(self) -> List[int]:
        return [self.lengths[letter] for letter in self.letters]

    def at(self, index: Dict[str, int]) -> float:
        """The element at this index. `index` maps each letter to the position along its axis."""
        position = position_of(self.letters, index, self.lengths)
        return self.values[position]


def position_of(letters: str, index: Dict[str, int], lengths: Dict[str, int]) -> int:
    """The position in memory of the element at this index. `index` maps each letter to the position
    along its axis."""
    position = 0
    for letter in letters:
        position = position * lengths[letter] + index[letter]
    return position


def contractions(device: str) -> Iterator[Part]:
    """Catches an einsum that sums over the wrong letter, or returns its axes in the wrong order."""
    for equation, lengths in EINSUMS.items():
        inputs, output = equation.split("->")
        operands: List[Operand] = []
        for letters in inputs.split(","):
            operands.append(operand_of(letters, lengths, equation))
        exact = contracted(output, operands, lengths)
        for dtype_name in formats_on(device):
            tensors: List[Any] = []
            for operand in operands:
                tensor = tensor_of(operand.values, dtype_name, device, *operand.shape)
                tensors.append(tensor)
            computed = torch.einsum(equation, *tensors)
            yield exactly(f"einsum {equation} of {dtype_name}", computed, exact)


def operand_of(letters: str, lengths: Dict[str, int], salt: str) -> Operand:
    """An einsum operand of random whole numbers from -1 to 2."""
    chance = dice(f"{salt} {letters}")
    count = prod(lengths[letter] for letter in letters)
    values = random_wholes(chance, count, -1, 2)
    return Operand(letters, lengths, values)


def contracted(output: str, operands: List[Operand], lengths: Dict[str, int]) -> List[float]:
    """The exact einsum of two operands, computed from its definition."""
    first, second = operands
    count = prod(lengths[letter] for letter in output)
    sums = [0.0] * count
    ranges = map(range, lengths.values())
    # Products that differ only in letters missing from the output are added to the same element.
    for indices in product(*ranges):
        index = dict(zip(lengths, indices))
        position = position_of(output, index, lengths)
        sums[position] += first.at(index) * second.at(index)
    return sums


# --- systems and decompositions -------------------------------------------------------------------


def lower_triangle(size: int) -> Matrix:
    """A lower triangular matrix. The diagonal alternates between 1 and 2. In each row, up to four
    elements before it are -1/4, 0 or 1/4, and all others are zero."""
    chance = dice(f"triangle {size}")
    rows: Matrix = []
    for number in range(size):
        row = [0.0] * size
        for column in range(max(0, number - 4), number):
            row[column] = chance.choice((-0.25, 0.0, 0.25))
        row[number] = 1.0 + number % 2
        rows.append(row)
    return rows


def multiplied(first: Matrix, second: Matrix) -> Matrix:
    """The product of two matrices."""
    columns = columns_of(second)
    rows: Matrix = []
    for row in first:
        sums = [sum(products_of_pairs(row, column)) for column in columns]
        rows.append(sums)
    return rows


def matrix_tensor(matrix: Matrix, dtype_name: str, device: str) -> Any:
    """A matrix as a row-major tensor on the device."""
    height = len(matrix)
    width = len(matrix[0])
    return tensor_of(joined(matrix), dtype_name, device, height, width)


def limit_of(dtype_name: str, size: int) -> Limit:
    """The error allowed for systems of this size. The matrices are well conditioned, so it only
    grows with the length of the sums."""
    unit = (64 + 16 * size) * roundoff(dtype_name)
    return Limit(unit, unit)


def solved_systems(device: str) -> Iterator[Part]:
    """Catches a solver that exchanges rows wrongly, or reads elements above the diagonal of a lower
    triangle."""
    for dtype_name in ("float32", "float64"):
        for size in SIZES:
            yield from solved_system(size, dtype_name, device)


def solution_of(size: int) -> Matrix:
    """The chosen solution of a system: two columns of whole numbers from -2 to 2."""
    rows: Matrix = []
    for row in range(size):
        first = 3 * row % 5 - 2
        second = (3 * row + 1) % 5 - 2
        rows.append([float(first), float(second)])
    return rows


def solved_system(size: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare solve, inverse and determinant for one size. The right-hand sides are computed from a
    known solution."""
    lower = lower_triangle(size)
    solution = solution_of(size)
    right = multiplied(lower, solution)
    exact = joined(solution)
    label = f"of {size} equations, {dtype_name}"
    limit = limit_of(dtype_name, size)

    triangle = matrix_tensor(lower, dtype_name, device)
    right_side = matrix_tensor(right, dtype_name, device)
    computed = torch.linalg.solve_triangular(triangle, right_side, upper=False)
    yield near(f"solve_triangular {label}", computed, exact, limit)

    # With its rows reversed, the system cannot be solved without pivoting.
    reversed_rows = matrix_tensor(lower[::-1], dtype_name, device)
    reversed_side = matrix_tensor(right[::-1], dtype_name, device)
    computed = torch.linalg.solve(reversed_rows, reversed_side)
    yield near(f"solve {label}", computed, exact, limit)
    computed = torch.linalg.inv(reversed_rows) @ reversed_side
    yield near(f"inv {label}", computed, exact, limit)

    # The determinant of a triangle is the product of its diagonal, in which every second number is
    # 2.
    determinant = 2.0 ** (size // 2)
    # Reversing the rows exchanges this many pairs of rows, and each exchange changes the sign.
    exchanges = size * (size - 1) // 2
    if exchanges % 2:
        determinant = -determinant
    computed = torch.linalg.det(reversed_rows)
    yield near(f"det {label}", computed, [determinant], limit)


def decompositions(device: str) -> Iterator[Part]:
    """Catches a wrong Cholesky, QR, eigenvalue or singular value decomposition."""
    for dtype_name in ("float32", "float64"):
        for size in SIZES:
            yield from decomposed(size, dtype_name, device)


def decomposed(size: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the decompositions of a symmetric positive definite matrix, which is a triangle times
    its transpose."""
    lower = lower_triangle(size)
    square = multiplied(lower, columns_of(lower))
    inputs = matrix_tensor(square, dtype_name, device)
    label = f"of {size} x {size} {dtype_name}"
    limit = limit_of(dtype_name, size)

    computed = torch.linalg.cholesky(inputs)
    yield near(f"cholesky {label}", computed, joined(lower), limit)
    computed = torch.linalg.cholesky(inputs.expand(3, -1, -1))
    yield near(f"cholesky of a batch {label}", computed, joined(lower) * 3, limit)

    # Multiply Q and R in Python, so that the result does not depend on another kernel.
    q, r = torch.linalg.qr(inputs)
    q_times_r = multiplied(q.tolist(), r.tolist())
    computed = matrix_tensor(q_times_r, "float64", "cpu")
    yield near(f"qr {label}", computed, joined(square), limit)

    # The trace is the sum of the eigenvalues. For this matrix they are also the singular values.
    trace = sum(square[row][row] for row in range(size))
    computed = torch.linalg.eigvalsh(inputs).sum()
    yield near(f"sum of eigvalsh {label}", computed, [trace], limit)
    computed = torch.linalg.svdvals(inputs).sum()
    yield near(f"sum of svdvals {label}", computed, [trace], limit)
