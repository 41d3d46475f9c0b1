"""Finds what slows a GPU's clocks down: a throttle reason, or else heat. Pure functions."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.work import Work, at_least, below


class Throttle(NamedTuple):
    """A throttle reason, with its cause and the conditions under which it counts."""

    reason: str
    cause: str
    words: str
    least_share: float = marks.THROTTLED_SHARE
    """During how much of the work the reason must be active, in percent."""


THERMAL_VIOLATION, POWER_VIOLATION = "thermal_violation", "power_violation"
"""The counters of `nvidia-smi dmon` (`tviol`, `pviol`), which do not show which of the driver's
reasons was active."""
NO_REASON = "no reason was reported"
AT_POWER_LIMIT = 85.0
"""From this percentage of its power limit on, a GPU may be held back by the limit."""
CAPPED = marks.POWER_CAPPED_SHARE
THROTTLES = (
    Throttle("hw_thermal_slowdown", "heat", "heat"),
    Throttle("sw_thermal_slowdown", "heat", "heat"),
    Throttle(THERMAL_VIOLATION, "heat", "heat"),
    Throttle("hw_power_brake_slowdown", "supply", "the power supply's brake"),
    Throttle("hw_slowdown", "supply", "the hardware's brake"),
    Throttle("sw_power_cap", "power", "the power limit", CAPPED),
    Throttle(POWER_VIOLATION, "power", "the power limit", CAPPED),
    Throttle("applications_clocks_setting", "low clocks", "clocks that somebody set", CAPPED),
)
"""Throttle reasons; the first that is active and counts is reported. nvml.h explains their meaning
(nvmlClocksEventReason*)."""


def active_throttle(work: Work, gpu: GpuRun) -> Throttle | None:
    """The first throttle reason that slows this GPU down, with its cause; None if there is none."""
    # The maximum is a boost that no GPU holds under heavy work.
    clocks_are_low = below(work.clock_share, marks.LOW_CLOCKS)
    for throttle in THROTTLES:
        if work.reasons.get(throttle.reason, 0.0) < throttle.least_share:
            continue
        if throttle.cause == "power":
            return cause_of_power_limit(throttle, work, gpu)
        # Somebody may have set clocks that are high.
        if clocks_are_low or throttle.cause != "low clocks":
            return throttle
    has_reason = len(work.reasons.keys() - {"gpu_idle"}) > 0
    # A GPU that does little work may have lowered its clocks for that.
    if has_reason or work.utilization < marks.BUSY:
        return None
    # No reason is reported, but the clocks of the busy GPU are low: heat or, if it does not reach
    # its power limit (which some drivers do not report), something unknown.
    if clocks_are_low and at_least(gpu.heat, marks.HOT):
        return Throttle(NO_REASON, "heat", "heat")
    # Heavy work at the rated power limit also lowers the clock, but not as far.
    if below(work.clock_share, marks.RATED_CLOCKS) and below(work.power_share, AT_POWER_LIMIT):
        return Throttle(NO_REASON, "low clocks", "something")
    return None


def cause_of_power_limit(throttle: Throttle, work: Work, gpu: GpuRun) -> Throttle | None:
    """The power limit with its cause for this card: a limit that was lowered, or one that costs
    much of the clock. None if the clocks are about what heavy work leaves, because a limit by
    itself proves nothing."""
    limit, rated = gpu.latest.power_limit_watts, gpu.latest.power_limit_default_watts
    # A laptop's power limit is chosen by its maker and cannot be raised.
    if limit and rated and limit < rated * marks.RATED_POWER / 100 and not is_laptop(gpu.name):
        return throttle._replace(cause="lowered limit")
    # Heavy work lowers the clock even at the rated limit, so only very low clocks count there.
    mark = marks.RATED_CLOCKS if rated else marks.CAPPED_CLOCKS
    return throttle._replace(cause="power limit") if below(work.clock_share, mark) else None


LAPTOP_WORDS = re.compile(r"\b(laptop|max-q|mobile)\b", re.I)


def is_laptop(name: str | None) -> bool:
    """Whether a GPU is a laptop's, by its name."""
    return LAPTOP_WORDS.search(name or "") is not None
