"""What each rank holds: numbers that tell whose they are and where, and sums that are exact.

A tensor repeats a table of `PERIOD` numbers, one table for each rank and call, drawn from the seed.
So the answer of a call is a table too, whatever the size of the message and the number of ranks.
The period is a prime: parts that stand in the wrong place do not look right.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

PERIOD = 1021
EXACT_TO: Dict[str, int] = {
    "float64": 2**53,
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
    "int8": 127,
    "uint8": 255,
    "int32": 2**31 - 1,
    "int64": 2**53,
    "complex64": 2**24,
    "complex128": 2**53,
    "bool": 1,
}
"""Format -> up to which number every integer is exact in it."""
WIDTHS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
"""Bytes of an element -> the integers that hold its bits."""
FLOATS = ("float32", "float16", "bfloat16", "float64")
WHOLE = ("int32", "int64", "int8", "uint8")
REDUCTIONS: Tuple[Tuple[str, str], ...] = (
    *((dtype, how) for dtype in FLOATS for how in ("sum", "product", "min", "max", "avg")),
    *((dtype, how) for dtype in WHOLE for how in ("sum", "product", "min", "max")),
    *((dtype, how) for dtype in WHOLE for how in ("band", "bor", "bxor")),
    *(("bool", how) for how in ("min", "max")),
    *((dtype, "sum") for dtype in ("complex64", "complex128")),
)
"""Which formats are reduced how."""
EXTREMES = ("min", "max")
"""Of these one rank alone decides the answer."""
MOVED = (*FLOATS, *WHOLE, "bool", "complex64", "complex128")
"""The formats that are only moved, by their bits."""


def raw(torch: Any, values: Any) -> Any:
    """The bits of a tensor, flat, as integers."""
    flat = values.contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return flat.view(getattr(torch, WIDTHS[flat.element_size()]))


def tables(
    torch: Any, seed: int, world: int, length: int, dtype: str, how: str, turn: int = 0
) -> Any:
    """A row of up to `PERIOD` numbers for each rank; `how` is `bits` or a reduction.

    Which rank alone decides a `min` or a `max` goes round with the place and with `turn`."""
    made = torch.Generator().manual_seed(seed % 2**63)
    shape = (world, max(1, min(length, PERIOD)))
    kind = getattr(torch, dtype)
    if how == "bits":
        return _bits(torch, shape, kind, made)
    if dtype == "bool":
        found = torch.randint(0, 2, shape, generator=made)
        return (_alone(torch, found, how, turn) if how in EXTREMES else found).bool()
    if how in ("band", "bor", "bxor"):
        top = 2**31 - 1 if dtype in ("int32", "int64") else EXACT_TO[dtype]
        return torch.randint(0, top + 1, shape, generator=made).to(kind)
    if how == "product":
        return _factors(torch, shape, dtype, made).to(kind)
    found = _addends(torch, shape, dtype, how, made)
    return _decided(torch, found, how, turn) if how in EXTREMES else found


def _decided(torch: Any, found: Any, how: str, turn: int) -> Any:
    """The same numbers; the least (or greatest) of each place belongs to the next rank in turn.

    >>> import torch
    >>> _decided(torch, torch.tensor([[5, 6, 7], [1, 2, 9]]), "min", 0).tolist()
    [[1, 6, 7], [5, 2, 9]]
    """
    places = torch.arange(found.shape[1])
    whose = (places + turn) % found.shape[0]
    now = found.argmin(0) if how == "min" else found.argmax(0)
    first, second = found[now, places], found[whose, places]
    found[now, places] = second
    found[whose, places] = first
    return found


def _alone(torch: Any, found: Any, how: str, turn: int) -> Any:
    """One rank alone holds what decides, at half of the places.

    >>> import torch
    >>> _alone(torch, torch.zeros(2, 4, dtype=torch.int64), "max", 0).tolist()
    [[1, 0, 0, 0], [0, 1, 0, 0]]
    """
    places = torch.arange(found.shape[1])
    world = found.shape[0]
    half = places // world % 2 == 0
    found[:, half] = 0 if how == "max" else 1
    found[(places + turn)[half] % world, places[half]] = 1 if how == "max" else 0
    return found


def _bits(torch: Any, shape: Tuple[int, int], kind: Any, made: Any) -> Any:
    """Any bits at all: infinities, numbers that are none, denormals."""
    if kind == torch.bool:
        return torch.randint(0, 2, shape, generator=made).bool()
    size = torch.empty(0, dtype=kind).element_size()
    held = torch.randint(0, 256, (shape[0], shape[1] * size), generator=made, dtype=torch.int64)
    return held.to(torch.uint8).view(kind)


def _addends(torch: Any, shape: Tuple[int, int], dtype: str, how: str, made: Any) -> Any:
    """Numbers whose sum over all ranks is exact; never 0, so that none can be missed."""
    top = EXACT_TO[dtype] if how in EXTREMES else max(1, EXACT_TO[dtype] // shape[0])
    if how == "avg":
        top = max(1, top // shape[0])
    found = torch.randint(1, top + 1, shape, generator=made)
    if dtype != "uint8":
        found *= 2 * torch.randint(0, 2, shape, generator=made) - 1
    if how == "avg":
        found *= shape[0]
    if dtype.startswith("complex"):
        other = torch.randint(1, top + 1, shape, generator=made)
        return torch.complex(found.double(), other.double()).to(getattr(torch, dtype))
    return found.to(getattr(torch, dtype))


def _factors(torch: Any, shape: Tuple[int, int], dtype: str, made: Any) -> Any:
    """Factors of which few are not 1 at each place, another rank's each."""
    found = torch.ones(shape, dtype=torch.int64)
    places = torch.arange(shape[1])
    first = torch.randint(0, shape[0], (shape[1],), generator=made)
    found[first, places] = 3
    found[(first + 1) % shape[0], places] *= 5
    if dtype != "uint8":
        found *= 2 * torch.randint(0, 2, shape, generator=made) - 1
    return found


