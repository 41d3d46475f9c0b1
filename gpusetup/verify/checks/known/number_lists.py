"""Helpers for lists of numbers in Python, which are the inputs and exact results of the tests."""

from __future__ import annotations

import operator
from random import Random
from typing import Iterable, List, Sequence, TypeVar, Union

Number = Union[int, float]
Element = TypeVar("Element")


# --- inputs ---------------------------------------------------------------------------------------


def repeated(values: Sequence[Number], length: int) -> List[Number]:
    """Returns the values, repeated until the list has this length.

    >>> repeated([1, 2], 5)
    [1, 2, 1, 2, 1]
    """
    periods = length // len(values) + 1
    longer = list(values) * periods
    return longer[:length]


def sawtooth(length: int, period: int, start: int = 0) -> List[float]:
    """Returns whole numbers that rise by 1 and start again after each period.

    >>> sawtooth(5, period=3, start=1)
    [1.0, 2.0, 3.0, 1.0, 2.0]
    """
    values: List[float] = []
    for position in range(length):
        step = position % period
        values.append(float(start + step))
    return values


def random_wholes(chance: Random, count: int, lowest: int, highest: int) -> List[float]:
    """Returns random whole numbers from `lowest` to `highest`, both included."""
    values: List[float] = []
    for _ in range(count):
        number = chance.randint(lowest, highest)
        values.append(float(number))
    return values


ONE, STEP = 1.0, 16.0
"""A number that a long sum must keep, and the steps that hide it if the sum is kept in 16 bits:
above 2,048 (float16) or 256 (bfloat16), a multiple of 16 plus 1 is rounded to the multiple."""


def there_and_back(steps: int, run: int) -> List[float]:
    """Returns the number 1, followed by runs of steps up and runs of steps down. The steps cancel
    out, so the sum is 1.

    If a run is half of all steps, the partial sums of whole blocks are far from zero. If the runs
    are short, the partial sums of single vector lanes are far from zero. A kernel that keeps such a
    partial sum in 16 bits loses the 1.

    >>> there_and_back(4, run=2)
    [1.0, 16.0, 16.0, -16.0, -16.0]
    """
    up = [STEP] * run
    down = [-STEP] * run
    return [ONE, *repeated(up + down, steps)]


# --- rows and columns -----------------------------------------------------------------------------


def joined(rows: Iterable[Iterable[Element]]) -> List[Element]:
    """Returns the elements of all rows, one row after the other.

    >>> joined([[1, 2], [3]])
    [1, 2, 3]
    """
    elements: List[Element] = []
    for row in rows:
        elements.extend(row)
    return elements


def rows_of_length(values: Sequence[Element], length: int) -> List[List[Element]]:
    """Splits the elements into rows of this length.

    >>> rows_of_length([1, 2, 3, 4], 2)
    [[1, 2], [3, 4]]
    """
    rows: List[List[Element]] = []
    for start in range(0, len(values), length):
        row = values[start : start + length]
        rows.append(list(row))
    return rows


def columns_of(rows: Iterable[Sequence[Element]]) -> List[List[Element]]:
    """Returns the columns of a matrix that is given as rows. It also turns columns into rows.

    >>> columns_of([[1, 2], [3, 4]])
    [[1, 3], [2, 4]]
    """
    columns: List[List[Element]] = []
    for column in zip(*rows):
        columns.append(list(column))
    return columns


def elements_at(positions: Iterable[int], values: Sequence[Element]) -> List[Element]:
    """Returns the elements at these positions, in the order of the positions."""
    return [values[position] for position in positions]


# --- arithmetic -----------------------------------------------------------------------------------


def sums_of_pairs(first: Iterable[float], second: Iterable[float]) -> List[float]:
    """Adds two lists element by element."""
    sums = map(operator.add, first, second)
    return list(sums)


def products_of_pairs(first: Iterable[float], second: Iterable[float]) -> List[float]:
    """Multiplies two lists element by element."""
    products = map(operator.mul, first, second)
    return list(products)


def scaled(values: Iterable[float], factor: float) -> List[float]:
    """Each number times the factor."""
    return [value * factor for value in values]
