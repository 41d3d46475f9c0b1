"""Indexing with two or three index tensors that contain negative indices.

Part of the check `indexing`. All numbers are small and whole, so every sum is exact in every format
and in any order.
"""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random
from typing import Any, Iterator, List, NamedTuple, Tuple

import torch

from ...judging.tolerance import Part
from .answers import dice, exactly, formats_on, tensor_of
from .number_lists import elements_at, joined, random_wholes, sums_of_pairs

Box = Tuple[int, int, int]
"""The lengths of a tensor's three axes, or an index along each axis."""
CASES: Tuple[Tuple[Box, int], ...] = (
    ((3, 4, 5), 7),
    ((7, 3, 2), 33),
    ((2, 17, 33), 129),
    ((33, 5, 65), 513),
)
"""The shape of a tensor, whose axes all differ in length, and the number of elements that one call
reads or writes."""
LINES = 5
"""The number of rows, and of pairs of a column and a depth, that are combined with each other."""


class NamedPlaces(NamedTuple):
    """The numbers of a tensor, and the indices at which elements are read and written."""

    box: Box
    numbers: List[float]
    """The tensor's elements in memory order."""
    axes: List[List[int]]
    """Three lists of indices, one per axis, of the same length. Negative indices count from the end
    of the axis."""
    added: List[float]
    """The numbers to add, one for each indexed element."""

    def position_of(self, place: Box) -> int:
        """The position of an element in memory. Python's `%` makes negative indices positive."""
        position = 0
        for index, length in zip(place, self.box):
            position = position * length + index % length
        return position

    def places(self) -> Iterator[Box]:
        """The three indices of each element that is read or written."""
        return zip(*self.axes)

    @property
    def label(self) -> str:
        return f"{self.box}, {len(self.added)} places"


def places_along(chance: Random, length: int, count: int) -> List[int]:
    """Random indices along an axis, positive and negative. The first and the last element each
    occur with a positive and with a negative index."""
    places = [chance.randrange(-length, length) for _ in range(count)]
    places[:4] = chance.sample([-1, 0, -length, length - 1], 4)
    return places


def named_places(box: Box, count: int) -> NamedPlaces:
    """Make a tensor of numbers from 0 to 60 and random indices. The first element is indexed again
    at the end."""
    chance = dice(f"places {box} {count}")
    height, width, depth = box
    numbers = random_wholes(chance, height * width * depth, 0, 60)
    axes = [places_along(chance, length, count) for length in box]
    # Index the first element again at the end, counted from the other side of each axis.
    for places, length in zip(axes, box):
        first = places[0]
        places[-1] = first + length if first < 0 else first - length
    # All numbers to add are positive, so that they cannot cancel out.
    added = random_wholes(chance, count, 1, 2)
    return NamedPlaces(box, numbers, axes, added)


class PlaceTensors(NamedTuple):
    """The numbers, the index tensors and the numbers to add, as tensors on a device."""

    numbers: Any
    axes: List[Any]
    added: Any


def place_tensors(case: NamedPlaces, dtype_name: str, device: str) -> PlaceTensors:
    """Put a case into tensors. `dtype_name` is the format of the numbers; the indices are always
    64-bit integers."""
    return PlaceTensors(
        tensor_of(case.numbers, dtype_name, device, *case.box),
        [tensor_of(places, "int64", device) for places in case.axes],
        tensor_of(case.added, dtype_name, device),
    )


class ExactAnswers(NamedTuple):
    """The exact result of every read and write, computed once for all formats."""

    read: List[float]
    gradient: List[float]
    written: List[float]
    sums: List[float]
    lines: List[List[float]]
    """For each axis, the elements that are read if that axis is `:`."""
    sums_of_lines: List[List[float]]
    """For each axis, the whole tensor after each number is added to all elements along that axis.
    """
    combinations: List[float]


def exact_answers(case: NamedPlaces) -> ExactAnswers:
    """Compute the exact result of every read and write with Python lists."""
    gradient = [0.0] * len(case.numbers)
    written = list(case.numbers)
    positions = [case.position_of(place) for place in case.places()]
    for position, added in zip(positions, case.added):
        gradient[position] += added
        # Every write stores 7, so the order does not matter.
        written[position] = 7.0
    return ExactAnswers(
        read=elements_at(positions, case.numbers),
        gradient=gradient,
        written=written,
        sums=sums_of_pairs(case.numbers, gradient),
        lines=[lines_read(case, axis) for axis in range(3)],
        sums_of_lines=[lines_added(case, axis) for axis in range(3)],
        combinations=combinations_read(case),
    )


def line_of(case: NamedPlaces, place: Box, whole_axis: int) -> List[int]:
    """The positions in memory of all elements along one axis, for the given indices of the two
    other axes."""
    start = list(place)
    start[whole_axis] = 0
    first = case.position_of((start[0], start[1], start[2]))
    stride = prod(case.box[whole_axis + 1 :])
    end = first + stride * case.box[whole_axis]
    return list(range(first, end, stride))


