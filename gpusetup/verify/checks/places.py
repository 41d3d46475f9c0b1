"""Known answers about places: sorting, indices, layouts of memory, and elements past 2**31.

The counts of numbers are a few, then one or a few more than whole blocks of a kernel, then many
blocks.
"""

from __future__ import annotations

from typing import Iterator

import torch

from ..judging.answers import checked_against, exactly, format_of, formats, tensor, whole_numbers
from ..judging.tolerance import Comparison
from ..values import SKIPPED, Outcome, kind
from .memory import available_bytes


def sorted_rows(device: str) -> Iterator[Comparison]:
    """Sorting forwards and backwards keeps the order of equal numbers."""
    for count in (9, 1025, 4097, 70_001):
        # Seven different numbers, so that there are many ties.
        numbers = whole_numbers(count, most=3, salt=f"sort {count}").tolist()
        order = sorted(range(count), key=numbers.__getitem__)
        backwards = sorted(range(count), key=lambda n: -numbers[n])
        for name in ("float32", "int64", "float16"):
            x = tensor(numbers, device, name=name)
            values, places = torch.sort(x, stable=True)
            yield exactly(f"places of {count} {name}", places, order)
            yield exactly(f"values of {count} {name}", values, [numbers[n] for n in order])
            _, places = torch.sort(x, stable=True, descending=True)
            yield exactly(f"places backwards of {count} {name}", places, backwards)


def searched_rows(device: str) -> Iterator[Comparison]:
    """The largest numbers, their places, and random permutations are right."""
    for count in (9, 1025, 70_001):
        # 7 divides no count, so the numbers are all different, and each has one right place.
        shuffled = [(7 * n + 3) % count for n in range(count)]
        places = sorted(range(count), key=lambda n: -shuffled[n])[:5]
        x = tensor(shuffled, device)
        values, found = x.topk(5)
        yield exactly(f"places of the largest of {count}", found, places)
        yield exactly(f"the largest of {count}", values, [count - 1 - n for n in range(5)])
        yield exactly(f"argmax of {count}", x.argmax(), places[:1])
        permutation = torch.randperm(count, device=device)
        yield exactly(f"permutation of {count}", permutation.sort()[0], range(count))


ordering = checked_against("the order that Python finds", sorted_rows, searched_rows)


def read_places(device: str) -> Iterator[Comparison]:
    """Elements that are read by index or mask are those at these places."""
    for count in (17, 2049, 70_001):
        numbers = whole_numbers(count, most=99, salt=f"read {count}").tolist()
        # Each place once, because 7 divides no count.
        places = [(7 * n + 3) % count for n in range(count)]
        known = [numbers[place] for place in places]
        index = torch.tensor(places, device=device)
        for name in formats(device, "int64"):
            x = tensor(numbers, device, name=name)
            yield exactly(f"index_select of {count} {name}", x.index_select(0, index), known)
            yield exactly(f"gather of {count} {name}", x.gather(0, index), known)
            yield exactly(f"negative places of {count} {name}", x[index - count], known)
            # With more than one column, a wrong stride reads another number.
            table = torch.stack([x, x + 1, x * 0], 1)
            rows = torch.nn.functional.embedding(index, table)
            yield exactly(f"embedding of {count} {name}", rows[:, 0], known)
        integers = tensor(numbers, device, name="int64")
        positive = [number for number in numbers if number > 0]
        yield exactly(f"masked_select of {count}", integers[integers > 0], positive)
        is_positive = [n for n in range(count) if numbers[n] > 0]
        yield exactly(f"nonzero of {count}", (integers > 0).nonzero(), is_positive)


