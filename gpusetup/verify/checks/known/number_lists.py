"""Lists of numbers in Python: inputs for tensors and exact results."""

from __future__ import annotations

import operator
from random import Random
from typing import Iterable, List, Sequence, TypeVar, Union

Number = Union[int, float]
Element = TypeVar("Element")


# --- inputs ---------------------------------------------------------------------------------------


def repeated(values: Sequence[Number], length: int) -> List[Number]:
    """The values repeated up to this length.

    >>> repeated([1, 2], 5)
    [1, 2, 1, 2, 1]
    """
    periods = length // len(values) + 1
    longer = list(values) * periods
    return longer[:length]


def sawtooth(length: int, period: int, start: int = 0) -> List[float]:
    """Whole numbers that rise by 1 and start again after each period.

    >>> sawtooth(5, period=3, start=1)
    [1.0, 2.0, 3.0, 1.0, 2.0]
    """
    values: List[float] = []
    for position in range(length):
        step = position % period
        values.append(float(start + step))
    return values


def random_wholes(chance: Random, count: int, lowest: int, highest: int) -> List[float]:
    """Random whole numbers from `lowest` to `highest`, both included."""
    values: List[float] = []
    for _ in range(count):
        number = chance.randint(lowest, highest)
        values.append(float(number))
    return values


ONE, STEP = 1.0, 16.0
"""A number that a long sum must not lose, and the size of the steps that hide it in 16 bits: past
2,048 (float16) or 256 (bfloat16), a multiple of the step plus 1 is no number of the format."""


def there_and_back(steps: int, run: int) -> List[float]:
    """The number 1, followed by runs of steps up and down that cancel each other out, so that the
    sum is 1.

    If a run is half of all steps, the partial sums of whole blocks are far from zero; if runs are
    short, those of single vector lanes are. Kept in 16 bits, such a partial sum loses the 1.

    >>> there_and_back(4, run=2)
    [1.0, 16.0, 16.0, -16.0, -16.0]
    """
    up = [STEP] * run
    down = [-STEP] * run
    return [ONE, *repeated(up + down, steps)]


# --- rows and columns -----------------------------------------------------------------------------


def joined(rows: Iterable[Iterable[Element]]) -> List[Element]:
    """The elements of all rows, one row after the other.

    >>> joined([[1, 2], [3]])
    [1, 2, 3]
    """
    elements: List[Element] = []
    for row in rows:
        elements.extend(row)
    return elements


def rows_of_length(values: Sequence[Element], length: int) -> List[List[Element]]:
    """The elements cut into rows of this length.

    >>> rows_of_length([1, 2, 3, 4], 2)
    [[1, 2], [3, 4]]
    """
    rows: List[List[Element]] = []
    for start in range(0, len(values), length):
        row = values[start : start + length]
        rows.append(list(row))
    return rows


def columns_of(rows: Iterable[Sequence[Element]]) -> List[List[Element]]:
    """The columns of a matrix given by rows, and the other way around.

    >>> columns_of([[1, 2], [3, 4]])
    [[1, 3], [2, 4]]
    """
    columns: List[List[Element]] = []
    for column in zip(*rows):
        columns.append(list(column))
    return columns


def elements_at(positions: Iterable[int], values: Sequence[Element]) -> List[Element]:
    """The elements at these positions, in the order of the positions."""
    return [values[position] for position in positions]


# --- arithmetic -----------------------------------------------------------------------------------


def sums_of_pairs(first: Iterable[float], second: Iterable[float]) -> List[float]:
    """The sums of two lists, element by element."""
    sums = map(operator.add, first, second)
    return list(sums)


def products_of_pairs(first: Iterable[float], second: Iterable[float]) -> List[float]:
    """The products of two lists, element by element."""
    products = map(operator.mul, first, second)
    return list(products)


def scaled(values: Iterable[float], factor: float) -> List[float]:
    """Each number times the factor."""
    return [value * factor for value in values]
