"""What a verdict judges (one GPU that worked in a run), and what a sign of it is. Pure
functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from gpusetup.monitor import marks
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.run import WatchedRun
from gpusetup.monitor.throttling import Throttle, active_throttle
from gpusetup.monitor.work import Work, or_zero


class Subject:
    """One GPU that worked in a run, with the figures that signs and sentences need."""

    def __init__(self, run: WatchedRun, gpu: GpuRun, work: Work) -> None:
        self.run = run
        self.gpu = gpu
        self.work = work
        self.together = len(run.team(gpu))
        """How many GPUs work on the same job."""

    @cached_property
    def kind(self) -> str:
        """The kind of program, such as `training` (`programs.py`)."""
        gpu = self.gpu
        return self.run.kind_on(gpu)

    @cached_property
    def throttle(self) -> Throttle | None:
        """What holds the clocks down."""
        siblings_clock = self.run.siblings_clock(self.gpu)
        return active_throttle(self.work, self.gpu, siblings_clock)

    @property
    def throttle_share(self) -> float:
        """The percentage of samples with work in which the throttle was active."""
        if self.throttle is None:
            return 0.0
        # Heat that no reason tells is judged over the whole run.
        return self.work.reasons.get(self.throttle.reason, 100.0)

    @property
    def weight(self) -> float | None:
        """The power above that of an idle card, in percent of the limit, during work."""
        power_share = self.work.power_share
        utilization = self.work.utilization
        if power_share is None or not utilization:
            return None
        # A card draws some power at rest, whatever runs.
        power_above_rest = power_share - marks.IDLE_POWER
        return power_above_rest / utilization * 100

    @property
    def power_limit_watts(self) -> float | None:
        """The last known power limit."""
        # A lost GPU keeps the last that it told.
        latest = self.gpu.latest
        return latest.power_limit_watts

    @property
    def others_cpu(self) -> float:
        """The CPU that other processes on the machine use, in percent of a core."""
        machine_cpu = or_zero(self.work.host_cpu)
        command_cpu = or_zero(self.work.cpu)
        return machine_cpu - command_cpu

    @property
    def others_share(self) -> float | None:
        """The CPU of other processes, in percent of all cores."""
        cores = self.run.host_cores
        # No sample tells of the machine.
        if not cores:
            return None
        return self.others_cpu / cores

    @property
    def cpu_share(self) -> float | None:
        """The command's CPU, in percent of the cores that it may use."""
        cpu = self.work.cpu
        cores = self.run.usable_cores
        if cpu is None or not cores:
            return None
        return cpu / cores

    @property
    def could_draw(self) -> float | None:
        """The watts above the current limit that the card is rated at or can be set to."""
        limit = self.power_limit_watts
        rated = self.gpu.power_default
        is_above_limit = rated is not None and (not limit or rated > limit)
        if rated and is_above_limit:
            return rated
        # Some cards can be set higher than they are rated.
        highest_limit = self.gpu.latest.power_limit_max_watts
        return highest_limit or rated


class Sign:
    """A yes-or-no question about a GPU in its run.

    What no source told is not seen, so that a verdict that needs it is not given.
    """

    def __init__(self, test: Callable[[Subject], bool]) -> None:
        self.test = test

    def __call__(self, subject: Subject) -> bool:
        return self.test(subject)

    def __and__(self, other: Sign) -> Sign:
        def both(subject: Subject) -> bool:
            # The second is asked only if the first is seen.
            return self(subject) and other(subject)

        return Sign(both)

    def __or__(self, other: Sign) -> Sign:
        def either(subject: Subject) -> bool:
            # The second is asked only if the first is not seen.
            return self(subject) or other(subject)

        return Sign(either)

    def __invert__(self) -> Sign:
        def is_not_seen(subject: Subject) -> bool:
            # So what no source told counts as not seen here too.
            return not self(subject)

        return Sign(is_not_seen)
