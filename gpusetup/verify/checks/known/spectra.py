"""Decompositions of larger matrices whose eigenvalues and eigenvectors are known. Part of the check
`linalg`.

Let H = 1 - 2 v v' / n be a reflection, where v contains n numbers that are 1 or -1. H is its own
inverse, and its columns are orthonormal. So for a diagonal matrix D of whole numbers, the matrix H
D H has the eigenvalues of D and the columns of H as eigenvectors, and Python can compute its
elements easily.
"""

from __future__ import annotations

from typing import Any, Iterator, List

import torch

from ...judging.tolerance import Part
from .answers import Limit, dice, flat_list, near, roundoff, tensor_of
from .number_lists import columns_of, joined, rows_of_length

Row = List[float]
Matrix = List[Row]
SIZES = (33, 65, 130)
"""Matrix sizes above 32 and 64, the block sizes of a Jacobi kernel, and above 128."""
DTYPE_NAME = "float32"
"""float64 is only tested for the small matrices in `linalg.py`, because it uses the same routines.
"""


def spectra(device: str) -> Iterator[Part]:
    """Catches a decomposition of many rows that stops early, or leaves out all blocks except the
    first."""
    for size in SIZES:
        yield from eigenvectors(size, device)
        yield from singular_vectors(size, device)
        yield from triangles(size, device)
        yield from solutions(size, device)


# --- known matrices -------------------------------------------------------------------------------


def signs(size: int, salt: str) -> Row:
    """The vector of a reflection. Its elements are 1 or -1 at random."""
    chance = dice(f"reflection {size} {salt}")
    return [chance.choice((-1.0, 1.0)) for _ in range(size)]


def scrambled(size: int) -> Row:
    """The whole numbers from 1 to `size`, in random order."""
    numbers = [float(number + 1) for number in range(size)]
    dice(f"eigenvalues {size}").shuffle(numbers)
    return numbers


def reflection(vector: Row) -> Matrix:
    """The matrix of the reflection by a vector v with n elements: 1 - 2 v v' / n."""
    size = len(vector)
    rows: Matrix = []
    for number, sign in enumerate(vector):
        row = [-2 * sign * other / size for other in vector]
        row[number] += 1.0
        rows.append(row)
    return rows


def reflected(vector: Row, rows: Matrix) -> Matrix:
    """The reflection by a vector v, times a matrix M: M - 2 v (v' M) / n."""
    size = len(vector)
    sums = [0.0] * len(rows[0])
    for sign, row in zip(vector, rows):
        sums = [total + sign * value for total, value in zip(sums, row)]
    parts = [2 * total / size for total in sums]
    product: Matrix = []
    for sign, row in zip(vector, rows):
        product.append([value - sign * part for value, part in zip(row, parts)])
    return product


def between_reflections(left: Row, diagonal: Row, right: Row) -> Matrix:
    """The product H D K, where H and K are the reflections by `left` and `right`, and D is a
    diagonal matrix."""
    rows: Matrix = []
    for value, row in zip(diagonal, reflection(right)):
        rows.append([value * element for element in row])
    return reflected(left, rows)


def on_device(matrix: Matrix, device: str) -> Any:
    """A matrix as a row-major float32 tensor on the device."""
    height = len(matrix)
    width = len(matrix[0])
    return tensor_of(joined(matrix), DTYPE_NAME, device, height, width)


def limit_for(size: int, scale: float) -> Limit:
    """The error allowed for a matrix of this size whose largest number is `scale`.

    It is four roundoffs for each number in a row. LAPACK's error is below a tenth of that.
    Eigenvectors have the same limit, because the eigenvalues are 1 apart.
    """
    roundings = 4 * size
    return Limit(absolute=roundings * roundoff(DTYPE_NAME) * scale)


def rows_with_signs(computed: Any, places: List[int]) -> Matrix:
    """The rows, negated where needed so that the element at the given place is positive. An
    eigenvector may have either sign."""
    rows = rows_of_length(flat_list(computed), computed.shape[-1])
    turned: Matrix = []
    for row, place in zip(rows, places):
        sign = -1.0 if row[place] < 0 else 1.0
        turned.append([sign * value for value in row])
    return turned


def places_by_size(diagonal: Row) -> List[int]:
    """The positions of the diagonal's numbers, in ascending order of the numbers."""
    return sorted(range(len(diagonal)), key=diagonal.__getitem__)


def near_in_python(label: str, rows: Matrix, exact: Matrix, limit: Limit) -> Part:
    """Compare rows that are Python lists, because Python changed their signs."""
    size = len(rows)
    computed = tensor_of(joined(rows), "float64", "cpu", size, len(rows[0]))
    return near(label, computed, joined(exact), limit)


# --- questions ------------------------------------------------------------------------------------


