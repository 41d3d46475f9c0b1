"""Elements picked by their places, and numbers added at places that come more than once.

All numbers are small and whole, so every sum is exact in every format, in whatever order it is
made. Tables reach past the 65,536 rows that 16 bits can name.
"""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import ask_all, dice, exactly, formats_on, tensor_of
from .bags import sums_of_bags

ROWS = (5, 33, 1025, 70_001)
WIDTHS = (1, 3, 17)
LARGE_WIDTHS = (1, 2)
COUNTS = (1, 17, 129, 1025, 4099)
"""How many places are named at once."""


class Table(NamedTuple):
    """Rows of whole numbers, and the places of some of them."""

    rows: List[List[float]]
    positions: List[int]
    """Counted from the front or, if negative, from the end; many come several times."""
    added: List[List[float]]
    """A row for each place."""

    @property
    def width(self) -> int:
        return len(self.rows[0])

    def flat(self) -> List[float]:
        return flat(self.rows)

    def counted_from_front(self) -> List[int]:
        return [position % len(self.rows) for position in self.positions]


def indexing(device: str) -> Outcome:
    """Elements are read from, written to and added at the places that are named, and no other."""
    questions = (
        rows_that_are_picked,
        rows_that_are_written,
        numbers_added_at_places,
        numbers_met_at_places,
        gradients_of_a_table,
        sums_of_bags,
        joined_and_cut_tensors,
        mirrored_and_rolled,
        triangles,
    )
    return ask_all(device, questions, "the lists that Python makes of them")


def flat(rows: Sequence[Sequence[float]]) -> List[float]:
    return [value for row in rows for value in row]


