"""A batch size that was tried, and what is looked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.frozen import Frozen

FIRST = 2
"""The first size, where none is named: what holds only a handful runs out of memory at more."""


class Trial(Frozen):
    """One batch size that was tried in a child of its own."""

    batch: int
    status: Literal["ok", "oom", "error"]
    peak_bytes: int | None = None
    """The most that counts against the limit: see `TuneTrial.peak_bytes`."""
    samples_per_second: float | None = None
    spread_percent: float | None = None
    """How far the middle half of the steps lies apart, of their median; None where one was timed.
    """
    static_bytes: int | None = None
    """What stands before a batch arrives: parameters, gradients, the optimizer's states."""
    phases: Mapping[str, int] = {}
    """Phase -> its peak in bytes, the mean of the readings."""
    readings: int = 1
    """How many steps were read."""
    noise: float | None = None
    """Half the range of the readings, as a part of their mean; None where there was one."""
    utilization_percent: float | None = None
    """What NVML said while it ran; None where it is not there."""
    leak_bytes: int | None = None
    """By how much what stands after a step grows with every step; None where it does not."""
    reserved_bytes: int | None = None
    """What a GPU's allocator held at most, the fragments that serve nothing included."""
    samples: int | None = None
    """How long the data set is, where the code returns one."""
    detail: str | None = None


class Goal(Frozen):
    """What is looked for."""

    limit_bytes: int
    """The memory that may be used: capacity less the margin."""
    start: int = FIRST
    largest: int | None = None
    """No size above this one is tried (`--max`)."""
    multiple: int = 1
    power_of_two: bool = False
    tolerance: float = 0.0205
    """The answer may lie this far below the largest size that is possible."""
    trials: int = 14
    ends: float | None = None
    """The time (`time.monotonic`) at which the search is to be over; None: whenever it is."""
