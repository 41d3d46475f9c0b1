"""Copies from every GPU to every other one, compared element by element."""

from __future__ import annotations

from functools import partial
from typing import List, Tuple

import torch

from ..judging.tolerance import Part, judged, same
from ..values import PASSED, Outcome
from .speed import measured
from .transfers import GB

ELEMENTS = 1 << 23
"""int32 values a copy: 32 MiB."""


def copies_between_gpus(wanted: str) -> Outcome:
    """What one GPU sends, another holds afterwards, for every ordered pair."""
    del wanted
    rates: List[float] = []
    parts: List[Part] = []
    direct = 0
    for source, target in pairs(int(torch.cuda.device_count())):
        there, here = f"cuda:{target}", f"cuda:{source}"
        sent = torch.arange(ELEMENTS, dtype=torch.int32, device=here) * 2_654_435 + source
        found = torch.zeros_like(sent, device=there)
        rates.append(measured(there, partial(found.copy_, sent), 4 * ELEMENTS / GB))
        parts.append(same(f"{here} to {there}", found, sent))
        direct += bool(torch.cuda.can_device_access_peer(source, target))
    # Its contexts on every GPU end with its process.
    outcome = judged(parts, "what was sent")._replace(spent=True)
    if outcome.status != PASSED:
        return outcome
    detail = f"{len(rates)} pairs exact, {direct} of them direct; the slowest"
    return outcome._replace(detail=detail, value=min(rates), unit="GB/s")


def pairs(count: int) -> Tuple[Tuple[int, int], ...]:
    """
    >>> pairs(2)
    ((0, 1), (1, 0))
    """
    return tuple((a, b) for a in range(count) for b in range(count) if a != b)
