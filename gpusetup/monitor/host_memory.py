"""How the machine's memory developed over a run: whether it grew all the time, and when it will be
full. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.monitor import course
from gpusetup.monitor.work import Moment, or_zero, percent

LEAST_GROWTH = 10.0
"""The least growth that counts, in percentage points of the machine's memory. It is small, because
a machine has more memory than a GPU, so a leak takes longer to show."""
LEAST_SECONDS = 60.0
"""A shorter growth may come from a program that fills its caches after it starts."""


class HostMemoryGrowth(NamedTuple):
    """How the machine's memory grew from the first sample to the last."""

    first_share: float
    last_share: float
    """The share of the machine's memory in use, in percent."""
    full_in: float
    """Seconds until memory is full, if it keeps growing at this rate."""
    first_command_bytes: float | None
    last_command_bytes: float | None
    """Bytes used by the command's processes; None if no command was watched."""


def host_memory_growth(rows: Sequence[Moment]) -> HostMemoryGrowth | None:
    """The growth of the machine's memory, if it grew a lot and in each quarter of the run; None
    otherwise."""
    known_rows: list[Moment] = []
    shares: list[float] = []
    for row in rows:
        host = row.host
        share = percent(host.memory_used_bytes, host.memory_total_bytes) if host else None
        if share is not None:
            known_rows.append(row)
            shares.append(share)
    if not course.grows_all_the_time(shares, LEAST_GROWTH):
        return None
    seconds = known_rows[-1].seconds - known_rows[0].seconds
    if seconds < LEAST_SECONDS:
        return None
    rate = (shares[-1] - shares[0]) / seconds
    trees = [row.tree for row in known_rows if row.tree is not None]
    return HostMemoryGrowth(
        first_share=shares[0],
        last_share=shares[-1],
        full_in=(100 - shares[-1]) / rate,
        first_command_bytes=or_zero(trees[0].memory_bytes) if trees else None,
        last_command_bytes=or_zero(trees[-1].memory_bytes) if trees else None,
    )
