"""Sizes of answers and of their changes, of which limits are made."""

from __future__ import annotations

from math import sqrt
from typing import Any, List


def finite(x: Any) -> Any:
    return x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def usual(torch: Any, *changes: Any) -> Any:
    """The greatest of the changes; the least where they are worlds apart: then an operator at fault
    has spoiled some. What jumps, as the slope of `relu6` at 6, does so in one of the first two."""
    if len(changes) < 3:
        return changes[0]
    up, down, anew = changes
    most, least = torch.maximum(up, down), torch.minimum(up, down)
    lesser, greater = torch.minimum(least, anew), torch.maximum(most, anew)
    far = 1000 * (lesser + typical(lesser))
    jumps = (most > far) & (least <= far)
    return torch.where(jumps, most, torch.where(greater > far, lesser, greater))


def typical(x: Any) -> float:
    return float(x.square().mean().sqrt()) if x.numel() else 0.0


def most(x: Any) -> float:
    return float(x.max()) if x.numel() else 0.0


def terms(inputs: List[Any], output: Any, arithmetic: str) -> float:
    """How many numbers an element of the answer is made of, about."""
    counts, out = sorted(x.numel() for x in inputs), max(1, output.numel())
    terms = max(1.0, counts[-1] / out)
    return float(max(terms, sqrt(counts[-1] * counts[-2] / out)) if arithmetic else terms)


def added_up(inputs: List[Any], output: Any) -> int:
    """How many numbers a running sum has at most: the longest axis, all of a tensor where one
    number comes out, all of an image for each weight of a channel."""
    counts = sorted(x.numel() for x in inputs)
    if not output.dim():
        return int(counts[-1])
    longest = max((n for x in inputs for n in x.shape), default=1)
    return int(max(longest, counts[-1] // max(1, counts[0])))
