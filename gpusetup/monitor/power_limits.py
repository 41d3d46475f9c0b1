"""Finds power limits that fall while a GPU works, for example because a laptop's charger is
unplugged or a power manager lowers the limit. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.work import Moment, below, mean, or_zero, percent

LEAST_SAMPLES = 5
"""The fewest samples before and after a fall of the limit; with fewer, the fall may only be
temporary."""
NEAR_THE_LIMIT = 85.0
"""In percent of the power limit. If a card draws more, we assume that the limit slows it down."""


class PowerLimitFall(NamedTuple):
    """The moment from which a GPU's power limit stayed lower than before."""

    second: float
    before_watts: float
    after_watts: float
    before_mhz: float | None
    after_mhz: float | None
    """The mean SM clock before and after the fall; None if unknown."""


def power_limit_fall(rows: Sequence[Moment]) -> PowerLimitFall | None:
    """The fall of the power limit that slows the GPU down until the end of these samples; None if
    the limit did not fall or the fall costs no speed.

    The highest limit in the recording is the reference, so no source needs to report the rated
    limit.
    """
    known_rows = [row for row in rows if row.gpu.power_limit_watts]
    highest_limit = max((or_zero(row.gpu.power_limit_watts) for row in known_rows), default=0.0)
    # Ignore small changes, because a laptop constantly shifts a few watts between CPU and GPU.
    least_limit = highest_limit * marks.RATED_POWER / 100
    begin = len(known_rows)
    while begin > 0 and or_zero(known_rows[begin - 1].gpu.power_limit_watts) < least_limit:
        begin -= 1
    before, after = known_rows[:begin], known_rows[begin:]
    if min(len(before), len(after)) < LEAST_SAMPLES:
        return None
    before_mhz = mean(row.gpu.clock_sm_mhz for row in before)
    after_mhz = mean(row.gpu.clock_sm_mhz for row in after)
    after_limit = or_zero(after[-1].gpu.power_limit_watts)
    if before_mhz and after_mhz:
        costs_speed = below(percent(after_mhz, before_mhz), marks.LOW_CLOCKS)
    else:
        power = mean(row.gpu.power_watts for row in after)
        costs_speed = or_zero(percent(power, after_limit)) >= NEAR_THE_LIMIT
    if not costs_speed:
        return None
    return PowerLimitFall(
        second=after[0].seconds,
        before_watts=or_zero(before[-1].gpu.power_limit_watts),
        after_watts=after_limit,
        before_mhz=before_mhz,
        after_mhz=after_mhz,
    )
