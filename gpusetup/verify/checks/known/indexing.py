"""Reading and writing elements by index, and adding numbers at indices that occur more than once.

All numbers are small and whole, so every sum is exact in every format and in any order. The largest
tables have more than 65,536 rows, so that 16-bit indices do not suffice.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Iterator, List, NamedTuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome, kind
from .answers import HALVES, ask_all, dice, dtype_of, exactly, formats_on, tensor_of
from .bags import sums_of_bags
from .number_lists import (
    ONE,
    elements_at,
    joined,
    random_wholes,
    sawtooth,
    sums_of_pairs,
    there_and_back,
)
from .several_indices import several_indices

ROWS = (5, 33, 1025, 70_001)
"""The numbers of rows in the tables. Indices into the last one need more than 16 bits."""
WIDTHS = (1, 3, 17)
"""The row lengths: a single number, less than a kernel's vector, and more."""
LARGE_WIDTHS = (1, 2)
LARGE_TABLE = 5000
"""Tables with more rows than this are checked with fewer widths and formats, to save time."""
COUNTS = (1, 17, 129, 1025, 4099)
"""The numbers of indices that one call gets."""


class Table(NamedTuple):
    """A table of whole numbers, row indices, and a row of numbers to add at each index."""

    rows: List[List[float]]
    positions: List[int]
    """Row indices. Negative ones count from the end, and many occur several times."""
    added: List[List[float]]
    """For each index, the row of numbers to add there."""

    @property
    def width(self) -> int:
        return len(self.rows[0])

    def flat(self) -> List[float]:
        return joined(self.rows)

    def counted_from_front(self) -> List[int]:
        return [position % len(self.rows) for position in self.positions]

    def row_copies(self) -> List[List[float]]:
        """Returns a copy of the rows, which the caller may change."""
        return [list(row) for row in self.rows]

    @property
    def label(self) -> str:
        return f"{len(self.rows)} x {self.width}"


def indexing(device: str) -> Outcome:
    """Check that elements are read, written and added at exactly the given indices."""
    questions = (
        rows_that_are_picked,
        rows_that_are_written,
        numbers_added_at_places,
        largest_numbers_at_places,
        several_indices,
        gradients_of_a_table,
        gradients_of_one_row,
        sums_of_bags,
        joined_and_cut_tensors,
        mirrored_and_rolled,
        triangles,
    )
    return ask_all(device, questions, "the lists that Python makes of them")


