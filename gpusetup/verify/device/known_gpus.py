"""What NVIDIA publishes of its GPUs, and what a sound one reaches of it: `gpus.json`, written from
the catalog by `scripts/write_reference.py`, since this folder stands alone."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Dict, Optional

FIGURE = {"speed": 3, "speed-half": 0, "copy-within": 4}
"""Check -> where its figure is in a row."""
REACHED = {"speed": 0.7, "speed-half": 0.5, "copy-within": 0.35}
"""The share of the published figure that a sound device reaches: 4096-products in float32 and in
float16 (best measured by ml-engineering, accelerator page: 0.81 to 0.87 on A100, 0.80 on H100, 0.73
to 0.79 on B200, B300 and GB200; 0.37 on a Tesla T4, whose 70 W hold it most), and bytes copied,
each of which is read and written (inferred: 0.7 to 0.9 of the bandwidth is what copies reach)."""
HALF = 0.5
"""Of that share: a device below it is at fault."""


@functools.lru_cache(maxsize=None)
def gpus() -> Dict[str, Any]:
    """`nvidia-smi` name -> dense float16 TFLOPS, boost clock in MHz, whether that clock depends on
    the laptop around it, float32 TFLOPS, GB/s of the memory."""
    text = (Path(__file__).parent.parent / "gpus.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["gpus"])


def least(check: str, name: str) -> Optional[float]:
    """The rate below which a model is at fault; None where nothing is known of it.

    >>> round(least("copy-within", "NVIDIA A100-SXM4-40GB"))
    272
    """
    row = gpus().get(name)
    figure = row[FIGURE[check]] if row and not row[2] else None
    return HALF * REACHED[check] * figure if figure else None
