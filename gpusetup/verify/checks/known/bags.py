"""Bags of embeddings: sums, means and largest of rows that are looked up together."""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple

import torch

from ...judging.tolerance import Part
from .answers import Limit, dice, exactly, formats_on, near, roundoff, tensor_of


class Bags(NamedTuple):
    """A table of whole numbers, and which of its rows lie in which bag."""

    table: List[List[float]]
    members: List[List[int]]

    def flat_members(self) -> List[int]:
        return [row for bag in self.members for row in bag]

    def starts(self) -> List[int]:
        """Where each bag begins among all members."""
        starts: List[int] = []
        count = 0
        for bag in self.members:
            starts.append(count)
            count += len(bag)
        return starts

    def sums(self) -> List[float]:
        """The sum of the rows of each bag; an empty bag gives zeros."""
        sums: List[float] = []
        for bag in self.members:
            for column in range(len(self.table[0])):
                sums.append(sum(self.table[row][column] for row in bag))
        return sums

    def gradient(self, upstream: List[List[float]]) -> List[float]:
        """What arrives at each row of the table, of a sum: as often as the row lies in a bag."""
        rows = [[0.0] * len(row) for row in self.table]
        for bag, arriving in zip(self.members, upstream):
            for row in bag:
                rows[row] = list(map(float.__add__, rows[row], arriving))
        return [value for row in rows for value in row]


def bags_of(row_count: int, width: int, bag_count: int) -> Bags:
    """Bags of 0 to 5 rows, some of which come twice in a bag; the last row is in the last bag."""
    chance = dice(f"bags {row_count} {width} {bag_count}")
    table: List[List[float]] = []
    for row in range(row_count):
        table.append([float((7 * row + column) % 9 - 4) for column in range(width)])
    members: List[List[int]] = []
    for _ in range(bag_count):
        members.append([chance.randrange(row_count) for _ in range(chance.randrange(6))])
    members[0] = []
    members[-1] = [row_count - 1, 0, row_count - 1]
    return Bags(table, members)


def sums_of_bags(device: str) -> Iterator[Part]:
    """Catches a bag that loses its last row, counts an empty one, or divides by another count."""
    for row_count, width, bag_count in ((5, 3, 4), (33, 17, 65), (1025, 8, 129), (70_001, 1, 9)):
        bags = bags_of(row_count, width, bag_count)
        flat_table = [value for row in bags.table for value in row]
        sums = bags.sums()
        means: List[float] = []
        largest: List[float] = []
        for number, bag in enumerate(bags.members):
            line = sums[number * width : (number + 1) * width]
            means += [value / max(1, len(bag)) for value in line]
            columns = list(zip(*(bags.table[row] for row in bag)))
            largest += [max(column) for column in columns] or [0.0] * width
        upstream = [[float(number % 3)] * width for number in range(bag_count)]
        for name in formats_on(device):
            leaf = tensor_of(flat_table, name, device, row_count, width).requires_grad_()
            indices = tensor_of(bags.flat_members(), "int64", device)
            starts = tensor_of(bags.starts(), "int64", device)
            label = f"of {bag_count} bags from {row_count} x {width} {name}"
            lookup = torch.nn.functional.embedding_bag
            computed = lookup(indices, leaf, starts, mode="sum")
            yield exactly(f"embedding_bag {label}", computed, sums)
            arriving = tensor_of([value for row in upstream for value in row], name, device)
            gradient = torch.autograd.grad(computed, leaf, arriving.reshape(bag_count, width))[0]
            if name != "bfloat16":  # its whole numbers end at 256
                exact = bags.gradient(upstream)
                yield exactly(f"gradient of embedding_bag {label}", gradient, exact)
            computed = lookup(indices, leaf, starts, mode="mean")
            limit = Limit(4 * roundoff(name))
            yield near(f"embedding_bag by means {label}", computed, means, limit)
            computed = lookup(indices, leaf, starts, mode="max")
            yield exactly(f"embedding_bag by the largest {label}", computed, largest)
            doubled = torch.full((len(indices),), 2.0, dtype=leaf.dtype, device=device)
            computed = weighed_bags(leaf, indices, starts, doubled)
            twice = [2 * value for value in sums]
            yield exactly(f"weighed embedding_bag {label}", computed, twice)


def weighed_bags(table: Any, indices: Any, starts: Any, weights: Any) -> Any:
    """Sums of rows, each with a weight."""
    lookup = torch.nn.functional.embedding_bag
    return lookup(indices, table, starts, mode="sum", per_sample_weights=weights)
