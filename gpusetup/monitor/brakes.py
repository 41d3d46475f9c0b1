"""What holds a GPU's clocks down: throttle reasons, and heat where no reason is told. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusetup.monitor.marks import (
    BUSY,
    CAPPED,
    CLOCKS,
    FAST_ENOUGH,
    HOT,
    IDLE_POWER,
    RATED,
    SLOWED,
    UNUSED,
)
from gpusetup.monitor.tally import Gpu
from gpusetup.monitor.work import Work, rated_watts


class Brake(NamedTuple):
    """A throttle reason that costs speed. `held_down`: only where clocks are below the mark."""

    cause: str
    words: str
    reason: str = ""
    mark: float = SLOWED
    held_down: bool = False


BRAKES = (
    Brake("heat", "heat", "hw_thermal_slowdown"),
    Brake("heat", "heat", "sw_thermal_slowdown"),
    Brake("supply", "the power supply's brake", "hw_power_brake_slowdown"),
    Brake("supply", "the hardware's brake", "hw_slowdown"),
    Brake("power", "the power limit", "sw_power_cap", CAPPED, True),
    Brake("set clocks", "clocks that somebody set", "applications_clocks_setting", CAPPED, True),
)
"""In the order in which they are named. Meaning: nvml.h, nvmlClocksEventReason*."""


def active_brake(work: Work, gpu: Gpu) -> Brake | None:
    """The first that is on, with the cause that fits this card."""
    slow = below_clocks(work)
    for one in BRAKES:
        if work.reasons.get(one.reason, 0.0) >= one.mark and (slow or not one.held_down):
            return _of_this_card(one, work, gpu)
    if work.reasons or not slow or work.utilization < BUSY:
        return None
    if gpu.heat is not None and gpu.heat >= HOT:
        return Brake("heat", "heat", "no reason was told")
    return None


def below_clocks(work: Work) -> bool:
    return work.clock_share is not None and work.clock_share < CLOCKS


def _of_this_card(brake: Brake, work: Work, gpu: Gpu) -> Brake | None:
    """Which power limit it is; None where the card gives what it is rated for, and where nobody
    told what that is: a limit alone says nothing."""
    if brake.cause != "power":
        return brake
    limit, rated = gpu.latest.power_limit_watts, gpu.power_default
    if withheld(work, gpu):
        return brake._replace(cause="withheld power")
    if limit and rated and limit < rated * RATED / 100:
        return brake._replace(cause="rated limit" if is_laptop(gpu.name) else "lowered limit")
    return None


def withheld(work: Work, gpu: Gpu) -> bool:
    """Clocks far down under a power cap, while the limit that is told leaves power unused; or where
    none is told, far down alone. What caps it is outside of the card's own limit."""
    if (work.clock_share or 0.0) >= CLOCKS:
        return False
    if work.power_share is None or not work.utilization:
        told = gpu.latest.power_limit_watts or rated_watts(gpu.name)
        return told is None and (work.clock_share or 100.0) < FAST_ENOUGH
    used = (work.power_share - IDLE_POWER) / work.utilization * 100 + IDLE_POWER
    return used < UNUSED


def is_laptop(name: str | None) -> bool:
    """By the words that NVIDIA's names of them have.

    >>> is_laptop("NVIDIA GeForce RTX 3060 Laptop GPU"), is_laptop("NVIDIA A100-SXM4-80GB")
    (True, False)
    """
    return bool(re.search(r"\b(laptop|max-q|mobile)\b", (name or "").lower()))
