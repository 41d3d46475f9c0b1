"""One GPU that worked, in its run, and what a question about it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

from gpusetup.monitor import marks
from gpusetup.monitor.brakes import Brake, active_brake
from gpusetup.monitor.run import Run
from gpusetup.monitor.tally import Gpu
from gpusetup.monitor.work import Work


class Seen:
    """One GPU that worked, in its run."""

    def __init__(self, run: Run, gpu: Gpu, work: Work) -> None:
        self.run, self.gpu, self.work = run, gpu, work
        self.together = len(run.team(gpu))
        """How many GPUs work on the same job."""

    @cached_property
    def kind(self) -> str:
        return self.run.kind_on(self.gpu)

    @cached_property
    def brake(self) -> Brake | None:
        return active_brake(self.work, self.gpu)

    @property
    def brake_share(self) -> float:
        """Percent of the samples with work in which it was on."""
        return self.work.reasons.get(self.brake.reason, 100.0) if self.brake else 0.0

    @property
    def weight(self) -> float | None:
        """Power above that of a resting card, in percent, for the time with work."""
        share, used = self.work.power_share, self.work.utilization
        return None if share is None or not used else (share - marks.IDLE_POWER) / used * 100

    @property
    def cores(self) -> float | None:
        return self.run.cores or self.run.host_cores

    @property
    def others_cpu(self) -> float:
        """Of the machine, used by others than the command."""
        return (self.work.host_cpu or 0.0) - (self.work.cpu or 0.0)

    @property
    def loaders(self) -> str:
        return loaders_in_words(self.work.workers)

    @property
    def moved(self) -> str:
        """What came and went over each kind of link."""
        work = self.work
        rates = {"NVLink": work.link_rate, "PCIe": work.pcie_rate, "the network": work.network_rate}
        each = ((rate / 1e9, name) for name, rate in rates.items() if rate)
        return "".join(f", {rate:.1f} GB/s over {name}" for rate, name in each)

    @property
    def could_draw(self) -> float | None:
        """Watts: what the card is rated at, or can be set to, above its limit now."""
        card, rated = self.gpu.latest, self.gpu.power_default
        above = rated and (not card.power_limit_watts or rated > card.power_limit_watts)
        return rated if above else card.power_limit_max_watts or rated


class Sign:
    """A question about a GPU in its run."""

    def __init__(self, test: Callable[[Seen], object]) -> None:
        self.test = test

    def __call__(self, seen: Seen) -> bool:
        return bool(self.test(seen))

    def __and__(self, other: Sign) -> Sign:
        return Sign(lambda seen: self(seen) and other(seen))

    def __or__(self, other: Sign) -> Sign:
        return Sign(lambda seen: self(seen) or other(seen))

    def __invert__(self) -> Sign:
        return Sign(lambda seen: not self(seen))


def least(value: float | None, mark: float) -> bool:
    return value is not None and value >= mark


def below(value: float | None, mark: float) -> bool:
    return value is not None and value < mark


MIXED = re.compile(
    r"(bf16|fp16|float16|bfloat16|--?(use[_-])?amp\b|mixed[_-]precision)"
    r"(?![= ](0|false|no|none)\b)",
    re.I,
)
MOST_WORKERS = 16
"""More loader workers than this per GPU are seldom worth their memory."""


def says(run: Run, what: re.Pattern[str]) -> bool:
    """Whether the command's words say that something is so already."""
    return bool(run.command and what.search(" ".join(run.command)))


def loaders_in_words(count: float) -> str:
    """
    >>> loaders_in_words(1.2), loaders_in_words(4)
    ('1 loader worker', '4 loader workers')
    """
    return f"{count:.0f} loader worker{'' if round(count) == 1 else 's'}"


def useful_workers(run: Run) -> int:
    """The usable cores, shared by the GPUs at work; 4 if the cores are not known."""
    used = sum((gpu.utilization or 0.0) >= marks.IDLE for gpu in run.gpus)
    return max(1, min(MOST_WORKERS, round(run.cores or 4) // max(1, used)))