def table_of(row_count: int, width: int, place_count: int) -> Table:
    """Make a table of numbers from 0 to 60 and random row indices, many of them repeated. The first
    and the last index refer to the last row."""
    chance = dice(f"table {row_count} {width} {place_count}")
    rows: List[List[float]] = []
    for row in range(row_count):
        values = [float((31 * row + column) % 61) for column in range(width)]
        rows.append(values)

    # Draw from only a few positions, so that most of them occur several times.
    distinct_count = max(1, place_count // 3)
    distinct = [chance.randrange(-row_count, row_count) for _ in range(distinct_count)]
    positions = [chance.choice(distinct) for _ in range(place_count)]
    positions[0] = -1
    positions[-1] = row_count - 1

    added: List[List[float]] = []
    for _ in range(place_count):
        added.append(random_wholes(chance, width, -2, 2))
    return Table(rows, positions, added)


def tables() -> Iterator[Table]:
    """Yields two tables for each number of rows, with different widths and different numbers of
    indices."""
    for number, row_count in enumerate(ROWS * 2):
        widths = LARGE_WIDTHS if row_count > LARGE_TABLE else WIDTHS
        # 0 for the first table of a size and 1 for the second, so that the two have different
        # widths.
        round_number = number // len(ROWS)
        width = widths[(number + round_number) % len(widths)]
        place_count = COUNTS[number % len(COUNTS)]
        yield table_of(row_count, width, place_count)


class TableTensors(NamedTuple):
    """A table, its indices and the numbers to add, as tensors on a device."""

    rows: Any
    positions: Any
    """Row indices, counted from the front (never negative)."""
    signed_positions: Any
    added: Any

    def wide_positions(self) -> Any:
        """The row index repeated for each column, as gather and scatter expect it."""
        return self.positions[:, None].expand_as(self.added)


def tensors_of(table: Table, dtype_name: str, device: str) -> TableTensors:
    """The table as tensors in one format on a device."""
    row_count = len(table.rows)
    place_count = len(table.positions)
    return TableTensors(
        tensor_of(table.flat(), dtype_name, device, row_count, table.width),
        tensor_of(table.counted_from_front(), "int64", device),
        tensor_of(table.positions, "int64", device),
        tensor_of(joined(table.added), dtype_name, device, place_count, table.width),
    )


def formats_for(table: Table, device: str) -> List[str]:
    """The formats to test with this table. A large table is tested only in float32 and two random
    formats, which depend on the seed."""
    dtype_names = [*formats_on(device), "int64", "int32"]
    row_count = len(table.rows)
    if row_count < LARGE_TABLE:
        return dtype_names
    chance = dice(f"formats {row_count} {table.width}")
    return ["float32", *chance.sample(dtype_names, 2)]


def label_of(table: Table, dtype_name: str) -> str:
    place_count = len(table.positions)
    return f"of {table.label} {dtype_name}, {place_count} places"


# --- reading and writing --------------------------------------------------------------------------


def rows_that_are_picked(device: str) -> Iterator[Part]:
    """Catches indices that wrap around at 16 bits, negative indices that are read as 0, and missing
    rows."""
    for table in tables():
        # In Python a negative index counts from the end too.
        picked_rows = elements_at(table.positions, table.rows)
        last_column = [row[-1] for row in picked_rows]
        for dtype_name in formats_for(table, device):
            inputs = tensors_of(table, dtype_name, device)
            label = label_of(table, dtype_name)
            yield from whole_rows_picked(inputs, joined(picked_rows), label)
            yield from last_column_picked(inputs, last_column, label)


def whole_rows_picked(inputs: TableTensors, exact: List[float], label: str) -> Iterator[Part]:
    """Compare each way to read whole rows."""
    computed = inputs.rows[inputs.signed_positions]
    yield exactly(f"x[i] {label}", computed, exact)
    computed = inputs.rows.index_select(0, inputs.positions)
    yield exactly(f"index_select {label}", computed, exact)
    wide_positions = inputs.wide_positions()
    computed = inputs.rows.gather(0, wide_positions)
    yield exactly(f"gather {label}", computed, exact)
    computed = torch.take_along_dim(inputs.rows, wide_positions, 0)
    yield exactly(f"take_along_dim {label}", computed, exact)
    # An embedding table must be floating-point.
    if inputs.rows.is_floating_point():
        computed = torch.nn.functional.embedding(inputs.positions, inputs.rows)
        yield exactly(f"embedding {label}", computed, exact)


def last_column_picked(inputs: TableTensors, exact: List[float], label: str) -> Iterator[Part]:
    """Compare each way to read single numbers."""
    computed = inputs.rows[inputs.signed_positions, -1]
    yield exactly(f"x[i, -1] {label}", computed, exact)
    column = inputs.rows[:, -1].contiguous()
    computed = column.gather(0, inputs.positions)
    yield exactly(f"gather of a row {label}", computed, exact)
    # `take` expects positions in the flattened table.
    width = inputs.rows.shape[1]
    last_of_rows = inputs.positions * width + (width - 1)
    computed = inputs.rows.take(last_of_rows)
    yield exactly(f"take {label}", computed, exact)


def rows_that_are_written(device: str) -> Iterator[Part]:
    """Catches a negative index that writes to row 0, and a scalar that is written to the wrong
    rows."""
    for table in tables():
        # Every write to a row writes the same numbers, so their order does not matter.
        rows = table.row_copies()
        for position in table.positions:
            rows[position] = [7.0] * table.width
        for dtype_name in formats_for(table, device):
            inputs = tensors_of(table, dtype_name, device)
            label = label_of(table, dtype_name)
            yield from sevens_written(inputs, joined(rows), label)


def sevens_written(inputs: TableTensors, exact: List[float], label: str) -> Iterator[Part]:
    """Compare each way to overwrite rows."""
    sevens = torch.full_like(inputs.added, 7)
    computed = inputs.rows.clone()
    computed[inputs.signed_positions] = 7
    yield exactly(f"x[i] = 7 {label}", computed, exact)
    computed = inputs.rows.index_put((inputs.signed_positions,), sevens)
    yield exactly(f"index_put {label}", computed, exact)
    computed = inputs.rows.index_copy(0, inputs.positions, sevens)
    yield exactly(f"index_copy {label}", computed, exact)
    computed = inputs.rows.index_fill(0, inputs.signed_positions, 7)
    yield exactly(f"index_fill {label}", computed, exact)

    wide_positions = inputs.wide_positions()
    computed = inputs.rows.scatter(0, wide_positions, sevens)
    yield exactly(f"scatter {label}", computed, exact)
    computed = inputs.rows.scatter(0, wide_positions, 7)
    yield exactly(f"scatter of 7 {label}", computed, exact)


# --- adding ---------------------------------------------------------------------------------------


def numbers_added_at_places(device: str) -> Iterator[Part]:
    """Catches lost additions if an index occurs more than once."""
    for table in tables():
        rows = table.row_copies()
        for position, added in zip(table.positions, table.added):
            rows[position] = sums_of_pairs(rows[position], added)
        for dtype_name in formats_for(table, device):
            # bfloat16 holds whole numbers exactly only up to 256.
            if dtype_name == "bfloat16" and len(table.positions) > 129:
                continue
            inputs = tensors_of(table, dtype_name, device)
            label = label_of(table, dtype_name)
            yield from rows_added(inputs, joined(rows), label)


def rows_added(inputs: TableTensors, exact: List[float], label: str) -> Iterator[Part]:
    """Compare each way to add to rows."""
    computed = inputs.rows.index_put((inputs.signed_positions,), inputs.added, accumulate=True)
    yield exactly(f"index_put of sums {label}", computed, exact)
    computed = inputs.rows.index_add(0, inputs.positions, inputs.added)
    yield exactly(f"index_add {label}", computed, exact)
    # Add the negated numbers with alpha=-1, which gives the same sums.
    computed = inputs.rows.index_add(0, inputs.positions, -inputs.added, alpha=-1)
    yield exactly(f"index_add with a factor {label}", computed, exact)

    wide_positions = inputs.wide_positions()
    computed = inputs.rows.scatter_add(0, wide_positions, inputs.added)
    yield exactly(f"scatter_add {label}", computed, exact)
    computed = inputs.rows.scatter_reduce(0, wide_positions, inputs.added, "sum")
    yield exactly(f"scatter_reduce {label}", computed, exact)


def largest_numbers_at_places(device: str) -> Iterator[Part]:
    """Catches a scatter with `amax` that does not keep the largest number at an index."""
    for table in tables():
        rows = table.row_copies()
        for position, added in zip(table.positions, table.added):
            # The number that is already in the table counts too.
            larger = map(max, rows[position], added)
            rows[position] = list(larger)
        exact = joined(rows)
        for dtype_name in ("float32", "float64", "int64"):
            inputs = tensors_of(table, dtype_name, device)
            wide_positions = inputs.wide_positions()
            computed = inputs.rows.scatter_reduce(0, wide_positions, inputs.added, "amax")
            label = label_of(table, dtype_name)
            yield exactly(f"largest at places {label}", computed, exact)


class TableGradients(NamedTuple):
    """The gradient of each row of a table, with and without a padding row."""

    padding: int
    """The index of the padding row, which gets no gradient (`padding_idx`)."""
    all_rows: List[float]
    without_padding: List[float]


def gradients_in_python(table: Table) -> TableGradients:
    """The exact gradient of the table: each row's gradient is the sum over all lookups of that
    row."""
    positions = table.counted_from_front()
    # Choose a row that is looked up, because any other row has a zero gradient anyway.
    padding = positions[len(positions) // 2]
    rows = [[0.0] * table.width for _ in table.rows]
    for position, arriving in zip(positions, table.added):
        rows[position] = sums_of_pairs(rows[position], arriving)
    all_rows = joined(rows)
    rows[padding] = [0.0] * table.width
    return TableGradients(padding, all_rows, joined(rows))


def gradients_of_a_table(device: str) -> Iterator[Part]:
    """Catches an embedding whose gradient leaves out repeated lookups, or includes the padding
    row."""
    lookup = torch.nn.functional.embedding
    for table in tables():
        exact = gradients_in_python(table)
        for dtype_name in ("float32", "float64", "float16"):
            if dtype_name not in formats_on(device):
                continue
            inputs = tensors_of(table, dtype_name, device)
            leaf = inputs.rows.requires_grad_()
            label = label_of(table, dtype_name)

            picked = lookup(inputs.positions, leaf)
            (computed,) = torch.autograd.grad(picked, leaf, inputs.added)
            yield exactly(f"gradient of embedding {label}", computed, exact.all_rows)
            picked = lookup(inputs.positions, leaf, padding_idx=exact.padding)
            (computed,) = torch.autograd.grad(picked, leaf, inputs.added)
            spared = exact.without_padding
            yield exactly(f"gradient of embedding with padding {label}", computed, spared)
            picked = leaf[inputs.signed_positions]
            (computed,) = torch.autograd.grad(picked, leaf, inputs.added)
            yield exactly(f"gradient of x[i] {label}", computed, exact.all_rows)


def gradients_of_one_row(device: str) -> Iterator[Part]:
    """Catches an embedding gradient that is summed in 16 bits if one row is looked up very
    often."""
    # CUDA's kernel for more than 3,072 indices sums in float32.
    steps, width = 4224, 3
    for dtype_name in formats_on(device):
        # A CPU sums the gradients in their own format, and other devices may do so too.
        if dtype_name in HALVES and kind(device) != "cuda":
            continue
        # Short runs make the partial sums of single vector lanes large; long runs make the partial
        # sums of whole blocks large. The number of steps is a multiple of each pair of runs (up and
        # down).
        for run in (1, 16, steps // 2):
            column = there_and_back(steps, run)
            arriving = tensor_of(column, dtype_name, device, -1, 1).expand(-1, width).contiguous()
            leaf = arriving.new_zeros(3, width).requires_grad_()
            # All indices refer to the middle row.
            positions = torch.ones(len(column), dtype=torch.int64, device=device)
            picked = torch.nn.functional.embedding(positions, leaf)
            (computed,) = torch.autograd.grad(picked, leaf, arriving)
            untouched = [0.0] * width
            exact = untouched + [ONE] * width + untouched
            label = f"{len(column)} {dtype_name} rows, runs of {run}"
            yield exactly(f"gradient of one embedding, {label}", computed, exact)


# --- joined, split and moved tensors --------------------------------------------------------------


def joined_and_cut_tensors(device: str) -> Iterator[Part]:
    """Catches a cat or stack that leaves out or mixes up some of many tensors, and a split at the
    wrong place."""
    for dtype_name in ("float32", "float16", "int64", "uint8"):
        for count in (2, 31, 129, 300):
            label = f"of {count} {dtype_name} tensors"
            yield from rows_of_other_lengths(count, dtype_name, device, label)
            yield from pairs_side_by_side(count, dtype_name, device, label)


def rows_of_other_lengths(count: int, dtype_name: str, device: str, label: str) -> Iterator[Part]:
    """Compare rows of 1 to 5 numbers, concatenated and split again."""
    rows: List[List[int]] = []
    for number in range(count):
        length = 1 + number % 5
        # Numbers below 100 fit into every format here, also uint8.
        row = [(7 * number + position) % 100 for position in range(length)]
        rows.append(row)
    tensors = [tensor_of(row, dtype_name, device) for row in rows]
    whole = torch.cat(tensors)
    yield exactly(f"cat {label}", whole, joined(rows))

    lengths = list(map(len, rows))
    parts = whole.split(lengths)
    for number in (0, count // 2, count - 1):
        yield exactly(f"part {number} {label}", parts[number], rows[number])


def pairs_side_by_side(count: int, dtype_name: str, device: str, label: str) -> Iterator[Part]:
    """Compare pairs of numbers, stacked along either axis and concatenated from strided views."""
    pairs: List[List[int]] = []
    for number in range(count):
        # Numbers below 100 fit into every format here, also uint8.
        pairs.append([number % 100, (number + 1) % 100])
    tensors = [tensor_of(pair, dtype_name, device) for pair in pairs]
    rows = torch.stack(tensors)

    # Concatenate two strided views: the rows with even numbers and those with odd numbers.
    even_end = count // 2 * 2
    even_rows = rows[:even_end:2]
    odd_rows = rows[1::2]
    computed = torch.cat([even_rows, odd_rows], 1)
    exact: List[int] = []
    for first, second in zip(pairs[::2], pairs[1::2]):
        exact += first + second
    yield exactly(f"cat of rows with gaps {label}", computed, exact)

    computed = torch.stack(tensors, 1)
    exact = joined(zip(*pairs))
    yield exactly(f"stack along the last axis {label}", computed, exact)


def mirrored_and_rolled(device: str) -> Iterator[Part]:
    """Catches rows that are flipped, rolled, sliced, repeated or padded wrongly."""
    for dtype_name in ("float32", "bfloat16", "int64"):
        if dtype_name not in (*formats_on(device), "int64"):
            continue
        for length in (1, 17, 1025, 70_001):
            yield from moved_numbers(length, dtype_name, device)


def moved_numbers(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare one row flipped, rolled, sliced, repeated and padded."""
    values = sawtooth(length, period=127)
    inputs = tensor_of(values, dtype_name, device)
    label = f"of {length} {dtype_name} numbers"

    computed = inputs.flip(0)
    yield exactly(f"flip {label}", computed, values[::-1])
    # A row of a single number can be rolled by 1 only.
    shift = min(5, length)
    end = values[-shift:]
    computed = inputs.roll(shift)
    yield exactly(f"roll {label}", computed, end + values[:-shift])
    computed = inputs[::3]
    yield exactly(f"every third {label}", computed, values[::3])
    computed = inputs[-shift:]
    yield exactly(f"from the end {label}", computed, end)

    pairs = zip(values, values)
    computed = inputs.repeat_interleave(2)
    yield exactly(f"repeat_interleave {label}", computed, joined(pairs))
    computed = torch.nn.functional.pad(inputs, (2, 1), value=9)
    yield exactly(f"pad {label}", computed, [9.0, 9.0, *values, 9.0])


def triangles(device: str) -> Iterator[Part]:
    """Catches a tril or triu that cuts at the wrong diagonal or leaves out part of a batch."""
    for dtype_name in ("float32", "bool", "int64"):
        for height, width in ((5, 9), (65, 33)):
            inputs = torch.ones(3, height, width, device=device).to(dtype_of(dtype_name))
            for diagonal in (-2, 0, 1):
                lower: List[int] = []
                upper: List[int] = []
                for row, column in product(range(height), range(width)):
                    # How many columns the element is to the right of the main diagonal. Elements on
                    # the chosen diagonal belong to both triangles.
                    distance = column - row
                    lower.append(int(distance <= diagonal))
                    upper.append(int(distance >= diagonal))
                label = f"of 3 x {height} x {width} {dtype_name}, diagonal {diagonal}"
                computed = inputs.tril(diagonal)
                yield exactly(f"tril {label}", computed, lower * 3)
                computed = inputs.triu(diagonal)
                yield exactly(f"triu {label}", computed, upper * 3)
