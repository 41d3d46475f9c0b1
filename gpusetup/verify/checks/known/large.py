"""Tensors of more than 2**31 elements, whose indices do not fit into 32 bits.

On a CPU they need hardly any memory. Most pages of one tensor are never written, so the operating
system does not allocate them, and the rows of the other tensors overlap. On a GPU a tensor needs
its full 2 GiB.
"""

from __future__ import annotations

from typing import Any, Iterator, List

import torch

from ...host import available_bytes
from ...judging.tolerance import Part
from ...values import SKIPPED, Outcome, kind
from .answers import ask_all, exactly, tensor_of

PAST = 2**31
"""The number of elements that a signed 32-bit index can address."""
BEYOND = 4096
"""The number of elements after the last one that a 32-bit index can address."""
NEEDED_BYTES = 2 * PAST
"""The free memory that the check requires: the tensor's size, and as much again for other programs.
"""
HEIGHT, WIDTH = 65_537, 32_769
"""Rows and columns of a tensor with more than 2**31 elements."""


def large(device: str) -> Outcome:
    """Check that elements after the 2**31st are read, written, copied and summed correctly. The
    check is skipped if there is not enough memory."""
    if free_bytes(device) < NEEDED_BYTES:
        gigabytes = NEEDED_BYTES >> 30
        return Outcome(SKIPPED, f"a tensor of 2**31 elements needs {gigabytes} GiB of free memory")
    questions = (far_elements, overlapping_rows, spread_rows)
    outcome = ask_all(device, questions, "numbers at known places past 2**31")
    if kind(device) == "cuda":
        torch.cuda.empty_cache()
    return outcome


def free_bytes(device: str) -> int:
    """The free memory in bytes: the GPU's if the device is one, otherwise the machine's."""
    if kind(device) == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return available_bytes()


ACROSS = 16
"""How many elements before the 2**31st are tested too."""
FAR = (0, ACROSS - 1, ACROSS, ACROSS + 1, 1000, BEYOND + ACROSS - 1)
"""Positions on both sides of the 2**31st element and at the end, counted from the position that is
`ACROSS` elements before it."""
UNTOUCHED = 255
"""The number at the start of the tensor. An index that loses its upper bits would read it or
overwrite it."""


def far_elements(device: str) -> Iterator[Part]:
    """Catches an index that loses its upper bits and so reads or writes near the start of the
    tensor."""
    row = torch.empty(PAST + BEYOND, dtype=torch.uint8, device=device)
    start = PAST - ACROSS
    numbers = [position % 251 for position in range(BEYOND + ACROSS)]
    # The elements in between are never written, so the operating system gives them no memory.
    row[:64] = UNTOUCHED
    row[start:] = tensor_of(numbers, "uint8", device)
    positions = tensor_of([start + position for position in FAR], "int64", device)

    yield from far_elements_read(row, positions, numbers)
    yield from far_elements_written(row, positions, numbers)
    yield exactly("the start of the tensor", row[:64], [UNTOUCHED] * 64)


def far_elements_read(row: Any, positions: Any, numbers: List[int]) -> Iterator[Part]:
    """Compare each way to read single elements and slices beyond the 2**31st element."""
    start = PAST - ACROSS
    yield exactly("a part across 2**31", row[start:], numbers)
    exact = [numbers[position] for position in FAR]
    computed = row[positions]
    yield exactly("x[i] past 2**31", computed, exact)
    computed = row.index_select(0, positions)
    yield exactly("index_select past 2**31", computed, exact)
    computed = row.gather(0, positions)
    yield exactly("gather past 2**31", computed, exact)
    computed = row.take(positions)
    yield exactly("take past 2**31", computed, exact)
    # Read without an index tensor: one element by its offset, and a slice with a stride.
    computed = row[start + 17]
    yield exactly("one element past 2**31", computed, [numbers[17]])
    computed = row[start::5].clone()
    yield exactly("every fifth past 2**31", computed, numbers[::5])


def far_elements_written(row: Any, positions: Any, numbers: List[int]) -> Iterator[Part]:
    """Compare each way to write single elements after the 2**31st. All other elements must stay
    unchanged."""
    start = PAST - ACROSS
    written = list(numbers)
    for position in FAR:
        written[position] = 254
    row[positions] = 254
    yield exactly("x[i] = 254 past 2**31", row[start:], written)

    # Write 1 and then add 1, so that the elements are 2.
    ones = torch.ones_like(positions, dtype=torch.uint8)
    row.scatter_(0, positions, ones)
    row.index_add_(0, positions, ones)
    for position in FAR:
        written[position] = 2
    yield exactly("scatter_ and index_add_ past 2**31", row[start:], written)


def overlapping(values: List[int], device: str) -> Any:
    """Returns a view of a short row that has more than 2**31 elements. Each row of the view starts
    one element later in memory.

    Only the view's last elements lie at the end of the short row, so an operation that stops early
    leaves that end unchanged.
    """
    row = tensor_of(values, "uint8", device)
    return row.as_strided((HEIGHT, WIDTH), (1, 1))


def overlapping_rows(device: str) -> Iterator[Part]:
    """Catches a fill or copy that stops at the 2**31st element."""
    length = HEIGHT + WIDTH - 1
    view = overlapping([0] * length, device)
    row = view.as_strided((length,), (1,))
    view.fill_(3)
    yield exactly("fill_ past 2**31", row, [3] * length)
    # Each number occurs seven times in a row.
    values = [(position // 7) % 251 for position in range(length)]
    view.copy_(overlapping(values, device))
    yield exactly("copy_ past 2**31", row, values)


def spread_rows(device: str) -> Iterator[Part]:
    """Catches a sum, maximum or index over an expanded row that leaves out the elements after the
    2**31st."""
    line = torch.zeros(WIDTH, dtype=torch.float32, device=device)
    line[-1] = 1.0
    # All rows of the view share the same memory, so 2**31 elements need hardly any memory.
    spread = line.expand(HEIGHT, -1)
    computed = spread.sum()
    yield exactly("sum past 2**31", computed, [float(HEIGHT)])
    computed = spread[-1].max()
    yield exactly("largest of the last row past 2**31", computed, [1.0])
    computed = spread[-1, -1]
    yield exactly("the last element past 2**31", computed, [1.0])
