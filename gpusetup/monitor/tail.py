"""The end of a run by itself: GPUs that spin without work to the last sample. Pure.

Means over the whole run hide a hang: the work before it counts as well, and what is not told any
more, such as links, is left out of them.
"""

from __future__ import annotations

from gpusetup.monitor.marks import IDLE_POWER, LIGHT, QUIET, SPINS
from gpusetup.monitor.stretch import WorkTally, is_quiet, percent
from gpusetup.monitor.values import GpuSample, Sample


class Tail:
    """The last stretch in which a GPU looked busy and drew little, and what was before it."""

    STRAYS = 3
    """Samples with work, one behind the other, that end it."""

    def __init__(self) -> None:
        self.before, self.work, self._strays = WorkTally(), WorkTally(), WorkTally()
        self.since: float | None = None
        self.until = 0.0

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        """Quiet neither begins nor ends it: a hang that was killed is quiet after it."""
        if gpu.utilization_percent is None or is_quiet(gpu):
            return
        if spins(gpu):
            self._go_on(gpu, sample)
            return
        self._strays.add(gpu, sample)
        if self._strays.samples >= self.STRAYS:
            self._end()

    def _go_on(self, gpu: GpuSample, sample: Sample) -> None:
        if self.since is None:
            self._end()
            self.since = sample.seconds
        self.work.merge(self._strays)
        self._strays = WorkTally()
        self.work.add(gpu, sample)
        self.until = sample.seconds

    def _end(self) -> None:
        self.before.merge(self.work)
        self.before.merge(self._strays)
        self.work, self._strays = WorkTally(), WorkTally()
        self.since = None

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None else self.until - self.since


def spins(gpu: GpuSample) -> bool:
    """It looks busy and hardly draws power, or where power is not told touches no memory."""
    if (gpu.utilization_percent or 0.0) < SPINS.value:
        return False
    share = percent(gpu.power_watts, gpu.power_limit_watts)
    if share is not None:
        return share < IDLE_POWER.value + LIGHT.value
    busy = gpu.memory_busy_percent
    return busy is not None and busy <= QUIET.value
