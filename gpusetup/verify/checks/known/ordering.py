"""Sorts, searches, running sums and counts with many ties, NaN and long rows, compared with
Python's sort."""

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
"""Also one past 1,024, 2,048 and 4,096: kernels sort blocks of these sizes."""
WHOLE_FORMATS = ("int64", "int32", "uint8")
"""Formats of integers."""
Key = Tuple[bool, float]
"""(whether it is NaN, the number)."""


class Ranking(NamedTuple):
    """A row, and its positions in rising and falling order; equal elements keep their order."""

    values: List[float]
    rising: List[int]
    falling: List[int]

    def at(self, positions: Sequence[int]) -> List[float]:
        """The elements at these positions."""
        return elements_at(positions, self.values)


def ordering(device: str) -> Outcome:
    """Check that sorts, topk, medians, searches and running sums of a row agree with Python."""
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
    """A sort key by which NaN is larger than every number, as in torch."""
    if isnan(value):
        return (True, 0.0)
    return (False, value)


def ranking_of(values: List[float]) -> Ranking:
    """The row's values with the positions of its stable rising and falling sorts, by Python."""
    keys = list(map(key_of, values))
    positions = range(len(values))
    rising = sorted(positions, key=keys.__getitem__)
    # Not the rising order reversed: that would reverse the order of equal elements.
    falling = sorted(positions, key=keys.__getitem__, reverse=True)
    return Ranking(values, rising, falling)


def tied_row(length: int, dtype_name: str, salt: str = "") -> List[float]:
    """Small random whole numbers with many ties; longer floating-point rows also contain infinities
    and NaN."""
    chance = dice(f"tied {length} {dtype_name} {salt}")
    values = [float(chance.randrange(40)) for _ in range(length)]
    # A short row would consist of nothing else.
    if dtype_name not in WHOLE_FORMATS and length > 20:
        for special in (inf, -inf, nan, nan, -3.0):
            position = chance.randrange(length)
            values[position] = special
    return values


def whole_row(length: int, salt: str) -> List[float]:
    """Small random whole numbers with many ties, without infinities or NaN."""
    return tied_row(length, "uint8", salt)


def every_format(device: str) -> Tuple[str, ...]:
    return (*formats_on(device), *WHOLE_FORMATS)


# --- sorts ----------------------------------------------------------------------------------------


def sorted_rows(device: str) -> Iterator[Part]:
    """Catches a stable sort that exchanges equal elements, and a row whose end stays unsorted."""
    for dtype_name in every_format(device):
        for length in LENGTHS:
            ranking = ranking_of(tied_row(length, dtype_name))
            inputs = tensor_of(ranking.values, dtype_name, device)
            label = f"of {length} {dtype_name} numbers"
            for method in ("rising", "falling"):
                yield from sorts_of_row(method, ranking, inputs, label)


def sorts_of_row(method: str, ranking: Ranking, inputs: Any, label: str) -> Iterator[Part]:
    """Compare a stable sort of one row, and a plain sort, which may swap equal elements."""
    is_falling = method == "falling"
    positions = ranking.falling if is_falling else ranking.rising
    exact = ranking.at(positions)
    stable_label = f"{method} stable sort {label}"
    values, computed_positions = torch.sort(inputs, stable=True, descending=is_falling)
    yield exactly(stable_label, values, exact)
    yield exactly(f"places of a {stable_label}", computed_positions, positions)

    # A sort that is not stable may return equal elements in any order.
    plain_label = f"{method} sort {label}"
    values, computed_positions = torch.sort(inputs, descending=is_falling)
    yield exactly(plain_label, values, exact)
    yield from names_each_once(plain_label, ranking, values, computed_positions)