def table_of(row_count: int, width: int, place_count: int) -> Table:
    chance = dice(f"table {row_count} {width} {place_count}")
    rows: List[List[float]] = []
    for row in range(row_count):
        rows.append([float((31 * row + column) % 61) for column in range(width)])
    # Few different places: most of them come several times.
    distinct = [chance.randrange(-row_count, row_count) for _ in range(max(1, place_count // 3))]
    positions = [chance.choice(distinct) for _ in range(place_count)]
    positions[0], positions[-1] = -1, row_count - 1
    added: List[List[float]] = []
    for _ in range(place_count):
        added.append([float(chance.randint(-2, 2)) for _ in range(width)])
    return Table(rows, positions, added)


def tables() -> Iterator[Table]:
    """Each size of a table, with a width and a number of places that come round."""
    for number, row_count in enumerate(ROWS * 2):
        widths = LARGE_WIDTHS if row_count > 5000 else WIDTHS
        # The second time round, a table has another width.
        width = widths[(number + number // len(ROWS)) % len(widths)]
        yield table_of(row_count, width, COUNTS[number % len(COUNTS)])


class Tensors(NamedTuple):
    """A table on a device."""

    rows: Any
    positions: Any
    """Counted from the front."""
    signed_places: Any
    added: Any


def tensors_of(table: Table, name: str, device: str) -> Tensors:
    count = len(table.positions)
    return Tensors(
        tensor_of(table.flat(), name, device, len(table.rows), table.width),
        tensor_of(table.counted_from_front(), "int64", device),
        tensor_of(table.positions, "int64", device),
        tensor_of(flat(table.added), name, device, count, table.width),
    )


def names_for(table: Table, device: str) -> List[str]:
    """All formats; of a large table only some, others for each seed."""
    names = [*formats_on(device), "int64", "int32"]
    if len(table.rows) < 5000:
        return names
    return ["float32", *dice(f"formats {len(table.rows)} {table.width}").sample(names, 2)]


def label_of(table: Table, name: str) -> str:
    size = f"{len(table.rows)} x {table.width}"
    count = len(table.positions)
    return f"of {size} {name}, {count} places"


def rows_that_are_picked(device: str) -> Iterator[Part]:
    """Catches places past 16 bits that wrap around, negative ones that are read as 0, lost rows."""
    for table in tables():
        exact = flat([table.rows[position] for position in table.positions])
        last_column = [table.rows[position][-1] for position in table.positions]
        for name in names_for(table, device):
            inputs = tensors_of(table, name, device)
            label = label_of(table, name)
            yield exactly(f"x[i] {label}", inputs.rows[inputs.signed_places], exact)
            computed = inputs.rows.index_select(0, inputs.positions)
            yield exactly(f"index_select {label}", computed, exact)
            computed = inputs.rows[inputs.signed_places, -1]
            yield exactly(f"x[i, -1] {label}", computed, last_column)
            wide = inputs.positions[:, None].expand(-1, table.width)
            computed = inputs.rows.gather(0, wide)
            yield exactly(f"gather {label}", computed, exact)
            column = inputs.rows[:, -1].contiguous()
            computed = column.gather(0, inputs.positions)
            yield exactly(f"gather of a row {label}", computed, last_column)
            computed = inputs.rows.take(inputs.positions * table.width + (table.width - 1))
            yield exactly(f"take {label}", computed, last_column)
            computed = torch.take_along_dim(inputs.rows, wide, 0)
            yield exactly(f"take_along_dim {label}", computed, exact)
            if inputs.rows.is_floating_point():
                computed = torch.nn.functional.embedding(inputs.positions, inputs.rows)
                yield exactly(f"embedding {label}", computed, exact)


def rows_that_are_written(device: str) -> Iterator[Part]:
    """Catches a negative place that writes to row 0, and a scalar that reaches other rows."""
    for table in tables():
        # All writers of one row write the same, so that their order does not matter.
        written = [list(row) for row in table.rows]
        for position in table.positions:
            written[position] = [7.0] * table.width
        exact = flat(written)
        for name in names_for(table, device):
            inputs = tensors_of(table, name, device)
            label = label_of(table, name)
            sevens = torch.full_like(inputs.added, 7)
            computed = inputs.rows.clone()
            computed[inputs.signed_places] = 7
            yield exactly(f"x[i] = 7 {label}", computed, exact)
            computed = inputs.rows.index_put((inputs.signed_places,), sevens)
            yield exactly(f"index_put {label}", computed, exact)
            computed = inputs.rows.index_copy(0, inputs.positions, sevens)
            yield exactly(f"index_copy {label}", computed, exact)
            computed = inputs.rows.index_fill(0, inputs.signed_places, 7)
            yield exactly(f"index_fill {label}", computed, exact)
            wide = inputs.positions[:, None].expand(-1, table.width)
            computed = inputs.rows.scatter(0, wide, sevens)
            yield exactly(f"scatter {label}", computed, exact)
            computed = inputs.rows.scatter(0, wide, 7)
            yield exactly(f"scatter of 7 {label}", computed, exact)


def numbers_added_at_places(device: str) -> Iterator[Part]:
    """Catches an addition that is lost where a place comes more than once."""
    for table in tables():
        added = [list(row) for row in table.rows]
        for position, more in zip(table.positions, table.added):
            added[position] = list(map(float.__add__, added[position], more))
        exact = flat(added)
        for name in names_for(table, device):
            if name == "bfloat16" and len(table.positions) > 129:
                continue  # its whole numbers end at 256
            inputs = tensors_of(table, name, device)
            label = label_of(table, name)
            computed = inputs.rows.index_put((inputs.signed_places,), inputs.added, accumulate=True)
            yield exactly(f"index_put of sums {label}", computed, exact)
            computed = inputs.rows.index_add(0, inputs.positions, inputs.added)
            yield exactly(f"index_add {label}", computed, exact)
            computed = inputs.rows.index_add(0, inputs.positions, -inputs.added, alpha=-1)
            yield exactly(f"index_add with a factor {label}", computed, exact)
            wide = inputs.positions[:, None].expand(-1, table.width)
            computed = inputs.rows.scatter_add(0, wide, inputs.added)
            yield exactly(f"scatter_add {label}", computed, exact)
            computed = inputs.rows.scatter_reduce(0, wide, inputs.added, "sum")
            yield exactly(f"scatter_reduce {label}", computed, exact)


def numbers_met_at_places(device: str) -> Iterator[Part]:
    """Catches a largest or smallest of several numbers at a place that is not the right one."""
    for table in tables():
        highest = [list(row) for row in table.rows]
        for position, more in zip(table.positions, table.added):
            highest[position] = list(map(max, highest[position], more))
        for name in ("float32", "float64", "int64"):
            inputs = tensors_of(table, name, device)
            wide = inputs.positions[:, None].expand(-1, table.width)
            computed = inputs.rows.scatter_reduce(0, wide, inputs.added, "amax")
            yield exactly(f"largest at places {label_of(table, name)}", computed, flat(highest))


def gradients_of_a_table(device: str) -> Iterator[Part]:
    """Catches an embedding whose gradient loses repeated rows, or does not spare the padding."""
    for table in tables():
        positions = table.counted_from_front()
        padding = positions[len(positions) // 2]
        gradient = [[0.0] * table.width for _ in table.rows]
        spared = [[0.0] * table.width for _ in table.rows]
        for position, more in zip(positions, table.added):
            gradient[position] = list(map(float.__add__, gradient[position], more))
            if position != padding:
                spared[position] = gradient[position]
        for name in ("float32", "float64", "float16"):
            if name not in formats_on(device):
                continue
            inputs = tensors_of(table, name, device)
            leaf = inputs.rows.requires_grad_()
            label = label_of(table, name)
            lookup = torch.nn.functional.embedding
            computed = torch.autograd.grad(lookup(inputs.positions, leaf), leaf, inputs.added)[0]
            yield exactly(f"gradient of embedding {label}", computed, flat(gradient))
            picked = lookup(inputs.positions, leaf, padding_idx=padding)
            computed = torch.autograd.grad(picked, leaf, inputs.added)[0]
            yield exactly(f"gradient of embedding with padding {label}", computed, flat(spared))
            picked = leaf[inputs.signed_places]
            computed = torch.autograd.grad(picked, leaf, inputs.added)[0]
            yield exactly(f"gradient of x[i] {label}", computed, flat(gradient))


def joined_and_cut_tensors(device: str) -> Iterator[Part]:
    """Catches a cat of many tensors that loses or mixes some, and parts cut at wrong places."""
    for name in ("float32", "float16", "int64", "uint8"):
        for count in (2, 31, 129, 300):
            rows = [[float((7 * n + k) % 100) for k in range(1 + n % 5)] for n in range(count)]
            parts = [tensor_of([int(v) for v in row], name, device) for row in rows]
            label = f"of {count} {name} tensors"
            joined = torch.cat(parts)
            yield exactly(f"cat {label}", joined, flat(rows))
            cut = joined.split([len(row) for row in rows])
            for number in (0, count // 2, count - 1):
                yield exactly(f"part {number} {label}", cut[number], rows[number])
            equal = [tensor_of([n % 100, (n + 1) % 100], name, device) for n in range(count)]
            rows_of_two = torch.stack(equal)
            # Views with gaps, side by side: every second row, then the others.
            even, odd = rows_of_two[: count // 2 * 2 : 2], rows_of_two[1::2]
            beside = torch.cat([even, odd], 1)
            pairs = range(0, count // 2 * 2, 2)
            exact = flat([[n % 100, (n + 1) % 100, (n + 1) % 100, (n + 2) % 100] for n in pairs])
            yield exactly(f"cat of rows with gaps {label}", beside, exact)
            stacked = torch.stack(equal, 1)
            exact = [float((n + row) % 100) for row in (0, 1) for n in range(count)]
            yield exactly(f"stack along the last axis {label}", stacked, exact)


def mirrored_and_rolled(device: str) -> Iterator[Part]:
    """Catches rows that are turned, shifted, repeated or padded by a wrong number of places."""
    for name in ("float32", "bfloat16", "int64"):
        if name not in (*formats_on(device), "int64"):
            continue
        for length in (1, 17, 1025, 70_001):
            values = [float(position % 127) for position in range(length)]
            inputs = tensor_of([int(value) for value in values], name, device)
            label = f"of {length} {name} numbers"
            computed = inputs.flip(0)
            yield exactly(f"flip {label}", computed, values[::-1])
            shift = min(5, length)
            exact = values[-shift:] + values[:-shift]
            computed = inputs.roll(shift)
            yield exactly(f"roll {label}", computed, exact)
            yield exactly(f"every third {label}", inputs[::3], values[::3])
            yield exactly(f"from the end {label}", inputs[-shift:], values[-shift:])
            twice = [value for value in values for _ in range(2)]
            computed = inputs.repeat_interleave(2)
            yield exactly(f"repeat_interleave {label}", computed, twice)
            padded = torch.nn.functional.pad(inputs, (2, 1), value=9)
            yield exactly(f"pad {label}", padded, [9.0, 9.0, *values, 9.0])


def triangles(device: str) -> Iterator[Part]:
    """Catches a triangle that is cut at another diagonal, or left whole in a part of a batch."""
    for name in ("float32", "bool", "int64"):
        for height, width in ((5, 9), (65, 33)):
            every = [(row, column) for row in range(height) for column in range(width)]
            inputs = torch.ones(3, height, width, device=device).to(getattr(torch, name))
            for diagonal in (-2, 0, 1):
                lower = [int(column - row <= diagonal) for row, column in every]
                upper = [int(column - row >= diagonal) for row, column in every]
                label = f"of 3 x {height} x {width} {name}, diagonal {diagonal}"
                computed = inputs.tril(diagonal)
                yield exactly(f"tril {label}", computed, lower * 3)
                computed = inputs.triu(diagonal)
                yield exactly(f"triu {label}", computed, upper * 3)
