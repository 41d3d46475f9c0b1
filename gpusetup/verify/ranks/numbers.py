"""The numbers that each rank contributes, which encode it and their position, and how to judge."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch

from ..judging.tolerance import agree, same, what_is_wrong

EXACT_TO: Dict[str, int] = {
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
    "float64": 2**53,
    "int32": 2**31 - 1,
    "int64": 2**53,
    "uint8": 255,
    "bool": 1,
}
"""Number format that training exchanges -> up to which n it represents all integers."""
Kind = Tuple[str, str]
"""A number format, and how its numbers are reduced; `bits` means that they are only moved, and
`fraction` is a sum of fractional numbers."""
PERIOD = 1021
"""A row repeats after so many numbers; a prime, so that a misplaced part does not fit."""
ROUNDED = ("fraction", "avg")
"""Reductions whose result depends on the order in which the ranks are added."""


def rows(kind: Kind, world: int, length: int, seed: int) -> Any:
    """A row of numbers for each rank; the same table on every rank.

    Numbers that are only moved are random bits, with infinities, NaN and denormal numbers among
    them. Whole numbers are so small that the result of their reduction is exact.

    >>> rows(("uint8", "min"), 2, 3000, seed=1).shape
    torch.Size([2, 3000])
    """
    name, reduction = kind
    dtype = getattr(torch, name)
    shape = (world, max(1, min(length, PERIOD)))
    generator = torch.Generator().manual_seed(seed)
    if reduction == "bits":
        byte_count = torch.empty(0, dtype=dtype).element_size()
        # A bool is 0 or 1; in all other formats a byte may have any value.
        byte_values = 2 if name == "bool" else 256
        drawn = torch.randint(0, byte_values, (*shape, byte_count), generator=generator)
        numbers = drawn.to(torch.uint8).view(dtype)[..., 0]
    elif reduction in ROUNDED:
        numbers = torch.randn(shape, generator=generator)
    else:
        least, greatest = 0, EXACT_TO[name]
        if reduction == "sum":
            least, greatest = 1, greatest // world
        numbers = torch.randint(least, greatest + 1, shape, generator=generator)
        if name not in ("uint8", "bool"):
            numbers *= 2 * torch.randint(0, 2, shape, generator=generator) - 1
    return numbers.to(dtype).repeat(1, length // PERIOD + 1)[:, :length]


def reduced(numbers: Any, reduction: str) -> Tuple[Any, Any]:
    """The exact reduction of all rows, and how far each number of an answer may be off: by rounding
    in any order of summation for fractions, and not at all for whole numbers."""
    wide = numbers.double()
    count = len(wide)
    if reduction in ROUNDED:
        # There is at most one rounding for each row, including the multiplication by 1/n for `avg`.
        # Each may be off by `eps`, which is twice the error of a correct rounding.
        divisor = count if reduction == "avg" else 1
        limits = count * torch.finfo(numbers.dtype).eps * wide.abs().sum(0) / divisor
        return wide.sum(0) / divisor, limits
    reduce = {"min": torch.amin, "max": torch.amax, "sum": torch.sum}[reduction]
    exact = reduce(wide, 0)
    return exact, torch.zeros(len(exact))


def bits(values: Any) -> Any:
    """A flat tensor's elements as integers with the same bits."""
    size = values.element_size()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return values.detach().contiguous().reshape(-1).view(integer)


def signature(values: Any) -> int:
    """A checksum of the bits of a tensor that also depends on their order."""
    integers = bits(values).to(torch.int64)
    # Weight each number with its position, so that swapping two changes the sum.
    weights = torch.arange(len(integers), device=integers.device) % 8191 + 1
    return int((integers * weights).sum())


def wrong(label: str, received: Any, exact: Any, limit: Any = None) -> str:
    """What is wrong in a flat tensor, in words; without a limit, every bit must be right."""
    if limit is None:
        # Compare bits, because NaN is equal to nothing.
        part = same(label, bits(received), bits(exact))
    else:
        part = agree(label, received, exact, limit)
    return "" if part.is_right else what_is_wrong([part])
