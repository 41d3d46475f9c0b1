"""Sorts, searches and the like, with many ties, NaN and rows past 1,024; Python sorts them too."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf, nan
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part, holds
from ...values import Outcome, kind
from .answers import ask_all, dice, exactly, flat_list, formats_on, tensor_of

LENGTHS = (1, 17, 128, 1000, 1025, 2049, 4097, 70_001)
WHOLE_FORMATS = ("int64", "int32", "uint8")
Key = Tuple[bool, float]


class Ranking(NamedTuple):
    """A row, and the places of its elements in their order; equal elements keep theirs."""

    values: List[float]
    rising: List[int]
    falling: List[int]

    def at(self, positions: Sequence[int]) -> List[float]:
        return [self.values[position] for position in positions]


def ordering(device: str) -> Outcome:
    """Sorts, the largest elements, medians, searches and sums along a row are those of Python."""
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
    """NaN is larger than every number, as torch has it."""
    return (value != value, 0.0 if value != value else value)


def ranking_of(values: List[float]) -> Ranking:
    keys = [key_of(value) for value in values]
    rising = sorted(range(len(values)), key=keys.__getitem__)
    falling = sorted(range(len(values)), key=keys.__getitem__, reverse=True)
    return Ranking(values, rising, falling)


def tied_row(length: int, name: str, salt: str = "") -> List[float]:
    """Small whole numbers, each many times; fractions' formats also have infinities and NaN."""
    chance = dice(f"tied {length} {name} {salt}")
    values = [float(chance.randrange(40)) for _ in range(length)]
    if name not in WHOLE_FORMATS and length > 20:
        for value in (inf, -inf, nan, nan, -3.0):
            values[chance.randrange(length)] = value
    return values


def row_on(device: str, name: str, values: Sequence[float]) -> Any:
    if name in WHOLE_FORMATS:
        return tensor_of([int(value) for value in values], name, device)
    return tensor_of(values, name, device)


def every_format(device: str) -> Tuple[str, ...]:
    return (*formats_on(device), *WHOLE_FORMATS)


def sorted_rows(device: str) -> Iterator[Part]:
    """Catches a stable sort that turns equal elements around, and a tail that is left unsorted."""
    for name in every_format(device):
        for length in LENGTHS:
            ranking = ranking_of(tied_row(length, name))
            inputs = row_on(device, name, ranking.values)
            label = f"of {length} {name} numbers"
            for falls, positions in ((False, ranking.rising), (True, ranking.falling)):
                computed = torch.sort(inputs, stable=True, descending=falls)
                method = "falling" if falls else "rising"
                yield exactly(f"{method} stable sort {label}", computed[0], ranking.at(positions))
                yield exactly(f"places of a {method} stable sort {label}", computed[1], positions)
                values, places_found = torch.sort(inputs, descending=falls)
                yield exactly(f"{method} sort {label}", values, ranking.at(positions))
                yield from names_each_once(f"{method} sort {label}", ranking, values, places_found)


def names_each_once(label: str, ranking: Ranking, values: Any, positions: Any) -> Iterator[Part]:
    """The places of a sort that is not stable: each one once, and its value there."""
    computed = flat_list(positions)
    yield holds(
        f"{label}, places", sorted(computed) == list(range(len(computed))), "not each one once"
    )
    inside = all(0 <= position < len(ranking.values) for position in computed)
    yield holds(f"{label}, range of places", inside, "a place outside of the row")
    if inside:
        yield exactly(f"{label}, values at its places", values, ranking.at(computed))


def sorted_columns(device: str) -> Iterator[Part]:
    """Catches a sort that is right along the last axis alone."""
    for name in ("float32", "int64", "float64"):
        for length in (17, 1025, 2049):
            columns = [ranking_of(tied_row(length, name, f"column {n}")) for n in range(3)]
            values = [value for row in zip(*(c.values for c in columns)) for value in row]
            inputs = row_on(device, name, values).reshape(length, 3)
            computed = torch.sort(inputs, dim=0, stable=True)
            ordered = [column.at(column.rising) for column in columns]
            label = f"of 3 columns of {length} {name} numbers"
            exact = [value for row in zip(*ordered) for value in row]
            yield exactly(f"sort {label}", computed[0], exact)
            positions = [position for row in zip(*(c.rising for c in columns)) for position in row]
            yield exactly(f"places of a sort {label}", computed[1], positions)


