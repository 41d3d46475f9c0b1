"""What each rank holds: numbers that tell whose they are and where, and how an answer is judged."""

from __future__ import annotations

from typing import Any, Tuple

import torch

from .draws import EXACT_TO, Kind

PERIOD = 1021
"""A row repeats after so many numbers; a prime: parts in the wrong place do not look right."""
ROUNDED = ("fraction", "avg")


def rows(kind: Kind, world: int, length: int, seed: int) -> Any:
    """A row for each rank.

    >>> rows(("uint8", "min"), 2, 3000, seed=1).shape
    torch.Size([2, 3000])
    """
    name, how = kind
    dtype, top, shape = getattr(torch, name), EXACT_TO[name], (world, max(1, min(length, PERIOD)))
    made = torch.Generator().manual_seed(seed)
    if how == "bits":  # infinities, numbers that are none, denormals
        size = torch.empty(0, dtype=dtype).element_size()
        found = torch.randint(0, 1 + min(top * top, 255), (*shape, size), generator=made)
        found = found.to(torch.uint8).view(dtype)[..., 0]
    elif how in ROUNDED:
        found = torch.randn(shape, generator=made)
    else:
        least, most = (1, top // world) if how == "sum" else (0, top)
        found = torch.randint(least, most + 1, shape, generator=made)
        if name not in ("uint8", "bool"):
            found *= 2 * torch.randint(0, 2, shape, generator=made) - 1
        if dtype.is_complex:
            found = torch.complex(found.double(), found.flip(1).double())
    return found.to(dtype).repeat(1, length // PERIOD + 1)[:, :length]


def reduced(given: Any, how: str) -> Tuple[Any, Any]:
    """What all rows make together, and how far each number may be off: fractions by the roundoff
    of any order, others not at all."""
    wide = given.to(torch.complex128 if given.is_complex() else torch.float64)
    if how in ROUNDED:
        # As many roundings as terms, the double of half a unit each; 1/n may be rounded too.
        unit, share = len(wide) * torch.finfo(given.dtype).eps, len(wide) if how == "avg" else 1
        return wide.sum(0) / share, unit * wide.abs().sum(0) / share
    found = getattr(wide, {"min": "amin", "max": "amax"}.get(how, how))(0)
    return found, torch.zeros(len(found))


def raw(values: Any) -> Any:
    """The bytes of a tensor, a row for each element."""
    flat = values.detach().contiguous().reshape(-1, 1)
    return (torch.view_as_real(flat)[:, 0] if flat.is_complex() else flat).view(torch.uint8)


def signature(values: Any) -> int:
    """A number that tells the bits of a tensor from others."""
    found = raw(values).reshape(-1).to(torch.int64)
    return int((found * (torch.arange(len(found), device=found.device) % 8191 + 1)).sum())


def wrong(found: Any, exact: Any, limit: Any = None) -> str:
    """What of a flat tensor is not as it must be, by its bits where no limit is given."""
    exact = exact.to(found.device)
    if limit is None:
        bad = (raw(found) != raw(exact)).any(1)
    else:
        bad = ~((found.to(exact.dtype) - exact).abs() <= limit.to(found.device))
    at = bad.nonzero().reshape(-1).tolist()
    if not at:
        return ""
    told = f"{found[at[0]].item()}, must be {exact[at[0]].item()}"
    return f"{len(at)} of {len(found)} elements are wrong, the first at {at[0]}: {told}"