def reduced(torch: Any, rows: Any, how: str) -> Any:
    """The table of the answer."""
    dtype = rows.dtype
    if how == "sum":
        if dtype.is_complex:
            return rows.to(torch.complex128).sum(0).to(dtype)
        return _wide(torch, rows).sum(0).to(dtype)
    if how == "avg":
        return (_wide(torch, rows).sum(0) / rows.shape[0]).to(dtype)
    if how == "product":
        return _wide(torch, rows).prod(0).to(dtype)
    if how in EXTREMES:
        wide = _wide(torch, rows)
        return (wide.amin(0) if how == "min" else wide.amax(0)).to(dtype)
    answer = rows[0].clone()
    for row in rows[1:]:
        if how == "band":
            answer &= row
        elif how == "bor":
            answer |= row
        else:
            answer ^= row
    return answer


def _wide(torch: Any, rows: Any) -> Any:
    return rows.double() if rows.dtype.is_floating_point else rows.to(torch.int64)


def turned(torch: Any, table: Any, phase: int) -> Any:
    """The table as it reads from a place on."""
    start = phase % table.numel()
    return torch.cat((table[start:], table[:start])) if start else table


def spread(torch: Any, table: Any, size: int, phase: int, into: Any) -> None:
    """Fill a tensor of `size` elements with a table, from a place of it on."""
    row = turned(torch, table, phase).to(into.device)
    period = row.numel()
    body = size // period * period
    if body:
        into[:body].view(-1, period).copy_(row)
    if size > body:
        into[body:].copy_(row[: size - body])


CHUNK = 1 << 22


def differing(torch: Any, found: Any, table: Any, phase: int, how: str) -> List[int]:
    """The places, the first few, where a tensor is not the table; their number comes first."""
    row = turned(torch, table, phase).to(found.device)
    flat = found.detach().contiguous().reshape(-1)
    if flat.dtype != row.dtype:
        return [max(1, flat.numel())]
    exact = how == "bits"
    flat, row = (raw(torch, flat), raw(torch, row)) if exact else (flat, row)
    period, count = row.numel(), 0
    places: List[int] = []
    step = max(1, CHUNK // period) * period
    for start in range(0, flat.numel(), step):
        part = flat[start : start + step]
        wrong = _unlike(torch, part, row, how)
        number = int(wrong.sum().item())
        if number and not places:
            places.append(start + int(wrong.nonzero()[0].item()))
        count += number
    return [count, *places]


def _unlike(torch: Any, part: Any, row: Any, how: str) -> Any:
    """Where a part, which begins with the row, is not the row repeated."""
    period = row.numel()
    body = part.numel() // period * period
    wrong = [_apart(torch, part[:body].view(-1, period), row, how).reshape(-1)] if body else []
    if part.numel() > body:
        rest = part[body:]
        wrong.append(_apart(torch, rest, row[: rest.numel()], how))
    return torch.cat(wrong) if wrong else part.new_zeros(0, dtype=torch.bool)


def _apart(torch: Any, found: Any, exact: Any, how: str) -> Any:
    if how != "avg":
        return found != exact
    # A mean may be taken by multiplying with 1/n, which is rounded.
    share = 4 * torch.finfo(exact.dtype).eps
    return ~((found.double() - exact.double()).abs() <= share * exact.double().abs() + share)
