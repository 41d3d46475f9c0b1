"""A GPU that works too little according to one reading, with the steps of the acceleration guide.

A single reading (nvidia-smi's table, one sample) shows that a GPU works too little, but not why. So
the guide's three steps are listed in the guide's order, and each says what to change.
"""

from __future__ import annotations

from gpusetup.model.units import GIB

# The limits follow the acceleration guide: memory use from 70 to 90 % is good, and if the
# utilisation is below 50 %, the guide lists steps to take.
LOW_PERCENT = 50.0
MEMORY_HIGH_PERCENT = 90.0
IDLE_PERCENT = 5.0
"""A GPU with a lower utilisation counts as idle. A display or a stray kernel causes that much."""
DESKTOP_MEMORY_PERCENT = 15.0
"""The share of memory that a desktop and its programs use. If more is in use, something
computes."""

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


def low_use(
    utilization_percent: float | None,
    memory_used_bytes: int | None,
    memory_total_bytes: int | None,
) -> tuple[str, tuple[str, ...]] | None:
    """The measured values in words and the guide's steps in order, for a GPU on which a program
    computes too little; None if the GPU is idle or busy enough, or if nothing computes on it.

    >>> low_use(45, 6 << 30, 24 << 30)[0]
    'utilisation 45 %, memory 6.0 of 24.0 GiB (25 %)'
    >>> low_use(98, 18 << 30, 24 << 30), low_use(20, None, None)
    (None, None)
    """
    if utilization_percent is None or not IDLE_PERCENT <= utilization_percent < LOW_PERCENT:
        return None
    words = f"utilisation {utilization_percent:.0f} %"
    # A GPU whose memory use is unknown counts as empty.
    memory_percent = 0.0
    if memory_used_bytes is not None and memory_total_bytes:
        memory_percent = memory_used_bytes / memory_total_bytes * 100
        sizes = f"{memory_used_bytes / GIB:.1f} of {memory_total_bytes / GIB:.1f} GiB"
        words += f", memory {sizes} ({memory_percent:.0f} %)"
    # A desktop alone causes a utilisation of 10 to 30 %, but it uses little memory.
    if memory_percent < DESKTOP_MEMORY_PERCENT:
        return None
    # A larger batch needs room in memory.
    batch = (LARGER_BATCH,) if memory_percent < MEMORY_HIGH_PERCENT else ()
    return words, (*batch, MORE_WORKERS_UNCOUNTED, MIXED_PRECISION)
