"""What a verdict is about: one GPU that worked in a run. Also the signs that verdicts combine. Pure
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
        """The kind of program on the GPU, such as `training` (see `programs.py`); "" if unknown."""
        gpu = self.gpu
        return self.run.kind_on(gpu)

    @cached_property
    def throttle(self) -> Throttle | None:
        """The throttle reason that slows the GPU's clocks down; None if there is none."""
        siblings_clock = self.run.siblings_clock(self.gpu)
        return active_throttle(self.work, self.gpu, siblings_clock)

    @property
    def throttle_share(self) -> float:
        """The percentage of samples with work in which the throttle reason was active; 100 if only
        the temperature shows it, 0 if there is none."""
        if self.throttle is None:
            return 0.0
        # If only the temperature shows the throttling, no reason was counted, so the share is 100.
        return self.work.reasons.get(self.throttle.reason, 100.0)

    @property
    def weight(self) -> float | None:
        """How much more power than an idle card the GPU draws while kernels run, in percent of the
        power limit; None if unknown."""
        power_share = self.work.power_share
        utilization = self.work.utilization
        if power_share is None or not utilization:
            return None
        # Subtract the idle power, because a card draws it whatever runs.
        power_above_rest = power_share - marks.IDLE_POWER
        return power_above_rest / utilization * 100

    @property
    def power_limit_watts(self) -> float | None:
        """The GPU's last known power limit in watts; None if unknown."""
        # `latest` is the last sample before a loss, so a lost GPU still has a limit.
        latest = self.gpu.latest
        return latest.power_limit_watts

    @property
    def others_cpu(self) -> float:
        """The CPU that programs other than the command use, in percent of one core."""
        machine_cpu = or_zero(self.work.host_cpu)
        command_cpu = or_zero(self.work.cpu)
        return machine_cpu - command_cpu

    @property
    def others_share(self) -> float | None:
        """The CPU that programs other than the command use, in percent of all cores; None if the
        number of cores is unknown."""
        cores = self.run.host_cores
        # The samples contain no figures of the machine.
        if not cores:
            return None
        return self.others_cpu / cores

    @property
    def cpu_share(self) -> float | None:
        """The CPU that the command uses, in percent of the cores that it may use; None if
        unknown."""
        cpu = self.work.cpu
        cores = self.run.usable_cores
        if cpu is None or not cores:
            return None
        return cpu / cores

    @property
    def could_draw(self) -> float | None:
        """How many watts the power limit could be raised to: the rated power if it is above the
        current limit, otherwise the card's maximum limit."""
        limit = self.power_limit_watts
        rated = self.gpu.power_default
        is_above_limit = rated is not None and (not limit or rated > limit)
        if rated and is_above_limit:
            return rated
        # Some cards allow a limit above their rated power.
        highest_limit = self.gpu.latest.power_limit_max_watts
        return highest_limit or rated


class Sign:
    """A yes-or-no question about a GPU in its run. Signs can be combined with `&`, `|` and `~`.

    If no source reported the value that a sign needs, the sign is false, so a verdict that needs it
    is not given.
    """

    def __init__(self, test: Callable[[Subject], bool]) -> None:
        self.test = test

    def __call__(self, subject: Subject) -> bool:
        return self.test(subject)

    def __and__(self, other: Sign) -> Sign:
        def both(subject: Subject) -> bool:
            # The second sign is tested only if the first is true.
            return self(subject) and other(subject)

        return Sign(both)

    def __or__(self, other: Sign) -> Sign:
        def either(subject: Subject) -> bool:
            # The second sign is tested only if the first is false.
            return self(subject) or other(subject)

        return Sign(either)

    def __invert__(self) -> Sign:
        def is_not_seen(subject: Subject) -> bool:
            # This means that if no source reported the value that the sign needs, the negated sign
            # is true.
            return not self(subject)

        return Sign(is_not_seen)
