"""Copies from every GPU to every other one, compared element by element."""

from __future__ import annotations

import time
from typing import Any, List, Tuple

from ..values import FAILED, PASSED, Outcome

ELEMENTS = 1 << 23
"""int32 values a copy: 32 MiB."""


def copies_between_gpus(wanted: str) -> Outcome:
    """What one GPU sends, another holds afterwards, for every ordered pair."""
    import torch

    del wanted
    count = int(torch.cuda.device_count())
    rates: List[float] = []
    direct = 0
    for source, target in pairs(count):
        wrong, rate = _copied(torch, source, target)
        if wrong:
            return Outcome(
                FAILED, f"{wrong} of {ELEMENTS} values changed from {source} to {target}"
            )
        rates.append(rate)
        direct += bool(torch.cuda.can_device_access_peer(source, target))
    detail = f"{len(rates)} pairs exact, {direct} of them direct; the slowest, in GB/s"
    # Its contexts on every GPU end with its process.
    return Outcome(PASSED, detail, min(rates), None, "GB/s", spent=True)


def pairs(count: int) -> Tuple[Tuple[int, int], ...]:
    """
    >>> pairs(2)
    ((0, 1), (1, 0))
    """
    return tuple((a, b) for a in range(count) for b in range(count) if a != b)


def _copied(torch: Any, source: int, target: int) -> Tuple[int, float]:
    """How many values changed, and GB/s."""
    sent = torch.arange(ELEMENTS, dtype=torch.int32, device=f"cuda:{source}") * 2_654_435 + source
    sent.to(f"cuda:{target}")  # the first copy sets the way up
    torch.cuda.synchronize(target)
    began = time.perf_counter()
    found = sent.to(f"cuda:{target}")
    torch.cuda.synchronize(target)
    seconds = time.perf_counter() - began
    wrong = int((found.cpu() != sent.cpu()).sum().item())
    return wrong, 4 * ELEMENTS / seconds / 1e9