def lines_read(case: NamedPlaces, whole_axis: int) -> List[float]:
    """The elements that are read if one axis is `:`, one line after the other."""
    lines = [line_of(case, place, whole_axis) for place in case.places()]
    return elements_at(joined(lines), case.numbers)


def lines_added(case: NamedPlaces, whole_axis: int) -> List[float]:
    """The tensor's elements after each number is added to every element of its line."""
    sums = list(case.numbers)
    for place, added in zip(case.places(), case.added):
        for position in line_of(case, place, whole_axis):
            sums[position] += added
    return sums


def combinations_read(case: NamedPlaces) -> List[float]:
    """The elements for every combination of a row index with a pair of column and depth indices."""
    rows = case.axes[0][:LINES]
    pairs = zip(case.axes[1][-LINES:], case.axes[2][:LINES])
    positions: List[int] = []
    for row, (column, depth) in product(rows, pairs):
        positions.append(case.position_of((row, column, depth)))
    return elements_at(positions, case.numbers)


def several_indices(device: str) -> Iterator[Part]:
    """Catches negative indices that are counted from the end of the wrong axis, or that only work
    in the first of several index tensors. Tests reads, writes, sums and gradients."""
    for box, count in CASES:
        case = named_places(box, count)
        exact = exact_answers(case)
        for dtype_name in (*formats_on(device), "int64", "int32"):
            inputs = place_tensors(case, dtype_name, device)
            label = f"of {case.label} {dtype_name}"
            yield from read_at_places(inputs, exact, label)
            yield from written_at_places(inputs, exact, label)
            for whole_axis in range(3):
                yield from lines_at_places(inputs, whole_axis, exact, label)


def read_at_places(inputs: PlaceTensors, exact: ExactAnswers, label: str) -> Iterator[Part]:
    """Compare reading with three index tensors, its gradient, and reading with broadcast index
    tensors, which combine every row with every pair of column and depth."""
    first, second, third = inputs.axes
    computed = inputs.numbers[first, second, third]
    yield exactly(f"x[i, j, k] {label}", computed, exact.read)
    if inputs.numbers.is_floating_point():
        leaf = inputs.numbers.clone().requires_grad_()
        (computed,) = torch.autograd.grad(leaf[first, second, third], leaf, inputs.added)
        yield exactly(f"gradient of x[i, j, k] {label}", computed, exact.gradient)

    index = (first[:LINES, None], second[-LINES:], third[:LINES])
    computed = inputs.numbers[index]
    yield exactly(f"every row with every column {label}", computed, exact.combinations)
    # Read the same elements from a tensor whose axes have another order in memory.
    turned = inputs.numbers.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    computed = turned[index]
    yield exactly(f"every row with every column, permuted, {label}", computed, exact.combinations)


def written_at_places(inputs: PlaceTensors, exact: ExactAnswers, label: str) -> Iterator[Part]:
    """Compare overwriting and adding with three index tensors."""
    places = tuple(inputs.axes)
    sevens = torch.full_like(inputs.added, 7)
    computed = inputs.numbers.index_put(places, sevens)
    yield exactly(f"index_put at [i, j, k] {label}", computed, exact.written)
    computed = inputs.numbers.clone()
    computed[places] = 7
    yield exactly(f"x[i, j, k] = 7 {label}", computed, exact.written)
    computed = inputs.numbers.index_put(places, inputs.added, accumulate=True)
    yield exactly(f"index_put of sums at [i, j, k] {label}", computed, exact.sums)


def lines_at_places(
    inputs: PlaceTensors, whole_axis: int, exact: ExactAnswers, label: str
) -> Iterator[Part]:
    """Compare reading and adding with two index tensors and one whole axis: `x[:, j, k]`,
    `x[i, :, k]` or `x[i, j, :]`."""
    index: List[Any] = list(inputs.axes)
    index[whole_axis] = slice(None)
    letters = ["i", "j", "k"]
    letters[whole_axis] = ":"
    name = ", ".join(letters)
    computed = inputs.numbers[tuple(index)]
    if whole_axis == 0:
        # For `x[:, j, k]` torch returns the axis `:` first, but for the two other cases it comes
        # last (NumPy's rule). `exact.lines` always has it last, so transpose.
        computed = computed.t()
    yield exactly(f"x[{name}] {label}", computed, exact.lines[whole_axis])

    # To add along a whole axis, move it to the end and use the two other index tensors.
    moved = inputs.numbers.clone().movedim(whole_axis, -1)
    index_tensors = list(inputs.axes)
    del index_tensors[whole_axis]
    # The same number is added to each element of a line.
    moved.index_put_(tuple(index_tensors), inputs.added[:, None], accumulate=True)
    computed = moved.movedim(-1, whole_axis)
    expected = exact.sums_of_lines[whole_axis]
    yield exactly(f"index_put of sums at [{name}] {label}", computed, expected)
