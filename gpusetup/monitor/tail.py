"""The end of a run by itself: GPUs that spin without work to the last sample. Pure.

Means over the whole run hide a hang: the work before it counts as well, and what is not told any
more, such as links, is left out of them.
"""

from __future__ import annotations

from gpusetup.monitor.histogram import Mean
from gpusetup.monitor.marks import FELL, IDLE_POWER, LIGHT, QUIET, SPINS
from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.monitor.work import Work, WorkTally, is_quiet, power_share

STRAYS = 3
"""Samples with work, one behind the other, that end a stretch without work."""


class Tail:
    """The last stretch in which a GPU looked busy and drew little, and what was before it."""

    def __init__(self) -> None:
        self._spinning = WorkTally()
        self.watts_before, self.traffic_before = Mean(), Mean()
        """`traffic_before`: of its memory, percent."""
        self.since: float | None = None
        self._until, self._strays = 0.0, 0

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        """Quiet neither begins nor ends it: a hang that was killed is quiet after it."""
        if gpu.utilization_percent is None or is_quiet(gpu):
            return
        if self._spins(gpu):
            self.since = sample.seconds if self.since is None else self.since
            self._until, self._strays = sample.seconds, 0
            self._spinning.add(gpu, sample)
            return
        self.watts_before.add(gpu.power_watts)
        self.traffic_before.add(gpu.memory_busy_percent)
        self._strays += 1
        if self.since is not None and self._strays >= STRAYS:  # it belongs to what was before
            self.watts_before.merge(self._spinning.of.get("power_watts", Mean()))
            self.traffic_before.merge(self._spinning.of.get("memory_busy", Mean()))
            self._spinning, self.since = WorkTally(), None

    @property
    def work(self) -> Work | None:
        """None where it did not spin."""
        return self._spinning.work()

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None else self._until - self.since

    def _spins(self, gpu: GpuSample) -> bool:
        """It looks busy and hardly draws power, or where that is not told touches no memory, or
        draws much less than before."""
        if (gpu.utilization_percent or 0.0) < SPINS:
            return False
        share, busy = power_share(gpu), gpu.memory_busy_percent
        if share is not None:
            return share < IDLE_POWER + LIGHT
        if busy is not None:
            return busy <= QUIET
        before = self.watts_before.value()
        return bool(before and gpu.power_watts and gpu.power_watts * FELL <= before)
