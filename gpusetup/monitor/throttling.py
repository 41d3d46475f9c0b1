"""Finds what slows a GPU's clocks down: a throttle reason, or heat if no reason is reported. Pure
functions."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.marks import (
    BUSY,
    HOT,
    IDLE_POWER,
    LOW_CLOCKS,
    POWER_CAPPED_SHARE,
    POWER_LEFT,
    RATED_CLOCKS,
    RATED_POWER,
    THROTTLED_SHARE,
)
from gpusetup.monitor.work import Work, at_least, below, percent, rated_watts


class Throttle(NamedTuple):
    """A throttle reason, with its cause and the conditions under which it counts."""

    cause: str
    words: str
    reason: str = ""
    least_share: float = THROTTLED_SHARE
    """During how much of the work the reason must be active, in percent."""
    needs_low_clocks: bool = False
    """Whether the reason counts only if the clocks are low, because cards also reach their power
    limit in normal work."""


THERMAL_VIOLATION, POWER_VIOLATION = "thermal_violation", "power_violation"
"""The counters of `nvidia-smi dmon` (`tviol`, `pviol`), which do not show which of the driver's
reasons was active."""

THROTTLES = (
    Throttle("heat", "heat", "hw_thermal_slowdown"),
    Throttle("heat", "heat", "sw_thermal_slowdown"),
    Throttle("heat", "heat", THERMAL_VIOLATION),
    Throttle("supply", "the power supply's brake", "hw_power_brake_slowdown"),
    Throttle("supply", "the hardware's brake", "hw_slowdown"),
    Throttle("power", "the power limit", "sw_power_cap", POWER_CAPPED_SHARE, True),
    Throttle("power", "the power limit", POWER_VIOLATION, POWER_CAPPED_SHARE, True),
    Throttle(
        "set clocks",
        "clocks that somebody set",
        "applications_clocks_setting",
        POWER_CAPPED_SHARE,
        True,
    ),
)
"""Throttle reasons; the first that is active and counts is reported. nvml.h explains their meaning
(nvmlClocksEventReason*)."""


def active_throttle(
    work: Work, gpu: GpuRun, siblings_clock: float | None = None
) -> Throttle | None:
    """The first throttle reason that slows this GPU down, with its cause; None if there is none.

    `siblings_clock`: the clock, in MHz, of other cards of the same model that are equally busy.
    """
    slow = clocks_are_low(work)
    for throttle in THROTTLES:
        share = work.reasons.get(throttle.reason, 0.0)
        is_on = share >= throttle.least_share
        costs_speed = slow or not throttle.needs_low_clocks
        if is_on and costs_speed:
            return of_this_card(throttle, work, gpu)
    # If no reason is reported, heat may still explain the low clocks of a busy GPU.
    if work.reasons or work.utilization < BUSY:
        return None
    is_slow_and_hot = slow and at_least(gpu.heat, HOT)
    # Cards of one model are alike, so if the others run faster, less heat is enough.
    is_slower_and_warm = is_slower(work, siblings_clock) and at_least(gpu.heat, WARM)
    if is_slow_and_hot or is_slower_and_warm:
        return Throttle("heat", "heat", "no reason was told")
    return None


WARM = 80.0
"""The temperature, in °C, from which heat may explain why a card is slower than others of its
model. GeForce cards lower their clocks at 83 °C, but this limit is lower, because we compare it
with the 95th percentile."""


def is_slower(work: Work, siblings_clock: float | None) -> bool:
    """Whether the GPU's SM clock is below 80 % of that of other busy cards of the same model; false
    if either is unknown."""
    clock_share = percent(work.clock_mhz, siblings_clock)
    return below(clock_share, LOW_CLOCKS)


def clocks_are_low(work: Work) -> bool:
    """Whether the SM clock is below 80 % of its maximum while the GPU works; false if it is
    unknown."""
    # The maximum clock is a boost that the GPU cannot hold under heavy work.
    clock_share = work.clock_share
    return below(clock_share, LOW_CLOCKS)


def of_this_card(throttle: Throttle, work: Work, gpu: GpuRun) -> Throttle | None:
    """The throttle reason with its cause for this card; for the power limit, the cause depends on
    whether the limit was lowered.

    None if the limit is not below the card's rated power, or if the rated power is unknown, because
    a limit by itself proves nothing.
    """
    if throttle.cause != "power":
        return throttle
    if is_capped_from_outside(work, gpu):
        return throttle._replace(cause="withheld power")
    limit, rated_power = gpu.latest.power_limit_watts, gpu.power_default
    if not limit or not rated_power:
        return None
    if limit >= rated_power * RATED_POWER / 100:
        return None
    # A laptop's power limit is chosen by its maker and cannot be raised.
    return throttle._replace(cause="rated limit" if is_laptop(gpu.name) else "lowered limit")


def is_capped_from_outside(work: Work, gpu: GpuRun) -> bool:
    """Whether something other than the GPU's own power limit slows its clocks down, such as a
    laptop's charger.

    A laptop's charger or a server's chassis can cap the power below the limit that NVML reports.
    The sign is low clocks although the GPU draws less than its limit allows. If no limit is
    reported, very low clocks are enough.
    """
    if not clocks_are_low(work):
        return False
    power_share = work.power_share
    if power_share is None or not work.utilization:
        limit_watts = gpu.latest.power_limit_watts or rated_watts(gpu.name)
        clocks_are_far_down = below(work.clock_share, RATED_CLOCKS)
        return not limit_watts and clocks_are_far_down
    # Estimate the power that the GPU would draw if it worked all the time.
    power_above_rest = (power_share - IDLE_POWER) / work.utilization * 100
    power_at_full_work = power_above_rest + IDLE_POWER
    return power_at_full_work < POWER_LEFT


LAPTOP_WORDS = re.compile(r"\b(laptop|max-q|mobile)\b")


def is_laptop(name: str | None) -> bool:
    """Whether this is a laptop GPU, judged by the words in its name.

    >>> is_laptop("NVIDIA GeForce RTX 3060 Laptop GPU"), is_laptop("NVIDIA A100-SXM4-80GB")
    (True, False)
    """
    lower_name = (name or "").lower()
    match = LAPTOP_WORDS.search(lower_name)
    return match is not None
