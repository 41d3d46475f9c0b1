"""What is judged: one GPU that worked, in its run; and what a sign of it is. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from gpusetup.monitor import marks
from gpusetup.monitor.gpu import Gpu
from gpusetup.monitor.run import Run
from gpusetup.monitor.throttling import Throttle, active_throttle
from gpusetup.monitor.work import Work, or_zero


class Subject:
    """One GPU that worked, in its run, with the figures that signs and sentences need."""

    def __init__(self, run: Run, gpu: Gpu, work: Work) -> None:
        self.run = run
        self.gpu = gpu
        self.work = work
        self.together = len(run.team(gpu))
        """How many GPUs work on the same job."""

    @cached_property
    def kind(self) -> str:
        """The kind of program, such as `training` (`programs.py`)."""
        return self.run.kind_on(self.gpu)

    @cached_property
    def throttle(self) -> Throttle | None:
        """What holds the clocks down."""
        return active_throttle(self.work, self.gpu)

    @property
    def throttle_share(self) -> float:
        """Percent of the samples with work in which the throttle was on."""
        if self.throttle is None:
            return 0.0
        # Heat that no reason tells is judged over the whole run.
        return self.work.reasons.get(self.throttle.reason, 100.0)

    @property
    def weight(self) -> float | None:
        """Power above that of a resting card, in percent of the limit, for the time with work."""
        power_share = self.work.power_share
        if power_share is None or not self.work.utilization:
            return None
        return (power_share - marks.IDLE_POWER) / self.work.utilization * 100

    @property
    def power_limit_watts(self) -> float | None:
        """The power limit as it was last."""
        return self.gpu.latest.power_limit_watts

    @property
    def others_cpu(self) -> float:
        """Percent of a core: the CPU that other processes of the machine use."""
        return or_zero(self.work.host_cpu) - or_zero(self.work.cpu)

    @property
    def others_share(self) -> float | None:
        """The CPU of other processes as a share of all cores, percent."""
        cores = self.run.host_cores
        return self.others_cpu / cores if cores else None

    @property
    def cpu_share(self) -> float | None:
        """The command's CPU as a share of the cores that it may use, percent."""
        cores = self.run.usable_cores
        if self.work.cpu is None or not cores:
            return None
        return self.work.cpu / cores

    @property
    def could_draw(self) -> float | None:
        """Watts: what the card is rated at, or can be set to, above its limit now."""
        limit, rated = self.power_limit_watts, self.gpu.power_default
        if rated and (not limit or rated > limit):
            return rated
        return self.gpu.latest.power_limit_max_watts or rated


class Sign:
    """A question with a yes or no about a GPU in its run.

    What no source told is not seen, so that a verdict that needs it is not given.
    """

    def __init__(self, test: Callable[[Subject], bool]) -> None:
        self.test = test

    def __call__(self, subject: Subject) -> bool:
        return self.test(subject)

    def __and__(self, other: Sign) -> Sign:
        return Sign(lambda subject: self(subject) and other(subject))

    def __or__(self, other: Sign) -> Sign:
        return Sign(lambda subject: self(subject) or other(subject))

    def __invert__(self) -> Sign:
        return Sign(lambda subject: not self(subject))
