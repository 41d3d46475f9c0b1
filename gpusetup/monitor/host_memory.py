"""The machine's memory over a run: whether it grows all the time, and when it is full. Pure
functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.monitor import course
from gpusetup.monitor.work import Moment, or_zero, percent

LEAST_GROWTH = 10.0
"""Points of the machine's memory. A machine has more of it than a GPU, so a leak takes longer."""
LEAST_SECONDS = 60.0
"""A program that starts fills caches for a while."""


class HostMemoryGrowth(NamedTuple):
    """How the machine's memory grew from the first sample to the last."""

    first_share: float
    last_share: float
    """Percent of the machine's memory in use."""
    full_in: float
    """Seconds until it is full, if it goes on to grow as it did."""
    first_command_bytes: float | None
    last_command_bytes: float | None
    """What the command's processes held; None if no command was watched."""


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
