"""Is a device as fast as its kind? Pure.

The published figures of a model are its best; what its libraries reach is a share of them. A
device below half of that share is at fault.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

REACHED = {"speed": 0.7, "speed-half": 0.5, "copy-within": 0.35}
"""The share of the published figure that a sound device reaches: 4096-products in float32 and in
float16 (stress has the sources), and bytes copied, each of which is read and written (inferred:
0.7 to 0.9 of the bandwidth is what copies reach)."""
HALF = 0.5


class Figures(NamedTuple):
    """What is published of a GPU model: TFLOPS, and GB/s of its memory."""

    half: Optional[float]
    single: Optional[float]
    memory: Optional[float]
    variable: bool = False
    """Whether the clock depends on the laptop around it: then nothing is asked."""


def least(check: str, known: Optional[Figures]) -> Optional[float]:
    """The rate below which a model is at fault; None where nothing is known of it.

    >>> round(least("copy-within", Figures(312.0, 19.5, 1555.0)))
    272
    >>> least("speed", Figures(6.2, 3.1, 128.0, variable=True))
    """
    if known is None or known.variable or check not in REACHED:
        return None
    figure = {"speed": known.single, "speed-half": known.half, "copy-within": known.memory}[check]
    return HALF * REACHED[check] * figure if figure else None
