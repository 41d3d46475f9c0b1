"""Contractions and decompositions of small matrices of whole numbers, multiplied back in Python."""

from __future__ import annotations

from itertools import product
from typing import Any, Dict, Iterator, List, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import Limit, ask_all, dice, exactly, formats_on, near, roundoff, tensor_of

Matrix = List[List[float]]
SIZES = (1, 3, 17, 33, 65)


def linalg(device: str) -> Outcome:
    """einsum, solve, Cholesky, QR and determinants agree with products in Python."""
    questions = (contractions, solved_systems, decompositions)
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


def contractions(device: str) -> Iterator[Part]:
    """Catches an einsum that sums over another letter, or hands its axes over in another order."""
    for equation, lengths in EINSUMS.items():
        operands = equation.partition("->")[0]
        first, second = operands.split(",")
        values = [small_numbers(letters, lengths, equation) for letters in (first, second)]
        exact = contracted(equation, lengths, values)
        for name in formats_on(device):
            tensors: List[Any] = []
            for letters, numbers in zip((first, second), values):
                shape = [lengths[letter] for letter in letters]
                tensors.append(tensor_of(numbers, name, device, *shape))
            computed = torch.einsum(equation, *tensors)
            yield exactly(f"einsum {equation} of {name}", computed, exact)


def small_numbers(letters: str, lengths: Dict[str, int], salt: str) -> List[float]:
    """Numbers from -1 to 2: sums of 40 products stay below 256."""
    chance = dice(f"{salt} {letters}")
    count = 1
    for letter in letters:
        count *= lengths[letter]
    return [float(chance.randint(-1, 2)) for _ in range(count)]


def contracted(
    equation: str, lengths: Dict[str, int], values: Sequence[Sequence[float]]
) -> List[float]:
    """The einsum of two operands from its definition: a sum over every letter."""
    operands, output = equation.split("->")
    first, second = operands.split(",")
    letters = sorted(lengths)
    sums: Dict[int, float] = {}
    for indices in product(*(range(lengths[letter]) for letter in letters)):
        index = dict(zip(letters, indices))
        place = place_of(output, index, lengths)
        left = values[0][place_of(first, index, lengths)]
        right = values[1][place_of(second, index, lengths)]
        sums[place] = sums.get(place, 0.0) + left * right
    return [sums[place] for place in sorted(sums)]


def place_of(letters: str, index: Dict[str, int], lengths: Dict[str, int]) -> int:
    """The flat place of an element whose axes have these letters."""
    place = 0
    for letter in letters:
        place = place * lengths[letter] + index[letter]
    return place


# --- systems and decompositions -------------------------------------------------------------------


def lower_triangle(size: int) -> Matrix:
    """Small whole numbers below a diagonal of ones and twos."""
    chance = dice(f"triangle {size}")
    rows: Matrix = []
    for row in range(size):
        below = [0.0] * size
        for column in range(max(0, row - 4), row):
            below[column] = chance.choice((-0.25, 0.0, 0.25))
        below[row] = 1.0 + row % 2
        rows.append(below)
    return rows


def multiplied(first: Matrix, second: Matrix) -> Matrix:
    columns = list(zip(*second))
    rows: Matrix = []
    for row in first:
        rows.append([sum(map(float.__mul__, row, column)) for column in columns])
    return rows


def transposed(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix)]


def flat(matrix: Matrix) -> List[float]:
    return [value for row in matrix for value in row]


def limit_of(name: str, size: int) -> Limit:
    """The triangles are well conditioned: errors grow with the length of their sums alone."""
    unit = (64 + 16 * size) * roundoff(name)
    return Limit(unit, unit)


def solved_systems(device: str) -> Iterator[Part]:
    """Catches a solve that exchanges rows wrongly, or reads the triangle above the diagonal."""
    for name in ("float32", "float64"):
        for size in SIZES:
            lower = lower_triangle(size)
            solution: Matrix = []
            for row in range(size):
                solution.append([float(3 * row % 5 - 2), float((3 * row + 1) % 5 - 2)])
            label = f"of {size} equations, {name}"
            limit = limit_of(name, size)
            triangle = tensor_of(flat(lower), name, device, size, size)
            right = multiplied(lower, solution)
            right_side = tensor_of(flat(right), name, device, size, 2)
            computed = torch.linalg.solve_triangular(triangle, right_side, upper=False)
            yield near(f"solve_triangular {label}", computed, flat(solution), limit)
            # The rows in the opposite order need pivots.
            turned = tensor_of(flat(lower[::-1]), name, device, size, size)
            turned_side = tensor_of(flat(right[::-1]), name, device, size, 2)
            computed = torch.linalg.solve(turned, turned_side)
            yield near(f"solve {label}", computed, flat(solution), limit)
            inverse = torch.linalg.inv(turned) @ turned_side
            yield near(f"inv {label}", inverse, flat(solution), limit)
            # Exchanging all rows turns the sign of a determinant this often.
            exchanges = size * (size - 1) // 2
            determinant = 2.0 ** (size // 2) * (-1) ** exchanges
            computed = torch.linalg.det(turned)
            yield near(f"det {label}", computed, [determinant], limit)


def decompositions(device: str) -> Iterator[Part]:
    """Catches a Cholesky, QR, eigen- or singular value that is another matrix's."""
    for name in ("float32", "float64"):
        for size in SIZES:
            lower = lower_triangle(size)
            square = multiplied(lower, transposed(lower))
            inputs = tensor_of(flat(square), name, device, size, size)
            label = f"of {size} x {size} {name}"
            limit = limit_of(name, size)
            computed = torch.linalg.cholesky(inputs)
            yield near(f"cholesky {label}", computed, flat(lower), limit)
            batch = torch.linalg.cholesky(inputs.expand(3, -1, -1))
            yield near(f"cholesky of a batch {label}", batch, flat(lower) * 3, limit)
            q, r = torch.linalg.qr(inputs)
            back = multiplied(q.tolist(), r.tolist())
            computed = tensor_of(flat(back), "float64", "cpu", size, size)
            yield near(f"qr {label}", computed, flat(square), limit)
            # The trace is the sum of the eigenvalues, and here of the singular values too.
            trace = sum(square[row][row] for row in range(size))
            values = torch.linalg.eigvalsh(inputs)
            yield near(f"sum of eigvalsh {label}", values.sum(), [trace], limit)
            values = torch.linalg.svdvals(inputs)
            yield near(f"sum of svdvals {label}", values.sum(), [trace], limit)
