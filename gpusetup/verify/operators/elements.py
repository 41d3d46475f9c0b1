"""Compares an answer with the exact one, element by element."""

from __future__ import annotations

from math import inf
from typing import Any, List

from ..judging.tolerance import Part, holds


def near(torch: Any, label: str, found: Any, exact: Any, allowed: Any) -> Part:
    """How near each element came to its limit; exactly right where it rounds to the same."""
    if found.shape != exact.shape:
        return holds(label, False, f"shape {list(found.shape)}, not {list(exact.shape)}")
    rounded = exact.to(found.dtype).double() if found.is_floating_point() else exact.double()
    found = found.detach().cpu().double()
    if torch.equal(found, rounded):
        return Part(label, 0.0, float(allowed.max()) if found.numel() else 0.0)
    errors = (found - exact.double()).abs()
    right = (found == rounded) | (found.isnan() & rounded.isnan())
    good = right | (errors <= allowed)
    if bool(good.all()):
        parts = errors.div_(allowed.clamp(min=1e-300)).masked_fill_(right, 0.0)
        worst = float(parts.max()) if parts.numel() else 0.0
        return Part(label, worst, float(allowed.max()) if parts.numel() else 0.0)
    place = [int(each) for each in torch.nonzero(~good)[0]] if good.dim() else []
    at = tuple(place)
    told = f"first at {place}: {found[at].item():.6g}, not {exact[at].item():.6g}"
    worst = float((errors / allowed.clamp(min=1e-300))[~good].max())
    limit = float(allowed[at])
    return Part(
        label, worst if worst == worst else inf, limit, int((~good).sum()), good.numel(), told
    )


def alike(label: str, found: List[Any], first: List[Any]) -> Part:
    """Whether two answers have the same bits, a NaN being a NaN."""
    for one, other in zip(found, first):
        one, other = one.detach().cpu(), other.detach().cpu()
        same = (one == other) | ((one != one) & (other != other))
        if one.shape != other.shape or not bool(same.all()):
            return holds(label, False, f"{int((~same).sum())} of {same.numel()} elements differ")
    return Part(label, 0.0, 0.0)
