"""How well a GPU is used according to one reading, with the steps of the acceleration guide.

A single reading (nvidia-smi's table, one sample) shows that a GPU works too little, but not why. So
the guide's three steps are listed in the guide's order, and each says what to change.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gpusetup.model.units import GIB

# The limits follow the acceleration guide: a utilisation near 100 % and memory use from 70 to 90 %
# are good. If the utilisation is below 50 %, the guide lists steps to take.
BUSY_PERCENT = 85.0
LOW_PERCENT = 50.0
MEMORY_HIGH_PERCENT = 90.0
IDLE_PERCENT = 5.0
"""A GPU with a lower utilisation counts as idle. A display or a stray kernel causes that much."""
DESKTOP_MEMORY_PERCENT = 15.0
"""The share of memory that a desktop and its programs use. If more is in use and no list of
processes is available, something computes."""

LARGER_BATCH = "larger batch with less accumulation (the same effective batch)"
MIXED_PRECISION = (
    "mixed precision: torch.amp.autocast in bfloat16 from compute capability 8.0 on, "
    "else float16 with a GradScaler"
)
MORE_WORKERS = "DataLoader with num_workers={workers}, pin_memory, persistent_workers"
MORE_WORKERS_UNCOUNTED = (
    "DataLoader with more workers (num_workers: one for each CPU core you may use, 16 at most), "
    "pin_memory, persistent_workers"
)

Use = Literal["unknown", "idle", "low", "fair", "good"]


class GpuUse(NamedTuple):
    """The use of one GPU at one moment. `use` rates the utilisation; `steps` are the guide's steps
    in order."""

    use: Use
    words: str
    """The measured values in words: "utilisation 45 %, memory 6.0 of 24.0 GiB (25 %)"."""
    steps: tuple[str, ...] = ()


def gpu_use(
    utilization_percent: float | None,
    memory_used_bytes: int | None = None,
    memory_total_bytes: int | None = None,
    computes: bool | None = None,
) -> GpuUse:
    """How well a GPU is used in one reading, with the guide's steps if utilisation is low.

    `computes`: whether a process computes on the GPU; None if the reading does not show it.

    >>> gpu_use(45, 6 << 30, 24 << 30).words
    'utilisation 45 %, memory 6.0 of 24.0 GiB (25 %)'
    >>> gpu_use(45, 6 << 30, 24 << 30).use, gpu_use(98, 18 << 30, 24 << 30).use
    ('low', 'good')
    """
    memory_percent = None
    words = "utilisation unknown"
    if utilization_percent is not None:
        words = f"utilisation {utilization_percent:.0f} %"
    if memory_used_bytes is not None and memory_total_bytes:
        memory_percent = memory_used_bytes / memory_total_bytes * 100
        sizes = f"{memory_used_bytes / GIB:.1f} of {memory_total_bytes / GIB:.1f} GiB"
        words += f", memory {sizes} ({memory_percent:.0f} %)"
    # A desktop alone causes a utilisation of 10 to 30 % and uses little memory. So a utilisation
    # below 50 % is rated `low` only if something computes, and otherwise `idle`.
    if computes is None:
        computes = (memory_percent or 0.0) >= DESKTOP_MEMORY_PERCENT
    use: Use = "low" if computes else "idle"
    if utilization_percent is None:
        use = "unknown"
    elif utilization_percent >= LOW_PERCENT:
        use = "good" if utilization_percent >= BUSY_PERCENT else "fair"
    elif utilization_percent < IDLE_PERCENT:
        use = "idle"
    if use != "low":
        return GpuUse(use, words)
    # A larger batch needs room in memory.
    batch = (LARGER_BATCH,) if (memory_percent or 0.0) < MEMORY_HIGH_PERCENT else ()
    return GpuUse(use, words, (*batch, MORE_WORKERS_UNCOUNTED, MIXED_PRECISION))
