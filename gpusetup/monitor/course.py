"""The course of a GPU's run over time: when its process ended or started again, whether its memory
grew, and how long the program took to load. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample
from gpusetup.monitor.work import Moment, is_quiet, or_zero

RECENT_SAMPLES = 5
"""How many samples we look back for the memory's peak before a process ended, because freeing the
memory may take several samples."""
SAMPLES_OF_A_LEAK = 8
"""Fewer samples cannot show that memory grows all the time."""


class ProcessEnd(NamedTuple):
    """The moment when a GPU's memory was freed because its process ended."""

    second: float
    peak: float | None
    """How full the memory was just before, in percent; None if the memory size is unknown."""
    back_after: float | None
    """How many seconds later a process used memory again; None if none did."""


# --- processes that end ---------------------------------------------------------------------------


def process_ends(rows: Sequence[Moment]) -> list[ProcessEnd]:
    """The moments when the GPU's memory was freed, each with the time until it was used again."""
    known_rows = [row for row in rows if tells_its_memory(row.gpu)]
    if not known_rows:
        return []
    free_bytes = most_free_bytes(known_rows[0].gpu)
    least_held_bytes = free_bytes + marks.CUDA_CONTEXT
    ends: list[ProcessEnd] = []
    is_held = False
    for position, row in enumerate(known_rows):
        used_bytes = or_zero(row.gpu.memory_used_bytes)
        if used_bytes >= least_held_bytes:
            if ends and not is_held:
                absence = row.seconds - ends[-1].second
                ends[-1] = ends[-1]._replace(back_after=absence)
            is_held = True
        elif used_bytes <= free_bytes and is_held:
            recent = known_rows[max(0, position - RECENT_SAMPLES) : position]
            shares = [or_zero(moment.gpu.memory_percent) for moment in recent]
            peak = max(shares) or None
            ends.append(ProcessEnd(row.seconds, peak, None))
            is_held = False
    return ends


def tells_its_memory(gpu: GpuSample) -> bool:
    """Whether a sample shows how much memory the processes on the GPU use."""
    # Exclude memory shared with the CPU, which is never empty, and lost GPUs, which report nothing.
    return gpu.memory_used_bytes is not None and not gpu.memory_is_unified and not gpu.lost


def most_free_bytes(first: GpuSample) -> float:
    """How many bytes may be in use while no process uses the GPU: the driver's share or, on a card
    with a desktop, about as much as in the first sample."""
    first_bytes = or_zero(first.memory_used_bytes)
    first_share = or_zero(first.memory_percent)
    # If the GPU is quiet and nearly empty at first, only the desktop's programs are in memory.
    is_desktop_alone = is_quiet(first) and first_share < marks.DESKTOP_MEMORY
    if not is_desktop_alone:
        return marks.EMPTY_MEMORY
    # Allow 10 % more, because the desktop's memory varies.
    return max(marks.EMPTY_MEMORY, first_bytes * 1.1)


# --- memory that grows ---------------------------------------------------------------------------


QUARTERS = 4


def grows_all_the_time(shares: Sequence[float]) -> bool:
    """Whether memory grew by at least `LEAK_GROWTH` percentage points over the run, and in every
    quarter of the run."""
    if len(shares) < SAMPLES_OF_A_LEAK:
        return False
    last = len(shares) - 1
    quarters = []
    for number in range(QUARTERS + 1):
        position = number * len(shares) // QUARTERS
        quarters.append(shares[min(last, position)])
    growth = quarters[-1] - quarters[0]
    steps = [later - earlier for earlier, later in pairwise(quarters)]
    # With even growth, each quarter of the run has a quarter of the total. We require a third of
    # that.
    least_step = growth / 12
    grows_in_each = min(steps) >= least_step
    return growth >= marks.LEAK_GROWTH and grows_in_each


# --- the beginning --------------------------------------------------------------------------------


def loading(rows: Sequence[Moment]) -> int:
    """How many samples at the start show only stray kernels, before the GPU works most of the time;
    0 if there are none.

    While a program loads a checkpoint or compiles, it runs a small kernel now and then.
    """
    uses = [or_zero(row.gpu.utilization_percent) for row in rows]
    begin = 0
    while begin < len(uses) and uses[begin] < marks.STRAY_USE:
        begin += 1
    later_uses = [use for use in uses[begin:] if use > marks.QUIET]
    # A GPU that never works much is not a late starter: it simply works little.
    works_much = bool(later_uses) and fmean(later_uses) >= marks.LOW
    return begin if works_much else 0
