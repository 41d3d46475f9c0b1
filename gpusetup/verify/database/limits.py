"""How far each element of an answer may be off."""

from __future__ import annotations

from math import inf, log
from typing import Any, List, Tuple

from .rules import STEEP
from .targets import Target

OWN = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0, "complex64": 32.0}
MOVED, SHARE, ALONG = 16.0, 0.05, 0.25
"""Factors: of a roundoff of the answer; of what it moves; of that of its other elements; of what a
gradient is taken along, as a derivative is often computed from a rounded answer."""
SMALLEST = {"float16": 2.0**-24}
"""Below this nothing is told apart; of other formats the least normal number, as kernels may take
what is below it for zero."""
CLEARLY = 8.0
"""A fault is farther off than its limit by so much: what is nearer may be a kernel's own way."""
ONCE = 2.0
"""Roundoffs by which an answer that is rounded once may be off."""


def limits(torch: Any, question: Any, target: Target, moves: List[Any]) -> Tuple[Any, Any]:
    """The error allowed of each element, and which are not judged."""
    exact = target.exact
    u = max(question.u, float(torch.finfo(target.found.dtype).eps) / 2)
    size = exact.abs()
    size = torch.where(size.isfinite(), size, torch.zeros_like(size))
    change = torch.zeros_like(size)
    unsure = torch.zeros_like(size, dtype=torch.bool)
    for moved in moves:
        if moved is None or moved.shape != exact.shape:
            unsure = torch.ones_like(unsure)
            continue
        off = (moved - exact).abs()
        unsure |= ~off.isfinite() & exact.isfinite().logical_or(moved.isfinite())
        change = torch.maximum(change, torch.nan_to_num(off, 0.0, 0.0, 0.0))
    most = max(question.at_least, greatest(size))
    if "gradient" in target.label:
        steep = STEEP * question.at_least if question.at_least else 0.0
        most = max(most, ALONG * question.along, steep)
    spread = float(change.mean()) if change.numel() else 0.0
    least = SMALLEST.get(question.dtype, torch.finfo(target.found.dtype).tiny)
    own = OWN.get(question.dtype, OWN["float32"])
    many = question.many
    if question.once and "gradient" not in target.label:
        allowed = ONCE * u * size + MOVED * many * (change + spread) + least
        return allowed, unsure | (size + allowed >= torch.finfo(target.found.dtype).max)
    many *= CLEARLY
    allowed = question.room * many * own * (u * most + least)
    allowed += many * MOVED * (change + SHARE * spread)
    top = torch.finfo(target.found.dtype).max
    unsure |= size + allowed >= top
    steep = False
    if "gradient" in target.label:
        unsure |= size * u >= question.along  # a roundoff of an argument moves all of the answer
        steep = min(question.height, 1e30) ** 3 * 4 >= top
        steep = steep or question.height_given >= 0.5 * log(top)
    if steep or question.dtype == "float16":
        unsure |= ~target.found.isfinite()
    return allowed, unsure


def greatest(x: Any) -> float:
    """The greatest finite size of an element."""
    if not x.numel() or x.layout.__repr__() != "torch.strided":
        return 0.0
    x = x.detach()
    most = float((x if x.is_complex() or x.is_floating_point() else x.double()).abs().max())
    if most < inf:
        return most
    sizes = x.abs()
    sizes = sizes[sizes.isfinite()]
    return float(sizes.max()) if sizes.numel() else 0.0
