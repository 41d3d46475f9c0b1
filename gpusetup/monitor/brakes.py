"""What holds a GPU's clocks down: throttle reasons, and heat where no reason is told. Pure."""

from __future__ import annotations

import re

from gpusetup.model.frozen import Frozen
from gpusetup.monitor import marks
from gpusetup.monitor.facts import GpuFacts, Work


class Brake(Frozen):
    """A throttle reason that costs speed. `held_down`: only where clocks are below the mark."""

    reason: str
    words: str
    mark: marks.Mark
    held_down: bool
    cause: str


def brake(reason: str, words: str, cause: str, mark: marks.Mark, *, held_down: bool) -> Brake:
    return Brake(reason=reason, words=words, cause=cause, mark=mark, held_down=held_down)


BRAKES = (
    brake("hw_thermal_slowdown", "heat (hardware)", "heat", marks.SLOWED, held_down=False),
    brake("sw_thermal_slowdown", "heat (driver)", "heat", marks.SLOWED, held_down=False),
    brake("hw_power_brake_slowdown", "the power supply's brake", "supply", marks.SLOWED,
          held_down=False),
    brake("hw_slowdown", "the hardware's brake", "supply", marks.SLOWED, held_down=False),
    brake("sw_power_cap", "the power limit", "power", marks.CAPPED, held_down=True),
    brake("applications_clocks_setting", "clocks that somebody set", "clocks", marks.CAPPED,
          held_down=True),
)  # fmt: skip
"""In the order in which they are named. Meaning: nvml.h, nvmlClocksEventReason*."""

HOT = brake("", "heat (no reason was told)", "heat", marks.SLOWED, held_down=True)
CAP = brake("", "the power limit (no reason was told)", "power", marks.CAPPED, held_down=True)


def active_brake(work: Work, gpu: GpuFacts) -> Brake | None:
    """The first that is on, with the cause that fits this card."""
    slow = below_clocks(work)
    told = next((one for one in BRAKES if _is_on(one, work, slow)), None)
    found = told or _untold(work, gpu, slow)
    if found is None or found.cause != "power":
        return found
    cause = power_cause(work, gpu)
    if not cause:
        return None
    return brake(found.reason, found.words, cause, found.mark, held_down=True)


def below_clocks(work: Work) -> bool:
    return work.clock_share is not None and work.clock_share < marks.CLOCKS.value


def _is_on(one: Brake, work: Work, slow: bool) -> bool:
    return work.reasons.get(one.reason, 0.0) >= one.mark.value and (slow or not one.held_down)


def _untold(work: Work, gpu: GpuFacts, slow: bool) -> Brake | None:
    """Low clocks under full work at the slowdown point, or at a lowered limit."""
    if work.reasons or not slow or work.utilization < marks.BUSY.value:
        return None
    point = gpu.slowdown_celsius or marks.HOT.value + 3
    if gpu.temperature_p95 is not None and gpu.temperature_p95 >= point - 3:
        return HOT
    return CAP if (work.power_share or 0.0) >= 95 else None


def power_cause(work: Work, gpu: GpuFacts) -> str:
    """Which power limit it is; `""` where the card gives what it is rated for, and where nobody
    told what that is: a limit alone says nothing.

    >>> work = Work(samples=9, utilization=99, utilization_p5=99, utilization_p95=99,
    ...             quiet_share=0, clock_share=70)
    >>> card = GpuFacts(label="0", samples=9, power_limit=400, power_default=400, power_max=400)
    >>> power_cause(work, card)
    ''
    """
    if withheld(work, gpu):
        return "withheld"
    cause = _limit_cause(work, gpu)
    return "fixed" if cause and is_laptop(gpu.name) else cause


def withheld(work: Work, gpu: GpuFacts) -> bool:
    """Clocks far down under a power cap, while the limit that is told leaves power unused; or where
    none is told, far down alone. What caps it is outside of the card's own limit."""
    if (work.clock_share or 0.0) >= marks.CLOCKS.value:
        return False
    if work.power_share is None or not work.utilization:
        told = gpu.power_limit or gpu.power_rated
        return told is None and (work.clock_share or 100.0) < marks.FAST_ENOUGH.value
    idle = marks.IDLE_POWER.value
    return (work.power_share - idle) / work.utilization * 100 + idle < marks.UNUSED.value


def is_laptop(name: str | None) -> bool:
    """By the words that NVIDIA's names of them have.

    >>> is_laptop("NVIDIA GeForce RTX 3060 Laptop GPU"), is_laptop("NVIDIA A100-SXM4-80GB")
    (True, False)
    """
    return bool(re.search(r"\b(laptop|max-q|mobile)\b", (name or "").lower()))


def _limit_cause(work: Work, gpu: GpuFacts) -> str:
    limit, rated, most = gpu.power_limit, gpu.power_default, gpu.power_max
    if limit and rated and limit < rated * marks.RATED.value / 100:
        return "lowered"
    if limit is None or (rated is None and most is None):
        return ""
    if gpu.power_rated and not (most and most > limit * marks.ROOM.value / 100):
        return ""
    if (work.clock_share or 0.0) >= marks.FAST_ENOUGH.value:
        return ""
    return "room" if most and most > limit * marks.ROOM.value / 100 else "fixed"
