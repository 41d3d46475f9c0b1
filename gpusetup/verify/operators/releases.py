"""What older releases of torch are known not to do, and from which on they do it.

Seen on the CPU: 2.5.1 leaves the `out` of a mean of half precision as it was; 1.13.1 writes
`masked_scatter_` over a transposed tensor in another order, adds norms of bfloat16 up in bfloat16
and rounds layer norms of it on the way. 2.9.1 and 2.13.0 do none of it. 2.9.1 gives the trace of a
matrix of more rows than columns a gradient beside its diagonal, 2.13.0 does not.
"""

from __future__ import annotations

import re
from typing import Any, Tuple

ROUNDS_ONCE = (2, 9)
"""The first that was seen to add half precision up in float32 in every way to call."""
SOUND_FORMS = {
    "mean": (2, 9),
    "smooth_l1_loss": (2, 9),
    "mse_loss": (2, 9),
    "huber_loss": (2, 9),
    "masked_scatter": (2, 5),
}
"""Operators whose form into `out` or in place is wrong before a release; losses end in a mean."""
TALL_TRACE = (2, 13)
"""The first that was seen to give a tall matrix's trace its gradient."""


def release(torch: Any) -> Tuple[int, ...]:
    """
    >>> from types import SimpleNamespace
    >>> release(SimpleNamespace(__version__="2.13.0+cpu"))
    (2, 13)
    """
    return tuple(map(int, re.findall(r"\d+", str(torch.__version__))[:2]))
