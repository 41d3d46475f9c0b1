"""How far a result may be from the exact one, and how a comparison is told.

A sum of n products of numbers with unit roundoff u, in whatever order, differs from the exact sum
by about u * sqrt(n) times its terms' size; the worst of a million such sums by five times that.
The limits here leave about the double of the worst that was measured on CPUs.
"""

from __future__ import annotations

from math import inf
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from ..values import FAILED, PASSED, Outcome, asked

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance from 1 to the next number."""
PART = "of the error allowed"


class Part(NamedTuple):
    """One comparison."""

    label: str
    worst: float
    """The greatest error, as part of the error allowed there; infinite for a wrong exact value."""
    allowed: float
    """The greatest error allowed, absolute; 0 where every bit must be right."""
    wrong: int = 0
    of: int = 0
    first: str = ""
    """Where the first wrong element is, what it is and what it should be."""


def numbers(torch: Any, *shape: int, salt: int = 0) -> Any:
    """Normal random numbers on the CPU; the same for a seed, others for each salt."""
    return torch.randn(*shape, generator=source(torch, salt))


def source(torch: Any, salt: int = 0) -> Any:
    """A generator on the CPU that follows the seed of this run."""
    return torch.Generator().manual_seed((asked().seed + 7919 * salt) % 2**63)


def agree(label: str, found: Any, exact: Any, allowed: Any) -> Part:
    """Each element within the error allowed (a number, or one for each element)."""
    import torch

    found, exact = _real(torch, found), _real(torch, exact)
    if found.shape != exact.shape:
        return Part(label, inf, 0.0, 1, 1, f"shape {list(found.shape)}, not {list(exact.shape)}")
    allowed = torch.as_tensor(allowed, dtype=torch.float64).detach().expand_as(exact)
    errors = (found - exact).abs()
    bad = ~(errors <= allowed)
    if not bool(bad.any()):
        parts = errors / allowed.clamp(min=1e-300)
        worst = float(parts.max()) if parts.numel() else 0.0
        return Part(label, worst, float(allowed.max()) if allowed.numel() else 0.0)
    worst = float((errors / allowed.clamp(min=1e-300))[bad].max())
    return pointed(torch, label, found, exact, bad, (worst, float(allowed.max())))


def same(label: str, found: Any, exact: Any) -> Part:
    """Each element is exactly the one that it should be; so is the dtype."""
    import torch

    found, exact = found.detach().to("cpu"), exact.detach().to("cpu")
    if found.shape != exact.shape or found.dtype != exact.dtype:
        told = f"{found.dtype} {list(found.shape)}, not {exact.dtype} {list(exact.shape)}"
        return Part(label, inf, 0.0, 1, 1, told.replace("torch.", ""))
    bad = found != exact
    if not bool(bad.any()):
        return Part(label, 0.0, 0.0)
    return pointed(torch, label, found, exact, bad, (inf, 0.0))


def holds(label: str, good: bool, told: str = "") -> Part:
    """A statement that is true or not."""
    return Part(label, 0.0, 0.0) if good else Part(label, inf, 0.0, 1, 1, told)


def _real(torch: Any, given: Any) -> Any:
    given = given.detach().to("cpu")
    if given.is_complex():
        given = torch.view_as_real(given.resolve_conj())
    return given.double()


def pointed(
    torch: Any, label: str, found: Any, exact: Any, bad: Any, sizes: Tuple[float, float]
) -> Part:
    """The first element that is wrong, with how many are."""
    place = [int(each) for each in torch.nonzero(bad)[0]] if bad.dim() else []
    at = tuple(place)
    told = f"first at {place}: {found[at].item():.6g}, not {exact[at].item():.6g}"
    worst = sizes[0] if sizes[0] == sizes[0] else inf
    return Part(label, worst, sizes[1], int(bad.sum()), bad.numel(), told)


def judged(parts: Sequence[Part], against: str, hint: Optional[str] = None) -> Outcome:
    """The outcome of all comparisons; the detail tells the worst, or the first that is wrong."""
    bad = [part for part in parts if not part.worst <= 1]
    numeric = [part for part in parts if part.allowed]
    limit = 1.0 if numeric else None
    unit = PART if numeric else None
    if bad:
        return Outcome(FAILED, _told(bad), _finite(bad[0].worst), limit, unit, hint)
    detail = f"{len(parts)} comparisons with {against}"
    if not numeric:
        return Outcome(PASSED, detail)
    worst = max(numeric, key=lambda part: part.worst)
    return Outcome(
        PASSED,
        f"{detail}, worst {worst.label}, allowed {worst.allowed:.1e}",
        worst.worst,
        limit,
        unit,
    )


def _told(bad: List[Part]) -> str:
    part = bad[0]
    labels = list(dict.fromkeys(each.label for each in bad[1:]))
    more = f"; also wrong: {', '.join(labels[:4])}" if labels else ""
    more += f" and {len(labels) - 4} more" if len(labels) > 4 else ""
    if not part.of or (part.of == 1 and part.first):
        return f"{part.label}: {part.first}{more}"
    return f"{part.label}: {part.wrong} of {part.of} elements are wrong, {part.first}{more}"


def _finite(worst: float) -> Optional[float]:
    return worst if worst < inf else None
