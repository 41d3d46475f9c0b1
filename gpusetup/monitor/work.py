"""Means over some samples of a GPU, computed only when needed. Pure functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from statistics import fmean
from typing import NamedTuple, TypeVar

from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.monitor.marks import IDLE_POWER, QUIET


class Moment(NamedTuple):
    """One GPU in a sample, and the whole sample, which also has the command and the machine."""

    gpu: GpuSample
    sample: Sample

    @property
    def seconds(self) -> float:
        return self.sample.seconds


MEANS: dict[str, tuple[str, str]] = {
    "memory_busy": ("gpu", "memory_busy_percent"),
    "power_watts": ("gpu", "power_watts"),
    "power_limit": ("gpu", "power_limit_watts"),
    "clock_mhz": ("gpu", "clock_sm_mhz"),
    "clock_most": ("gpu", "clock_sm_max_mhz"),
    "pcie_in": ("gpu", "pcie_rx_bytes_per_second"),
    "pcie_out": ("gpu", "pcie_tx_bytes_per_second"),
    "nvlink_in": ("gpu", "nvlink_rx_bytes_per_second"),
    "nvlink_out": ("gpu", "nvlink_tx_bytes_per_second"),
    "busiest_cpu": ("tree", "busiest_cpu_percent"),
    "cpu": ("tree", "cpu_percent"),
    "loader_workers": ("tree", "loader_workers"),
    "loader_cpu": ("tree", "loader_cpu_percent"),
    "read_rate": ("tree", "read_bytes_per_second"),
    "input_rate": ("tree", "input_bytes_per_second"),
    "blocked": ("tree", "blocked_processes"),
    "network_rate": ("host", "network_receive_bytes_per_second"),
}
"""Maps a mean's name to whose figure it is (GPU, command or machine) and the figure's field."""
OF_A_WORKING_GPU = ("clock_mhz", "clock_most")
"""Means over only the samples in which the GPU worked, because an idle GPU lowers its clocks."""


class Work:
    """Means over some samples of a GPU. Shares are percentages; None means that no source reports
    the value.

    CPU percentages are per core: 400 means four full cores. There must be at least one sample.
    """

    def __init__(self, rows: Sequence[Moment]) -> None:
        self.rows = rows
        self.working_rows = [row for row in rows if not is_quiet(row.gpu)]
        # Only the samples of a machine without a GPU have no utilisation, because `GpuRun` leaves
        # out those in which a GPU does not report it.
        uses = [or_zero(row.gpu.utilization_percent) for row in rows]
        self.utilization = fmean(uses)
        self.utilization_p5, self.utilization_p95 = percentile(uses, 5), percentile(uses, 95)
        self.highest_mhz = highest(row.gpu.clock_sm_mhz for row in self.working_rows)
        self.quiet_share = 100 - len(self.working_rows) / len(rows) * 100

    def __getattr__(self, name: str) -> float | None:
        """The mean of a figure in `MEANS` over the samples that contain it; None if none does."""
        if name not in MEANS:
            raise AttributeError(name)
        whose, field = MEANS[name]
        rows = self.working_rows if name in OF_A_WORKING_GPU else self.rows
        parts = (row.gpu if whose == "gpu" else getattr(row.sample, whose) for row in rows)
        # A sample may lack the command or the machine.
        value = mean(getattr(part, field) for part in parts if part is not None)
        # The next access finds the value in the instance and does not call this method again.
        self.__dict__[name] = value
        return value

    @cached_property
    def reasons(self) -> dict[str, float]:
        """Throttle reason -> percentage of samples with work in which it was active."""
        counts: Counter[str] = Counter()
        for row in self.working_rows:
            counts.update(row.gpu.throttle_reasons or ())
        return {name: counts[name] / len(self.working_rows) * 100 for name in sorted(counts)}

    @property
    def power_share(self) -> float | None:
        """The power draw in percent of the power limit; None if unknown."""
        return percent(self.power_watts, self.power_limit)

    @property
    def kernel_power(self) -> float | None:
        """How much more power than an idle card the GPU draws while kernels run, in percent of the
        power limit; None if unknown."""
        if self.power_share is None or not self.utilization:
            return None
        return (self.power_share - IDLE_POWER) / self.utilization * 100

    @property
    def clock_share(self) -> float | None:
        """The SM clock in percent of its maximum over the samples with work or, where no source
        reports the maximum (`nvidia-smi dmon`), of the highest clock in the run."""
        return percent(self.clock_mhz, self.clock_most or self.highest_mhz)

    @property
    def pcie_rate(self) -> float | None:
        """The PCIe traffic of both directions together, in bytes per second; None if unknown."""
        return None if self.pcie_in is None else self.pcie_in + or_zero(self.pcie_out)

    @property
    def link_rate(self) -> float | None:
        """The NVLink traffic of both directions together, in bytes per second; None if unknown."""
        return None if self.nvlink_in is None else self.nvlink_in + or_zero(self.nvlink_out)

    @property
    def workers(self) -> float:
        """The mean number of loader workers; 0 if unknown."""
        return or_zero(self.loader_workers)

    @property
    def worker_cpu(self) -> float | None:
        """The mean CPU use of a loader worker, in percent of a core; None if there are none."""
        return None if not self.workers else or_zero(self.loader_cpu) / self.workers


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values; None if none is known.

    >>> mean([1, None, 3]), mean([None])
    (2.0, None)
    """
    figures = [value for value in values if value is not None]
    return sum(figures) / len(figures) if figures else None


N = TypeVar("N", int, float)


def highest(values: Iterable[N | None]) -> N | None:
    """The highest of the known values; None if none is known.

    >>> highest([1, None, 3]), highest([None])
    (3, None)
    """
    return max((value for value in values if value is not None), default=None)


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that is at least as large as `share` percent of them (nearest rank).

    >>> percentile([1, 2, 3, 10], 5), percentile([1, 2, 3, 10], 95)
    (1, 10)
    """
    order = sorted(values)
    return order[max(math.ceil(len(order) * share / 100), 1) - 1]


def or_zero(value: float | None) -> float:
    """The value, or 0 if it is unknown."""
    return 0.0 if value is None else value


def is_quiet(gpu: GpuSample) -> bool:
    """Whether at most a stray kernel ran; false if the utilisation is unknown, because the GPU may
    have been working."""
    return gpu.utilization_percent is not None and gpu.utilization_percent <= QUIET


def percent(part: float | None, whole: float | None) -> float | None:
    """The part in percent of the whole; None if one of them is unknown, or the whole is 0.

    >>> percent(3, 4), percent(None, 4), percent(3, 0)
    (75.0, None, None)
    """
    return None if part is None or not whole else part / whole * 100


def at_least(value: float | None, mark: float) -> bool:
    """Whether a figure is known and at least as high as the threshold."""
    return value is not None and value >= mark


def below(value: float | None, mark: float) -> bool:
    """Whether a figure is known and below the threshold."""
    return value is not None and value < mark
