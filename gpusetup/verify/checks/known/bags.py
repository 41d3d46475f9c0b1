"""Embedding bags: sums, means and maxima of groups of table rows."""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple

import torch

from ...judging.tolerance import Part
from .answers import Limit, dice, dtype_name_of, exactly, formats_on, near, roundoff, tensor_of
from .number_lists import elements_at, joined, scaled, sums_of_pairs

SIZES = ((5, 3, 4), (33, 17, 65), (1025, 8, 129), (70_001, 1, 9))
"""The rows and columns of each table, and the number of bags. 70,001 rows need more than 16-bit
indices."""


class Bags(NamedTuple):
    """A table of whole numbers, and for each bag the indices of its rows."""

    table: List[List[float]]
    members: List[List[int]]

    @property
    def width(self) -> int:
        return len(self.table[0])

    def rows_of(self, bag: List[int]) -> List[List[float]]:
        """The table rows in a bag."""
        return elements_at(bag, self.table)

    def starts(self) -> List[int]:
        """The offset of each bag in the concatenated list of row indices."""
        starts: List[int] = []
        count = 0
        for bag in self.members:
            starts.append(count)
            count += len(bag)
        return starts

    def sums(self) -> List[float]:
        """Returns the sum of each bag's rows; zeros for an empty bag."""
        sums: List[float] = []
        for bag in self.members:
            total = [0.0] * self.width
            for row in self.rows_of(bag):
                total = sums_of_pairs(total, row)
            sums += total
        return sums

    def means(self) -> List[float]:
        """Returns the mean of each bag's rows; zeros for an empty bag."""
        sums = self.sums()
        means: List[float] = []
        for number, bag in enumerate(self.members):
            start = number * self.width
            # An empty bag has zero sums, so any divisor other than 0 gives zero.
            divisor = max(1, len(bag))
            for total in sums[start : start + self.width]:
                means.append(total / divisor)
        return means

    def largest(self) -> List[float]:
        """Returns each bag's largest number per column; zeros for an empty bag."""
        largest: List[float] = []
        for bag in self.members:
            if bag:
                columns = zip(*self.rows_of(bag))
                largest += map(max, columns)
            else:
                largest += [0.0] * self.width
        return largest

    def gradient(self, upstream: List[List[float]]) -> List[float]:
        """Returns the gradient of the table, row by row. `upstream` contains the gradient of each
        bag's sum.

        A row's gradient is the sum of the gradients of all bags that contain it.
        """
        rows = [[0.0] * self.width for _ in self.table]
        for bag, arriving in zip(self.members, upstream):
            # If a bag contains a row twice, the row gets that bag's gradient twice.
            for row in bag:
                rows[row] = sums_of_pairs(rows[row], arriving)
        return joined(rows)


def bags_of(row_count: int, width: int, bag_count: int) -> Bags:
    """Random bags of up to 5 table rows, with repeated rows. The first bag is empty, and the last
    bag contains the table's last row."""
    chance = dice(f"bags {row_count} {width} {bag_count}")
    table: List[List[float]] = []
    for row in range(row_count):
        # From -4 to 4.
        values = [float((7 * row + column) % 9 - 4) for column in range(width)]
        table.append(values)
    members: List[List[int]] = []
    for _ in range(bag_count):
        size = chance.randrange(6)
        members.append([chance.randrange(row_count) for _ in range(size)])
    members[0] = []
    last_row = row_count - 1
    members[-1] = [last_row, 0, last_row]
    return Bags(table, members)


class BagTensors(NamedTuple):
    """The table, row indices and offsets on a device, as torch's `embedding_bag` expects them."""

    table: Any
    members: Any
    starts: Any

    def looked_up(self, mode: str, weights: Any = None) -> Any:
        """Returns torch's result for each bag. `mode` is "sum", "mean" or "max"."""
        return torch.nn.functional.embedding_bag(
            self.members, self.table, self.starts, mode=mode, per_sample_weights=weights
        )


def tensors_of(bags: Bags, dtype_name: str, device: str) -> BagTensors:
    """Put the bags into tensors: a table that requires a gradient, all row indices in one list, and
    the offset of each bag in that list."""
    numbers = joined(bags.table)
    table = tensor_of(numbers, dtype_name, device, len(bags.table), bags.width)
    table.requires_grad_()
    all_members = joined(bags.members)
    members = tensor_of(all_members, "int64", device)
    starts = tensor_of(bags.starts(), "int64", device)
    return BagTensors(table, members, starts)


def sums_of_bags(device: str) -> Iterator[Part]:
    """Catches an embedding bag that leaves out the last row, returns numbers for an empty bag, or
    divides by the wrong count."""
    for row_count, width, bag_count in SIZES:
        bags = bags_of(row_count, width, bag_count)
        for dtype_name in formats_on(device):
            tensors = tensors_of(bags, dtype_name, device)
            label = f"of {bag_count} bags from {row_count} x {width} {dtype_name}"
            yield from sums_and_gradients(bags, tensors, label)
            yield from means_maxima_and_weighted_sums(bags, tensors, label)


def sums_and_gradients(bags: Bags, tensors: BagTensors, label: str) -> Iterator[Part]:
    """Compare the sums of the bags and the gradient of the table."""
    computed = tensors.looked_up("sum")
    yield exactly(f"embedding_bag {label}", computed, bags.sums())
    upstream: List[List[float]] = []
    for number in range(len(bags.members)):
        upstream.append([float(number % 3)] * bags.width)
    arriving = computed.new_tensor(upstream)
    (gradient,) = torch.autograd.grad(computed, tensors.table, arriving)
    # bfloat16 holds whole numbers only up to 256, and a row that is in many bags exceeds that.
    if gradient.dtype != torch.bfloat16:
        exact = bags.gradient(upstream)
        yield exactly(f"gradient of embedding_bag {label}", gradient, exact)


MEAN_ROUNDOFFS = 4
"""The error allowed in a mean, in unit roundoffs. The sum is exact, and a division rounds once, but
kernels that multiply by a rounded reciprocal round twice. Twice that error is allowed."""


def means_maxima_and_weighted_sums(bags: Bags, tensors: BagTensors, label: str) -> Iterator[Part]:
    """Compare the means and maxima of the bags, and sums in which each row has weight 2."""
    computed = tensors.looked_up("mean")
    dtype_name = dtype_name_of(computed)
    limit = Limit(relative=MEAN_ROUNDOFFS * roundoff(dtype_name))
    yield near(f"embedding_bag by means {label}", computed, bags.means(), limit)

    computed = tensors.looked_up("max")
    exact = bags.largest()
    yield exactly(f"embedding_bag by the largest {label}", computed, exact)

    # One weight for each row in each bag.
    member_count = len(tensors.members)
    twos = tensors.table.new_full((member_count,), 2.0)
    computed = tensors.looked_up("sum", weights=twos)
    exact = scaled(bags.sums(), 2.0)
    yield exactly(f"weighed embedding_bag {label}", computed, exact)
