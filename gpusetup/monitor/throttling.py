"""What holds a GPU's clocks down: throttle reasons, and heat where no reason is told. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

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
from gpusetup.monitor.tally import Gpu
from gpusetup.monitor.work import Work, rated_watts


class Throttle(NamedTuple):
    """A throttle reason that costs speed. `held_down`: only where clocks are below the mark."""

    cause: str
    words: str
    reason: str = ""
    mark: float = THROTTLED_SHARE
    held_down: bool = False


THROTTLES = (
    Throttle("heat", "heat", "hw_thermal_slowdown"),
    Throttle("heat", "heat", "sw_thermal_slowdown"),
    Throttle("supply", "the power supply's brake", "hw_power_brake_slowdown"),
    Throttle("supply", "the hardware's brake", "hw_slowdown"),
    Throttle("power", "the power limit", "sw_power_cap", POWER_CAPPED_SHARE, True),
    Throttle(
        "set clocks",
        "clocks that somebody set",
        "applications_clocks_setting",
        POWER_CAPPED_SHARE,
        True,
    ),
)
"""In the order in which they are named. Meaning: nvml.h, nvmlClocksEventReason*."""


def active_throttle(work: Work, gpu: Gpu) -> Throttle | None:
    """The first that is on, with the cause that fits this card."""
    slow = clocks_are_low(work)
    for one in THROTTLES:
        if work.reasons.get(one.reason, 0.0) >= one.mark and (slow or not one.held_down):
            return _of_this_card(one, work, gpu)
    if work.reasons or not slow or work.utilization < BUSY:
        return None
    if gpu.heat is not None and gpu.heat >= HOT:
        return Throttle("heat", "heat", "no reason was told")
    return None


def clocks_are_low(work: Work) -> bool:
    return work.clock_share is not None and work.clock_share < LOW_CLOCKS


def _of_this_card(throttle: Throttle, work: Work, gpu: Gpu) -> Throttle | None:
    """Which power limit it is; None where the card gives what it is rated for, and where nobody
    told what that is: a limit alone says nothing."""
    if throttle.cause != "power":
        return throttle
    limit, rated_power = gpu.latest.power_limit_watts, gpu.power_default
    if is_withheld(work, gpu):
        return throttle._replace(cause="withheld power")
    if limit and rated_power and limit < rated_power * RATED_POWER / 100:
        return throttle._replace(cause="rated limit" if is_laptop(gpu.name) else "lowered limit")
    return None


def is_withheld(work: Work, gpu: Gpu) -> bool:
    """Clocks far down under a power cap, while the limit that is told leaves power unused; or where
    none is told, far down alone. What caps it is outside of the card's own limit."""
    if (work.clock_share or 0.0) >= LOW_CLOCKS:
        return False
    if work.power_share is None or not work.utilization:
        known_limit = gpu.latest.power_limit_watts or rated_watts(gpu.name)
        return known_limit is None and (work.clock_share or 100.0) < RATED_CLOCKS
    full_power_share = (work.power_share - IDLE_POWER) / work.utilization * 100 + IDLE_POWER
    return full_power_share < POWER_LEFT


def is_laptop(name: str | None) -> bool:
    """By the words that NVIDIA's names of them have.

    >>> is_laptop("NVIDIA GeForce RTX 3060 Laptop GPU"), is_laptop("NVIDIA A100-SXM4-80GB")
    (True, False)
    """
    return bool(re.search(r"\b(laptop|max-q|mobile)\b", (name or "").lower()))
