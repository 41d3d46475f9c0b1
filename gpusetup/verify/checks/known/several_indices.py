"""Elements named by two or three index tensors, each with negative places.

Asked by the check `indexing`. All numbers are small and whole, so every sum is exact in every
format, in whatever order it is made.
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
"""The lengths of the three axes of a tensor, or one index along each."""
CASES: Tuple[Tuple[Box, int], ...] = (
    ((3, 4, 5), 7),
    ((7, 3, 2), 33),
    ((2, 17, 33), 129),
    ((33, 5, 65), 513),
)
"""A tensor whose axes all differ, and how many of its elements are named at once."""
LINES = 5
"""Rows that are named with as many columns, in every combination."""


class NamedPlaces(NamedTuple):
    """A tensor, and the indices of the elements that are read and written."""

    box: Box
    numbers: List[float]
    """In the order of memory."""
    axes: List[List[int]]
    """Three lists of the same length; negative places count from the end of their axis."""
    added: List[float]
    """One number for each place."""

    def position_of(self, place: Box) -> int:
        """Where an element lies in memory; Python's rest makes negative places positive."""
        position = 0
        for index, length in zip(place, self.box):
            position = position * length + index % length
        return position

    def places(self) -> Iterator[Box]:
        """The three indices of each named element."""
        return zip(*self.axes)

    @property
    def label(self) -> str:
        return f"{self.box}, {len(self.added)} places"


def places_along(chance: Random, length: int, count: int) -> List[int]:
    """Random indices along an axis, positive and negative; the first and the last element each
    occur in both forms."""
    places = [chance.randrange(-length, length) for _ in range(count)]
    places[:4] = chance.sample([-1, 0, -length, length - 1], 4)
    return places


def named_places(box: Box, count: int) -> NamedPlaces:
    """Numbers from 0 to 60, and random places of them, of which the first one comes twice."""
    chance = dice(f"places {box} {count}")
    height, width, depth = box
    numbers = random_wholes(chance, height * width * depth, 0, 60)
    axes = [places_along(chance, length, count) for length in box]
    # The same element again, named from the other side of each axis.
    for places, length in zip(axes, box):
        first = places[0]
        places[-1] = first + length if first < 0 else first - length
    # Numbers that arrive at one place must not cancel each other out.
    added = random_wholes(chance, count, 1, 2)
    return NamedPlaces(box, numbers, axes, added)


class PlaceTensors(NamedTuple):
    """The numbers, index tensors and summands of a case, on a device."""

    numbers: Any
    axes: List[Any]
    added: Any


def place_tensors(case: NamedPlaces, dtype_name: str, device: str) -> PlaceTensors:
    """The numbers in one format; places are always 64-bit integers."""
    return PlaceTensors(
        tensor_of(case.numbers, dtype_name, device, *case.box),
        [tensor_of(places, "int64", device) for places in case.axes],
        tensor_of(case.added, dtype_name, device),
    )


class ExactAnswers(NamedTuple):
    """What every read and write has to give, worked out once for all formats."""

    read: List[float]
    gradient: List[float]
    written: List[float]
    sums: List[float]
    lines: List[List[float]]
    """For each axis: what is read if all of this axis is named."""
    sums_of_lines: List[List[float]]
    """For each axis: the whole tensor, after each number was added along all of this axis."""
    combinations: List[float]


def exact_answers(case: NamedPlaces) -> ExactAnswers:
    """The exact answer to every read and write, worked out with lists."""
    gradient = [0.0] * len(case.numbers)
    written = list(case.numbers)
    positions = [case.position_of(place) for place in case.places()]
    for position, added in zip(positions, case.added):
        gradient[position] += added
        # All writers write the same, so that their order does not matter.
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
    """The positions of all elements along one axis, at a place of the two other ones."""
    start = list(place)
    start[whole_axis] = 0
    first = case.position_of((start[0], start[1], start[2]))
    stride = prod(case.box[whole_axis + 1 :])
    end = first + stride * case.box[whole_axis]
    return list(range(first, end, stride))


def lines_read(case: NamedPlaces, whole_axis: int) -> List[float]:
    """The elements that are read if one axis is whole: one line for each place."""
    lines = [line_of(case, place, whole_axis) for place in case.places()]
    return elements_at(joined(lines), case.numbers)


def lines_added(case: NamedPlaces, whole_axis: int) -> List[float]:
    """The tensor after each place's number was added at every element of its line."""
    sums = list(case.numbers)
    for place, added in zip(case.places(), case.added):
        for position in line_of(case, place, whole_axis):
            sums[position] += added
    return sums


def combinations_read(case: NamedPlaces) -> List[float]:
    """The elements at every named row, combined with every named pair of a column and a depth."""
    rows = case.axes[0][:LINES]
    pairs = zip(case.axes[1][-LINES:], case.axes[2][:LINES])
    positions: List[int] = []
    for row, (column, depth) in product(rows, pairs):
        positions.append(case.position_of((row, column, depth)))
    return elements_at(positions, case.numbers)


def several_indices(device: str) -> Iterator[Part]:
    """Catches a negative place that counts from another axis's end, or that only the first of
    several index tensors may have, in reads, writes, sums and gradients."""
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
    """Compare reading with three index tensors, its gradient, and reading with a column and a row
    of indices, which name every combination."""
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
    # The same elements of a tensor whose axes lie in another order in memory.
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
        # torch leaves a leading whole axis in front of the places; `exact.lines` has the places
        # first, as torch itself does for the two other axes (NumPy's rule).
        computed = computed.t()
    yield exactly(f"x[{name}] {label}", computed, exact.lines[whole_axis])

    # With the axis moved to the end, two index tensors are enough to write, too.
    moved = inputs.numbers.clone().movedim(whole_axis, -1)
    index_tensors = list(inputs.axes)
    del index_tensors[whole_axis]
    # Each element of a line gets the same number.
    moved.index_put_(tuple(index_tensors), inputs.added[:, None], accumulate=True)
    computed = moved.movedim(-1, whole_axis)
    expected = exact.sums_of_lines[whole_axis]
    yield exactly(f"index_put of sums at [{name}] {label}", computed, expected)
