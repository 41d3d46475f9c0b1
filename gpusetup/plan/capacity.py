"""How much of a GPU's memory CUDA gives to a program."""

from __future__ import annotations

import re

from gpusetup.errors import UsageError
from gpusetup.model.units import GIB

MIB = 1 << 20

TOTALS: tuple[tuple[str, float], ...] = (
    ("A100 80GB", 79.15), ("H20", 95.0), ("H100 80GB", 79.1), ("RTX 4090", 23.65),
    ("Tesla T4", 14.75), ("L4", 22.18), ("A10G", 22.18), ("A10", 22.18), ("A40", 44.56),
    ("L40", 44.56), ("L40S", 44.56), ("RTX 6000 Ada", 47.55), ("H200", 139.5), ("B200", 177.97),
    ("RTX 5090", 31.48),
)  # fmt: skip
"""Name -> GiB that CUDA sees where that is not by the rule below: as torch prints them where memory
runs out ("a total capacity of 79.15 GiB"), or as `nvidia-smi` prints the total (ECC takes its part
of GDDR memory, HBM is sold in decimal gigabytes), by the rule; read in public texts, 2026-11."""

KEPT_BYTES = 0.2 * GIB
KEPT_SHARE = 0.005
KEPT_MOST = 0.05
"""What the driver keeps for itself, and the most that this is of a small GPU or of a part of one.

Fits A100 40 GB (39.39 of 40), V100 (31.74 of 32), RTX 3060
(11.76 of 12), RTX A6000 (47.54 of 47.99), T4 (14.75 of 15) and H20 within 0.4 GiB."""


def as_cuda_sees(total_bytes: float) -> float:
    """The bytes that CUDA reports for a GPU of a size that `nvidia-smi` prints.

    >>> round(as_cuda_sees(24564 * MIB) / GIB, 2)
    23.67
    """
    return total_bytes * (1 - KEPT_SHARE) - min(KEPT_BYTES, KEPT_MOST * total_bytes)


def capacity(name: str | None, total_bytes: float) -> float:
    """The bytes that CUDA reports: from the table if the name is in it, else by the rule.

    >>> capacity("NVIDIA A100-SXM4-80GB", 80 * GIB) / GIB
    79.15
    """
    from gpusetup.catalog.gpus import SERIES_WORDS, tokens

    for known, gib in TOTALS:
        same = name and tokens(known) - SERIES_WORDS <= tokens(name)
        if same and abs(total_bytes / GIB / gib - 1) < 0.1:
            return gib * GIB
    return as_cuda_sees(total_bytes)


UNITS = {"": GIB, "gib": GIB, "g": GIB, "gb": GIB, "mib": MIB, "m": MIB, "mb": MIB}


def size(text: str) -> int:
    """Bytes of a size as people write GPU memory: `24GiB`, `24 GB` (the same), `4096MiB`.

    Raises UsageError for what is no size, or no GPU's (16 MiB to 2 TiB).
    """
    hit = re.fullmatch(r"(\d{1,20}(?:\.\d+)?)\s*([kmg]?i?b?)", text.strip().lower())
    unit = UNITS.get(hit[2]) if hit else None
    value = round(float(hit[1]) * unit) if hit and unit else 0
    if not 16 * MIB <= value <= 2048 * GIB:
        raise UsageError(
            f"{text!r} is no size of a GPU's memory", hint="write it as 24GiB or 4096MiB"
        )
    return value
