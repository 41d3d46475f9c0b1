"""The parts of a plan as one bar against the memory of the card: signs, no colour needed."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.documents import PlanMemory

SIGNS = {"states": "█", "checkpoints": "▓", "logits": "▒", "fragmentation": "░", "other": "▪"}
"""Part -> its sign; an encoding without them shows `#=+-o` (render/console.py)."""
MOST = 100
"""The widest bar."""
LIMIT = "│"


def bar(memory: PlanMemory, width: int) -> str:
    """The bar between its ends; where the parts pass the card, the limit stands inside of it.

    >>> m = PlanMemory(states=10, checkpoints=5, logits=0, fragmentation=0, other=1, total=16,
    ...     capacity=20)
    >>> bar(m, 22)
    '│██████████▓▓▓▓▓▪    │'
    >>> from gpusetup.model.frozen import replace
    >>> bar(replace(m, capacity=8), 18)
    '│████████│██▓▓▓▓▓▪'
    """
    over = memory.total > memory.capacity
    room = min(width, MOST) - 2
    scale = room / max(memory.total, memory.capacity, 1e-9)
    signs = "".join(_signs(memory, scale))[:room].ljust(0 if over else room)
    if not over:
        return LIMIT + signs + LIMIT
    at = min(round(memory.capacity * scale), len(signs))
    return LIMIT + signs[:at] + LIMIT + signs[at:]


def _signs(memory: PlanMemory, scale: float) -> Iterator[str]:
    """Each part from where the one before it ends, so that rounding never adds up."""
    end = 0.0
    for name, sign in SIGNS.items():
        start, end = end, end + getattr(memory, name)
        yield sign * (round(end * scale) - round(start * scale))
