"""Sorting, searching, running sums and counting, compared with Python. The rows have up to 70,001
numbers, many of them equal, and some contain NaN."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate
from math import inf, isnan, nan
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part, holds
from ...values import Outcome, kind
from .answers import ask_all, dice, dtype_name_of, exactly, flat_list, formats_on, tensor_of
from .number_lists import Element, elements_at, joined

LENGTHS = (1, 17, 128, 1000, 1025, 2049, 4097, 70_001)
"""Row lengths, among them one more than 1,024, 2,048 and 4,096, because kernels sort blocks of
these sizes."""
WHOLE_FORMATS = ("int64", "int32", "uint8")
"""The integer formats to test."""
Key = Tuple[bool, float]
"""A sort key: whether the number is NaN, then the number."""


class Ranking(NamedTuple):
    """A row, and the positions of its elements in ascending and descending order. Equal elements
    keep their order."""

    values: List[float]
    rising: List[int]
    falling: List[int]

    def at(self, positions: Sequence[int]) -> List[float]:
        """The elements at these positions."""
        return elements_at(positions, self.values)


def ordering(device: str) -> Outcome:
    """Check that sort, topk, median, searches and running sums of a row agree with Python."""
    questions = (
        sorted_rows,
        sorted_columns,
        largest_elements,
        extremes_and_ties,
        places_in_a_sorted_row,
        running_sums,
        distinct_numbers,
    )
    return ask_all(device, questions, "the order that Python finds")


def key_of(value: float) -> Key:
    """Returns a sort key that makes NaN larger than every number, as in torch."""
    if isnan(value):
        return (True, 0.0)
    return (False, value)


def ranking_of(values: List[float]) -> Ranking:
    """Sort a row in Python, in ascending and in descending order. Both sorts are stable."""
    keys = list(map(key_of, values))
    positions = range(len(values))
    rising = sorted(positions, key=keys.__getitem__)
    # Do not just reverse the ascending order, because that would reverse equal elements too.
    falling = sorted(positions, key=keys.__getitem__, reverse=True)
    return Ranking(values, rising, falling)


def tied_row(length: int, dtype_name: str, salt: str = "") -> List[float]:
    """Random whole numbers below 40, many of them equal. Longer floating-point rows also contain
    infinities and NaN."""
    chance = dice(f"tied {length} {dtype_name} {salt}")
    values = [float(chance.randrange(40)) for _ in range(length)]
    # A short row would contain almost nothing but these special values.
    if dtype_name not in WHOLE_FORMATS and length > 20:
        for special in (inf, -inf, nan, nan, -3.0):
            position = chance.randrange(length)
            values[position] = special
    return values


def whole_row(length: int, salt: str) -> List[float]:
    """Random whole numbers below 40, many of them equal, without infinities and NaN."""
    return tied_row(length, "uint8", salt)


def every_format(device: str) -> Tuple[str, ...]:
    return (*formats_on(device), *WHOLE_FORMATS)


# --- sorts ----------------------------------------------------------------------------------------


def sorted_rows(device: str) -> Iterator[Part]:
    """Catches a stable sort that reorders equal elements, and a sort that leaves the end of a row
    unsorted."""
    for dtype_name in every_format(device):
        for length in LENGTHS:
            ranking = ranking_of(tied_row(length, dtype_name))
            inputs = tensor_of(ranking.values, dtype_name, device)
            label = f"of {length} {dtype_name} numbers"
            for method in ("rising", "falling"):
                yield from sorts_of_row(method, ranking, inputs, label)


def sorts_of_row(method: str, ranking: Ranking, inputs: Any, label: str) -> Iterator[Part]:
    """Compare a stable sort of one row, and a plain sort, which may reorder equal elements."""
    is_falling = method == "falling"
    positions = ranking.falling if is_falling else ranking.rising
    exact = ranking.at(positions)
    stable_label = f"{method} stable sort {label}"
    values, computed_positions = torch.sort(inputs, stable=True, descending=is_falling)
    yield exactly(stable_label, values, exact)
    yield exactly(f"places of a {stable_label}", computed_positions, positions)

    # A plain sort may return the positions of equal elements in any order.
    plain_label = f"{method} sort {label}"
    values, computed_positions = torch.sort(inputs, descending=is_falling)
    yield exactly(plain_label, values, exact)
    yield from names_each_once(plain_label, ranking, values, computed_positions)


def names_each_once(label: str, ranking: Ranking, values: Any, positions: Any) -> Iterator[Part]:
    """Check the positions that a plain sort returned: each must occur once, and the element there
    must be the sorted value. The positions are not compared with Python's, because the sort may
    reorder equal elements."""
    computed = flat_list(positions)
    all_positions = range(len(computed))
    each_once = sorted(computed) == list(all_positions)
    yield holds(f"{label}, places", each_once, "not each one once")
    row_positions = range(len(ranking.values))
    # Only positions inside the row can be looked up below.
    are_inside = all(position in row_positions for position in computed)
    yield holds(f"{label}, range of places", are_inside, "a place outside of the row")
    if are_inside:
        yield exactly(f"{label}, values at its places", values, ranking.at(computed))


def sorted_columns(device: str) -> Iterator[Part]:
    """Catches a sort that is right only along the last axis."""
    for dtype_name in ("float32", "int64", "float64"):
        for length in (17, 1025, 2049):
            columns: List[Ranking] = []
            for number in range(3):
                column = tied_row(length, dtype_name, f"column {number}")
                columns.append(ranking_of(column))
            unsorted = side_by_side([column.values for column in columns])
            inputs = tensor_of(unsorted, dtype_name, device, length, 3)
            values, positions = torch.sort(inputs, dim=0, stable=True)

            label = f"of 3 columns of {length} {dtype_name} numbers"
            exact = side_by_side([column.at(column.rising) for column in columns])
            yield exactly(f"sort {label}", values, exact)
            exact_positions = side_by_side([column.rising for column in columns])
            yield exactly(f"places of a sort {label}", positions, exact_positions)


def side_by_side(columns: Sequence[Sequence[Element]]) -> List[Element]:
    """Returns the elements, row by row, of a matrix with these columns."""
    return joined(zip(*columns))


# --- largest and smallest -------------------------------------------------------------------------


def largest_elements(device: str) -> Iterator[Part]:
    """Catches a topk that leaves out a block of a long row, and a kthvalue that returns the wrong
    element."""
    for dtype_name in every_format(device):
        for length in LENGTHS:
            ranking = ranking_of(tied_row(length, dtype_name, "top"))
            inputs = tensor_of(ranking.values, dtype_name, device)
            label = f"of {length} {dtype_name} numbers"
            # Select one element, a few, and half of the row.
            for count in sorted({1, min(5, length), (length + 1) // 2}):
                yield from top_elements("largest", count, ranking, inputs)
                yield from top_elements("smallest", count, ranking, inputs)

            rank = (length + 2) // 3
            computed = torch.kthvalue(inputs, rank)[0]
            position = ranking.rising[rank - 1]
            yield exactly(f"{rank}-th {label}", computed, [ranking.values[position]])


def top_elements(method: str, count: int, ranking: Ranking, inputs: Any) -> Iterator[Part]:
    """Compare topk for the `count` largest or smallest elements, and check that its indices are
    right and distinct."""
    is_largest = method == "largest"
    positions = ranking.falling if is_largest else ranking.rising
    values, computed = torch.topk(inputs, count, largest=is_largest)
    dtype_name = dtype_name_of(inputs)
    label = f"{count} {method} of {len(inputs)} {dtype_name} numbers"
    yield exactly(label, values, ranking.at(positions[:count]))
    # topk may choose any of several equal elements.
    computed_positions = flat_list(computed)
    are_distinct = len(set(computed_positions)) == count
    yield holds(f"{label}, places", are_distinct, "a place comes twice")
    yield exactly(f"{label}, values there", values, ranking.at(computed_positions))


def extremes_and_ties(device: str) -> Iterator[Part]:
    """Catches a maximum that skips elements, a wrong median, and an argmax that does not point to a
    maximum."""
    for dtype_name in every_format(device):
        for length in LENGTHS:
            yield from extremes_of_row(length, dtype_name, device)


def extremes_of_row(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the largest, smallest and median number of a row, and the positions of the largest
    and smallest."""
    numbers = whole_row(length, "extremes")
    lowest = min(numbers)
    highest = max(numbers)
    inputs = tensor_of(numbers, dtype_name, device)
    label = f"of {length} {dtype_name} numbers"

    computed = inputs.max()
    yield exactly(f"largest {label}", computed, [highest])
    computed = inputs.min()
    yield exactly(f"smallest {label}", computed, [lowest])
    computed = inputs.amax(0)
    yield exactly(f"amax {label}", computed, [highest])
    # If there are two middle numbers, torch returns the lower one.
    middle = sorted(numbers)[(length - 1) // 2]
    computed = inputs.median()
    yield exactly(f"median {label}", computed, [middle])

    yield from place_of_extreme(f"argmax {label}", inputs.argmax(), numbers, highest)
    yield from place_of_extreme(f"argmin {label}", inputs.argmin(), numbers, lowest)


def place_of_extreme(
    label: str, computed: Any, numbers: List[float], extreme: float
) -> Iterator[Part]:
    """Check that the largest (or smallest) number is at the position that torch returns. On a CPU
    it must be the first such position."""
    position = int(computed)
    is_inside = 0 <= position < len(numbers)
    is_right = is_inside and numbers[position] == extreme
    yield holds(label, is_right, f"{position} does not hold the extreme")
    # A GPU may return any position if several elements are equal.
    if kind(str(computed.device)) == "cpu":
        first = numbers.index(extreme)
        yield exactly(f"{label}, the first", computed, [first])


# --- searches, running sums, counts ---------------------------------------------------------------


def places_in_a_sorted_row(device: str) -> Iterator[Part]:
    """Catches a searchsorted or bucketize that stops one step early, or returns the wrong side of
    equal elements."""
    # Search also for numbers below and above all numbers in the row.
    targets = [float(value) for value in range(-2, 44)]
    for dtype_name in ("float32", "float64", "int64"):
        for length in LENGTHS:
            numbers = sorted(whole_row(length, "line"))
            inputs = tensor_of(numbers, dtype_name, device)
            sought = tensor_of(targets, dtype_name, device)
            label = f"in {length} {dtype_name} numbers"
            before_equals = [bisect_left(numbers, target) for target in targets]
            computed = torch.searchsorted(inputs, sought)
            yield exactly(f"searchsorted {label}", computed, before_equals)
            after_equals = [bisect_right(numbers, target) for target in targets]
            computed = torch.bucketize(sought, inputs, right=True)
            yield exactly(f"bucketize {label}", computed, after_equals)


def running_sums(device: str) -> Iterator[Part]:
    """Catches a cumsum or cummax that does not carry its value from one block to the next."""
    for dtype_name in ("float32", "float64", "int64", "int32"):
        for length in LENGTHS:
            numbers = whole_row(length, "running")
            # The sums are whole numbers far below 2**24, so float32 holds each of them exactly.
            sums = list(accumulate(numbers))
            peaks = list(accumulate(numbers, max))
            inputs = tensor_of(numbers, dtype_name, device)
            label = f"of {length} {dtype_name} numbers"

            computed = inputs.cumsum(0)
            yield exactly(f"cumsum {label}", computed, sums)
            computed = inputs.cummax(0)[0]
            yield exactly(f"cummax {label}", computed, peaks)
            two_columns = inputs.reshape(length, 1).expand(length, 2)
            computed = two_columns.cumsum(0)
            exact = joined(zip(sums, sums))
            yield exactly(f"cumsum along the first axis {label}", computed, exact)


def distinct_numbers(device: str) -> Iterator[Part]:
    """Catches a unique or bincount that leaves out elements."""
    for dtype_name in ("float32", "int64"):
        for length in LENGTHS:
            numbers = whole_row(length, "distinct")
            distinct = sorted(set(numbers))
            occurrences = Counter(numbers)
            inputs = tensor_of(numbers, dtype_name, device)
            label = f"of {length} {dtype_name} numbers"

            values, positions, counts = torch.unique(
                inputs, return_inverse=True, return_counts=True
            )
            yield exactly(f"unique {label}", values, distinct)
            exact = [occurrences[number] for number in distinct]
            yield exactly(f"counts of unique {label}", counts, exact)
            exact = [distinct.index(number) for number in numbers]
            yield exactly(f"places of unique {label}", positions, exact)
            # bincount only accepts integers. Count up to 40, because all numbers are smaller than
            # 41.
            if dtype_name == "int64":
                exact = [occurrences[float(number)] for number in range(41)]
                computed = torch.bincount(inputs, minlength=41)
                yield exactly(f"bincount {label}", computed, exact)