def added_places(device: str) -> Iterator[Comparison]:
    """Several numbers that are added at one place all count. 16-bit formats are left out: they
    round after each addition, and kernels add in any order."""
    # A few numbers, and so many that they fill several blocks of a kernel, with a tail (4096 + 3).
    for count in (40, 4099):
        table = whole_numbers(16, most=9, salt="table").tolist()
        places = [n % 5 for n in range(count)]
        added = whole_numbers(count, most=9, salt=f"added {count}").tolist()
        known = list(table)
        for place, number in zip(places, added):
            known[place] += number
        index = torch.tensor(places, device=device)
        for name in ("float32", "int64"):
            x, y = tensor(table, device, name=name), tensor(added, device, name=name)
            yield exactly(f"scatter_add of {count} {name}", x.scatter_add(0, index, y), known)
            yield exactly(f"index_add of {count} {name}", x.index_add(0, index, y), known)
            put = x.clone().index_put_((index,), y, accumulate=True)
            yield exactly(f"index_put of {count} {name}", put, known)
        # All columns get the same gradient; the last is beyond a warp of 32 threads.
        weights = torch.zeros(16, 33, device=device, requires_grad=True)
        rows = torch.nn.functional.embedding(index, weights)
        (rows * tensor(added, device, count, 1)).sum().backward()
        gradient = [number - before for number, before in zip(known, table)]
        yield exactly(f"gradient of {count} embeddings", weights.grad[:, 32], gradient)
    # Only 0 to 4 occur, so the last two counts are 0.
    found = torch.bincount(index, minlength=7)
    yield exactly("counts", found, [places.count(n) for n in range(7)])


indexing = checked_against("the lists that Python makes", read_places, added_places)


def copied_layouts(device: str) -> Iterator[Comparison]:
    """Transposed, sliced, joined and converted copies contain the numbers that went in."""
    numbers = whole_numbers(33, 65, most=99, salt="layouts")
    rows = numbers.tolist()
    by_column = [row[column] for column in range(65) for row in rows]
    every_second = [number for row in rows for number in row[::2]]
    for name in formats(device, "float64", "int64", "int8"):
        x = numbers.to(device, format_of(name))
        yield exactly(f"transposed {name}", x.t().contiguous(), by_column)
        yield exactly(f"every second {name}", x[:, ::2].clone(), every_second)
        yield exactly(f"flipped {name}", x.flip(0).flip(0), numbers)
        yield exactly(f"joined {name}", torch.cat([x[:, :7], x[:, 7:]], 1), numbers)
        yield exactly(f"rolled {name}", x.roll(5, 1).roll(-5, 1), numbers)
        into = torch.zeros(65, 33, device=device, dtype=x.dtype)
        into.t().copy_(x)
        yield exactly(f"written across {name}", into, by_column)
        image = x.view(1, 33, 5, 13).contiguous(memory_format=torch.channels_last)
        yield exactly(f"channels last {name}", image.contiguous(), numbers)
        for other in ("float32", "int64", "int8"):
            yield exactly(f"{name} as {other}", x.to(getattr(torch, other)), numbers)


def sliced_gradients(device: str) -> Iterator[Comparison]:
    """The gradient of a slice is 0 outside the slice."""
    for step in (1, 3):
        x = torch.zeros(5, 33, device=device, requires_grad=True)
        known = torch.zeros(5, 33, dtype=torch.float64)
        known[:, ::step] = whole_numbers(5, len(range(0, 33, step)), most=9, salt=f"slice {step}")
        x[:, ::step].backward(known[:, ::step].to(device, torch.float32))
        yield exactly(f"gradient of a slice with step {step}", x.grad, known)


strides = checked_against("the lists that went in", copied_layouts, sliced_gradients)


PAST = 2**31


def large_tensor(device: str) -> Outcome:
    """Elements past 2**31 are read and written where they are, if there is memory for it."""
    free = torch.cuda.mem_get_info(device)[0] if kind(device) == "cuda" else available_bytes()
    # The tensor takes a byte for each element; half as much again is a reserve.
    if free < 1.5 * PAST:
        return Outcome(SKIPPED, f"needs {1.5 * PAST / 2**30:.0f} GiB of free memory")
    return checked_against("numbers at known places past 2**31", far_places)(device)


def far_places(device: str) -> Iterator[Comparison]:
    """Reads of a few elements around 2**31 return what was written there."""
    # A host gives out memory only where it is written, so most of this tensor takes none.
    x = torch.empty(PAST + 67, dtype=torch.uint8, device=device)
    places = [5, PAST - 1, PAST, PAST + 66]
    index = torch.tensor(places, device=device)
    x[index] = torch.tensor([1, 2, 3, 4], dtype=torch.uint8, device=device)
    for label, found in (
        ("read", x[index]),
        ("index_select", x.index_select(0, index)),
        ("sliced", torch.stack([x[place] for place in places])),
    ):
        yield exactly(f"{label} past 2**31", found, [1, 2, 3, 4])