def largest_elements(device: str) -> Iterator[Part]:
    """Catches a topk that misses a block of a long row, and a wrong k-th element or median."""
    for name in every_format(device):
        for length in LENGTHS:
            ranking = ranking_of(tied_row(length, name, "top"))
            inputs = row_on(device, name, ranking.values)
            for count in sorted({1, min(5, length), (length + 1) // 2}):
                for largest, positions in ((True, ranking.falling), (False, ranking.rising)):
                    values, computed = torch.topk(inputs, count, largest=largest)
                    method = "largest" if largest else "smallest"
                    label = f"{count} {method} of {length} {name} numbers"
                    yield exactly(label, values, ranking.at(positions[:count]))
                    named_positions = flat_list(computed)
                    is_distinct = len(set(named_positions)) == count
                    yield holds(f"{label}, places", is_distinct, "a place comes twice")
                    yield exactly(f"{label}, values there", values, ranking.at(named_positions))
            count = (length + 2) // 3
            value = torch.kthvalue(inputs, count)[0]
            exact = ranking.at(ranking.rising[count - 1 : count])
            yield exactly(f"{count}-th of {length} {name} numbers", value, exact)


def extremes_and_ties(device: str) -> Iterator[Part]:
    """Catches a maximum that skips a lane, and an argmax that is not the first of equal ones."""
    for name in every_format(device):
        for length in LENGTHS:
            numbers = tied_row(length, "uint8", "extremes")
            ranking = ranking_of(numbers)
            inputs = row_on(device, name, numbers)
            label = f"of {length} {name} numbers"
            lowest, highest = min(numbers), max(numbers)
            computed = inputs.max()
            yield exactly(f"largest {label}", computed, [highest])
            computed = inputs.min()
            yield exactly(f"smallest {label}", computed, [lowest])
            computed = inputs.amax(0)
            yield exactly(f"amax {label}", computed, [highest])
            computed = inputs.median()
            yield exactly(f"median {label}", computed, ranking.at([middle_of(ranking)]))
            for method, computed in (("argmax", inputs.argmax()), ("argmin", inputs.argmin())):
                extreme = highest if method == "argmax" else lowest
                position = int(computed)
                inside = 0 <= position < length and numbers[position] == extreme
                yield holds(f"{method} {label}", inside, f"{position} does not hold the extreme")
                if kind(device) == "cpu":  # a GPU may name another of equal ones
                    first = numbers.index(extreme)
                    yield exactly(f"{method} {label}, the first", computed, [first])


def middle_of(ranking: Ranking) -> int:
    """The place of the lower of two middle elements."""
    return ranking.rising[(len(ranking.rising) - 1) // 2]


def places_in_a_sorted_row(device: str) -> Iterator[Part]:
    """Catches a search that ends a step early, or takes the wrong side of equal elements."""
    for name in ("float32", "float64", "int64"):
        for length in LENGTHS:
            line = sorted(tied_row(length, "uint8", "line"))
            targets = [float(value) for value in range(-2, 44)]
            inputs = row_on(device, name, line)
            sought = row_on(device, name, targets)
            label = f"in {length} {name} numbers"
            left = [bisect_left(line, value) for value in targets]
            computed = torch.searchsorted(inputs, sought)
            yield exactly(f"searchsorted {label}", computed, left)
            right = [bisect_right(line, value) for value in targets]
            computed = torch.bucketize(sought, inputs, right=True)
            yield exactly(f"bucketize {label}", computed, right)


def running_sums(device: str) -> Iterator[Part]:
    """Catches a running sum or extreme that loses what a block hands to the next one."""
    for name in ("float32", "float64", "int64", "int32"):
        for length in LENGTHS:
            numbers = tied_row(length, "uint8", "running")
            inputs = row_on(device, name, numbers)
            label = f"of {length} {name} numbers"
            total, highest = 0.0, -1.0
            sums: List[float] = []
            peaks: List[float] = []
            for value in numbers:
                total += value
                highest = max(highest, value)
                sums.append(total)
                peaks.append(highest)
            # Whole numbers far below 2 to the 24: each sum is exact.
            computed = inputs.cumsum(0)
            yield exactly(f"cumsum {label}", computed, sums)
            yield exactly(f"cummax {label}", inputs.cummax(0)[0], peaks)
            columns = inputs.reshape(length, 1).expand(length, 2)
            both = [value for value in sums for _ in range(2)]
            computed = columns.cumsum(0)
            yield exactly(f"cumsum along the first axis {label}", computed, both)


def distinct_numbers(device: str) -> Iterator[Part]:
    """Catches a unique, a count or a histogram that loses elements."""
    for name in ("float32", "int64"):
        for length in LENGTHS:
            numbers = tied_row(length, "uint8", "distinct")
            inputs = row_on(device, name, numbers)
            label = f"of {length} {name} numbers"
            counts: Dict[float, int] = {}
            for value in sorted(numbers):
                counts[value] = counts.get(value, 0) + 1
            values, positions, computed = torch.unique(
                inputs, return_inverse=True, return_counts=True
            )
            yield exactly(f"unique {label}", values, list(counts))
            yield exactly(f"counts of unique {label}", computed, list(counts.values()))
            order = {value: position for position, value in enumerate(counts)}
            yield exactly(f"places of unique {label}", positions, [order[v] for v in numbers])
            if name == "int64":
                every = [counts.get(float(value), 0) for value in range(41)]
                computed = torch.bincount(inputs, minlength=41)
                yield exactly(f"bincount {label}", computed, every)