def names_each_once(label: str, ranking: Ranking, values: Any, positions: Any) -> Iterator[Part]:
    """Compare the positions that a sort returned: each occurs once, and its element is the sorted
    value. Such a sort may exchange equal elements, so the positions themselves are not compared."""
    computed = flat_list(positions)
    all_positions = range(len(computed))
    each_once = sorted(computed) == list(all_positions)
    yield holds(f"{label}, places", each_once, "not each one once")
    row_positions = range(len(ranking.values))
    # A value can only be looked up at a position inside of the row.
    are_inside = all(position in row_positions for position in computed)
    yield holds(f"{label}, range of places", are_inside, "a place outside of the row")
    if are_inside:
        yield exactly(f"{label}, values at its places", values, ranking.at(computed))


def sorted_columns(device: str) -> Iterator[Part]:
    """Catches a sort that is only right along the last axis."""
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
    """The elements, row by row, of the matrix with these columns."""
    return joined(zip(*columns))


# --- largest and smallest -------------------------------------------------------------------------


def largest_elements(device: str) -> Iterator[Part]:
    """Catches a topk that misses a block of a long row, and a wrong k-th smallest element."""
    for dtype_name in every_format(device):
        for length in LENGTHS:
            ranking = ranking_of(tied_row(length, dtype_name, "top"))
            inputs = tensor_of(ranking.values, dtype_name, device)
            label = f"of {length} {dtype_name} numbers"
            # One element, a few, and half of the row.
            for count in sorted({1, min(5, length), (length + 1) // 2}):
                yield from top_elements("largest", count, ranking, inputs)
                yield from top_elements("smallest", count, ranking, inputs)

            rank = (length + 2) // 3
            computed = torch.kthvalue(inputs, rank)[0]
            position = ranking.rising[rank - 1]
            yield exactly(f"{rank}-th {label}", computed, [ranking.values[position]])


def top_elements(method: str, count: int, ranking: Ranking, inputs: Any) -> Iterator[Part]:
    """Compare topk of `count` largest or smallest elements, and check that its indices are distinct
    and right."""
    is_largest = method == "largest"
    positions = ranking.falling if is_largest else ranking.rising
    values, computed = torch.topk(inputs, count, largest=is_largest)
    dtype_name = dtype_name_of(inputs)
    label = f"{count} {method} of {len(inputs)} {dtype_name} numbers"
    yield exactly(label, values, ranking.at(positions[:count]))
    # Among equal elements each choice is right.
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
    """Compare the largest, smallest and median number of a row, and the positions of both
    extremes."""
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
    # Of two middle numbers torch takes the lower one.
    middle = sorted(numbers)[(length - 1) // 2]
    computed = inputs.median()
    yield exactly(f"median {label}", computed, [middle])

    yield from place_of_extreme(f"argmax {label}", inputs.argmax(), numbers, highest)
    yield from place_of_extreme(f"argmin {label}", inputs.argmin(), numbers, lowest)


def place_of_extreme(
    label: str, computed: Any, numbers: List[float], extreme: float
) -> Iterator[Part]:
    """Check that the extreme is at the position that torch returns; on a CPU it must be the first
    such position."""
    position = int(computed)
    is_inside = 0 <= position < len(numbers)
    is_right = is_inside and numbers[position] == extreme
    yield holds(label, is_right, f"{position} does not hold the extreme")
    # A GPU may name another of equal ones.
    if kind(str(computed.device)) == "cpu":
        first = numbers.index(extreme)
        yield exactly(f"{label}, the first", computed, [first])


# --- searches, running sums, counts ---------------------------------------------------------------


def places_in_a_sorted_row(device: str) -> Iterator[Part]:
    """Catches a searchsorted or bucketize that stops a step early, or takes the wrong side of equal
    elements."""
    # Also numbers below and above all those of the row.
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
    """Catches a cumsum or cummax that loses the carry from one block to the next."""
    for dtype_name in ("float32", "float64", "int64", "int32"):
        for length in LENGTHS:
            numbers = whole_row(length, "running")
            # Whole numbers far below 2 to the 24: each sum is exact.
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
    """Catches a unique or bincount that loses elements."""
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
            # It counts integers alone; all numbers are below 41.
            if dtype_name == "int64":
                exact = [occurrences[float(number)] for number in range(41)]
                computed = torch.bincount(inputs, minlength=41)
                yield exactly(f"bincount {label}", computed, exact)
