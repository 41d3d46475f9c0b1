"""The numbers that each rank contributes, which encode it and their position, and how to judge."""

from __future__ import annotations

from typing import Any, Tuple

import torch

from ..judging.tolerance import agree, same

FLOATS = ("float32", "bfloat16", "float16", "float64")
FORMATS = (*FLOATS, "int32", "int64", "uint8", "bool")
"""The number formats that training exchanges."""
Kind = Tuple[str, str]
"""A number format, and how its numbers are reduced; `bits` means that they are only moved."""
PERIOD = 1021
"""A row repeats after so many numbers; a prime, so that a misplaced part does not fit."""


def rows(kind: Kind, world: int, length: int, seed: int) -> Any:
    """A row of numbers for each rank; the same table on every rank.

    Numbers that are only moved are random bits, with infinities, NaN and denormal numbers among
    them.

    >>> rows(("uint8", "min"), 2, 3000, seed=1).shape
    torch.Size([2, 3000])
    """
    name, reduction = kind
    dtype = getattr(torch, name)
    shape = (world, min(length, PERIOD))
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        # So small that no sum over a thousand ranks overflows.
        low, high = {"bool": (0, 2), "uint8": (0, 256)}.get(name, (-(2**20), 2**20))
        numbers = torch.randint(low, high, shape, generator=generator)
    elif reduction == "bits":
        byte_count = torch.empty(0, dtype=dtype).element_size()
        numbers = torch.randint(0, 256, (*shape, byte_count), generator=generator)
        numbers = numbers.to(torch.uint8).view(dtype)[..., 0]
    else:
        numbers = torch.randn(shape, generator=generator)
    return numbers.to(dtype).repeat(1, length // PERIOD + 1)[:, :length]


def reduced(numbers: Any, reduction: str) -> Tuple[Any, Any]:
    """The exact reduction of all rows, and how far each number of an answer may be off: by rounding
    in any order of summation for fractions, and not at all for others."""
    wide = numbers.double()
    if reduction in ("min", "max"):
        exact = wide.amin(0) if reduction == "min" else wide.amax(0)
        return exact, torch.zeros(len(exact))
    divisor = len(wide) if reduction == "avg" else 1
    # There is at most one rounding for each row, including the multiplication by 1/n for `avg`.
    # Each may be off by `eps`, which is twice the error of a correct rounding.
    eps = torch.finfo(numbers.dtype).eps if numbers.is_floating_point() else 0.0
    return wide.sum(0) / divisor, len(wide) * eps * wide.abs().sum(0) / divisor


def bits(values: Any) -> Any:
    """A flat tensor's elements as integers with the same bits."""
    size = values.element_size()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return values.detach().contiguous().reshape(-1).view(integer)


def signature(values: Any) -> int:
    """A checksum of the bits of a tensor that also depends on their order."""
    integers = bits(values).to(torch.int64)
    # Weight each number with its position, so that swapping two changes the sum. The weights repeat
    # after a prime number of positions, so that they stay small.
    weights = torch.arange(len(integers), device=integers.device) % 8191 + 1
    return int((integers * weights).sum())


def problem_with(label: str, received: Any, exact: Any, limit: Any = None) -> str:
    """What is wrong in a flat tensor, in words; without a limit, every bit must be right."""
    if limit is None:
        # Compare bits, because NaN is equal to nothing.
        part = same(label, bits(received), bits(exact))
    else:
        part = agree(label, received, exact, limit)
    return "" if part.is_right else f"{part.label}: {part.problem}"