def eigenvectors(size: int, device: str) -> Iterator[Part]:
    """Compare the eigenvalues (1, 2, 3 and so on) and the eigenvectors, which are the columns of
    the reflection."""
    vector = signs(size, "eigenvectors")
    diagonal = scrambled(size)
    inputs = on_device(between_reflections(vector, diagonal, vector), device)
    limit = limit_for(size, size)
    label = f"of {size} rows, {DTYPE_NAME}"
    exact_values = sorted(diagonal)
    places = places_by_size(diagonal)
    columns = reflection(vector)

    values, vectors = torch.linalg.eigh(inputs)
    yield near(f"eigenvalues {label}", values, exact_values, limit)
    # Choose an eigenvector's sign so that its element on the reflection's diagonal, 1 - 2 / n, is
    # positive.
    turned = rows_with_signs(vectors.t(), places)
    exact = [columns[place] for place in places]
    yield near_in_python(f"eigenvectors {label}", turned, exact, limit)
    computed = torch.linalg.eigvalsh(inputs)
    yield near(f"eigvalsh {label}", computed, exact_values, limit)


def singular_vectors(size: int, device: str) -> Iterator[Part]:
    """Compare the singular values in descending order, and the singular vectors, which are the
    columns of the left and the right reflection."""
    left = signs(size, "left")
    right = signs(size, "right")
    diagonal = scrambled(size)
    inputs = on_device(between_reflections(left, diagonal, right), device)
    limit = limit_for(size, size)
    label = f"of {size} rows, {DTYPE_NAME}"
    places = places_by_size(diagonal)[::-1]

    u, values, vh = torch.linalg.svd(inputs)
    yield near(f"singular values {label}", values, sorted(diagonal, reverse=True), limit)
    for side, computed, vector in (("left", u.t(), left), ("right", vh, right)):
        columns = reflection(vector)
        exact = [columns[place] for place in places]
        turned = rows_with_signs(computed, places)
        yield near_in_python(f"{side} singular vectors {label}", turned, exact, limit)
    # A left and a right singular vector can only change their signs together, which the comparisons
    # above do not check.
    largest = places[0]
    same_sign = (u[largest, 0] > 0) == (vh[0, largest] > 0)
    yield near(f"signs of singular vectors {label}", same_sign, [True], Limit())


def triangles(size: int, device: str) -> Iterator[Part]:
    """Compare the QR decomposition of a reflected triangle, and a Cholesky decomposition with whole
    numbers in every step."""
    vector = signs(size, "triangle")
    label = f"of {size} rows, {DTYPE_NAME}"
    upper: Matrix = []
    for number in range(size):
        row = [0.0] * size
        row[number] = 4.0
        for column in range(number + 1, min(size, number + 4)):
            row[column] = 1.0 - (number + column) % 3
        upper.append(row)
    q, r = torch.linalg.qr(on_device(reflected(vector, upper), device))
    places = list(range(size))
    # The elements are at most 4. The limit is four times as large, because the decomposition of a
    # reflected triangle loses a few more bits.
    limit = limit_for(size, 16.0)
    yield near_in_python(f"R {label}", rows_with_signs(r, places), upper, limit)
    columns = reflection(vector)
    yield near_in_python(f"Q {label}", rows_with_signs(q.t(), places), columns, limit)

    lower: Matrix = []
    for number in range(size):
        height = 2.0 ** (number % 3)
        row = [height * vector[number] * sign for sign in vector[: number + 1]]
        lower.append(row + [0.0] * (size - number - 1))
    square: Matrix = []
    for number in range(size):
        row = []
        for other in range(size):
            # The element is a sum of equal products, up to the end of the shorter row.
            common = min(number, other) + 1
            row.append(common * lower[number][0] * lower[other][0])
        square.append(row)
    computed = torch.linalg.cholesky(on_device(square, device))
    # All numbers are whole and below 2**24, and the diagonal has powers of two. So only a kernel
    # that inverts blocks rounds.
    yield near(f"cholesky {label}", computed, joined(lower), limit_for(size, 4.0))


def solutions(size: int, device: str) -> Iterator[Part]:
    """For a matrix with singular values from 1 to 4, compare the inverse, and the solutions for
    three right-hand sides."""
    label = f"of {size} equations, {DTYPE_NAME}"
    diagonal = [1.0 + number % 4 for number in range(size)]
    left = signs(size, "left")
    right = signs(size, "right")
    rows = between_reflections(left, diagonal, right)
    unknowns: Matrix = []
    for number in range(size):
        unknowns.append([float((3 * number + column) % 7 - 3) for column in range(3)])
    # Compute the right-hand side in the same way: first one reflection, then the diagonal, then the
    # other reflection.
    scaled_rows: Matrix = []
    for value, row in zip(diagonal, reflected(right, unknowns)):
        scaled_rows.append([value * element for element in row])
    right_side = on_device(reflected(left, scaled_rows), device)
    inputs = on_device(rows, device)

    # The right-hand side is below 64, and the smallest singular value is 1.
    limit = limit_for(size, 64.0)
    exact = joined(unknowns)
    computed = torch.linalg.solve(inputs, right_side)
    yield near(f"solve {label}", computed, exact, limit)
    transposed = on_device(columns_of(rows), device)
    computed = torch.linalg.solve(transposed.t(), right_side)
    yield near(f"solve by columns {label}", computed, exact, limit)

    # The inverse has the reflections in reverse order, and the reciprocals of the diagonal.
    quotients = [1.0 / value for value in diagonal]
    exact = joined(between_reflections(right, quotients, left))
    computed = torch.linalg.inv(inputs)
    yield near(f"inv {label}", computed, exact, limit_for(size, 4.0))
