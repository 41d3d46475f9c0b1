"""Means over some samples of a GPU, computed only when needed. Pure functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from statistics import fmean
from typing import Any

from gpusetup.monitor.documents import GpuSample, HostSample, Sample, TreeSample
from gpusetup.monitor.marks import QUIET


class Moment:
    """One sample of a GPU, with what the command's processes and the machine did at that time."""

    __slots__ = ("gpu", "host", "phase", "seconds", "tree")

    def __init__(self, gpu: GpuSample, sample: Sample) -> None:
        self.gpu = gpu
        self.tree = sample.tree
        self.host = sample.host
        self.seconds = sample.seconds
        self.phase = ""


Figure = Callable[[Moment], float | None]
"""Reads a figure from one moment; returns None if no source reported it."""


class Mean:
    """An attribute that computes the mean of a figure over the samples that contain it; None if
    none of them does.

    `running`: whether to use only the samples in which the GPU worked.
    """

    def __init__(self, figure: Figure, *, running: bool = False) -> None:
        self.figure = figure
        self.running = running

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, work: Work, owner: type) -> float | None:
        rows = work.running if self.running else work.rows
        value = mean(map(self.figure, rows))
        # The next access finds the value in the instance and does not call this method again.
        work.__dict__[self.name] = value
        return value


def of_gpu(figure: Callable[[GpuSample], float | None], *, running: bool = False) -> Mean:
    """The mean of a figure about the GPU, over all samples or only those in which it worked
    (`running`)."""

    def figure_of(row: Moment) -> float | None:
        # Each moment is about one GPU.
        return figure(row.gpu)

    return Mean(figure_of, running=running)


def of_tree(figure: Callable[[TreeSample], float | None]) -> Mean:
    """The mean of a figure about the command's processes, over the samples that contain it."""

    def figure_of(row: Moment) -> float | None:
        # The first sample has no figures of processes, because a rate needs two readings.
        if row.tree is None:
            return None
        return figure(row.tree)

    return Mean(figure_of)


def of_host(figure: Callable[[HostSample], float | None]) -> Mean:
    """The mean of a figure about the machine, over the samples that contain it."""

    def figure_of(row: Moment) -> float | None:
        # Samples from a log of nvidia-smi contain no figures of the machine.
        if row.host is None:
            return None
        return figure(row.host)

    return Mean(figure_of)


class Work:
    """Means over some samples of a GPU. Shares are percentages; None means that no source reports
    the value.

    CPU percentages are per core: 400 means four full cores.
    """

    memory_busy = of_gpu(lambda gpu: gpu.memory_busy_percent)
    power_watts = of_gpu(lambda gpu: gpu.power_watts)
    clock_mhz = of_gpu(lambda gpu: gpu.clock_sm_mhz, running=True)
    clock_most = of_gpu(lambda gpu: gpu.clock_sm_max_mhz, running=True)
    power_limit = of_gpu(lambda gpu: gpu.power_limit_watts)
    pcie_in = of_gpu(lambda gpu: gpu.pcie_rx_bytes_per_second)
    pcie_out = of_gpu(lambda gpu: gpu.pcie_tx_bytes_per_second)
    pcie_limit = of_gpu(lambda gpu: gpu.pcie_limit_bytes_per_second)
    nvlink_in = of_gpu(lambda gpu: gpu.nvlink_rx_bytes_per_second)
    nvlink_out = of_gpu(lambda gpu: gpu.nvlink_tx_bytes_per_second)
    busiest_cpu = of_tree(lambda tree: tree.busiest_cpu_percent)
    """The CPU use of the busiest process that is not a loader worker; None if no command was
    watched."""
    cpu = of_tree(lambda tree: tree.cpu_percent)
    """The CPU use of all the command's processes together."""
    cpu_wait = of_tree(lambda tree: tree.cpu_wait_percent)
    """How long the command's threads waited for a core, in percent of one core: 100 is one thread
    that always waits."""
    loader_workers = of_tree(lambda tree: tree.loader_workers)
    loader_cpu = of_tree(lambda tree: tree.loader_cpu_percent)
    read_rate = of_tree(lambda tree: tree.read_bytes_per_second)
    input_rate = of_tree(lambda tree: tree.input_bytes_per_second)
    write_rate = of_tree(lambda tree: tree.write_bytes_per_second)
    blocked = of_tree(lambda tree: tree.blocked_processes)
    host_cpu = of_host(lambda host: host.cpu_percent)
    host_cores = of_host(lambda host: host.cores)
    network_rate = of_host(lambda host: host.network_receive_bytes_per_second)
    disk_read_rate = of_host(lambda host: host.disk_read_bytes_per_second)
    disk_write_rate = of_host(lambda host: host.disk_write_bytes_per_second)

    def __init__(self, rows: Sequence[Moment], highest_clock: float | None = None) -> None:
        """The means over these samples; `highest_clock` is the highest SM clock in MHz that a card
        of this model reached in the run."""
        self.rows = rows
        self.highest_clock = highest_clock
        self.samples = len(rows)
        # A sample with unknown utilisation does not count as quiet, because the GPU may have been
        # working.
        self.running = [row for row in rows if not is_quiet(row.gpu)]
        uses = [or_zero(row.gpu.utilization_percent) for row in rows]
        self.utilization = fmean(uses)
        # Leave out the lowest and the highest 5 %, because a run's first and last samples are
        # unusual.
        self.utilization_p5 = percentile(uses, 5)
        self.utilization_p95 = percentile(uses, 95)
        self.utilization_apart = self.utilization_p95 - self.utilization_p5
        running_share = len(self.running) / len(rows) * 100
        self.quiet_share = 100 - running_share

    @cached_property
    def reasons(self) -> dict[str, float]:
        """Maps each throttle reason to the percentage of samples with work in which it was
        active."""
        counts: Counter[str] = Counter()
        for row in self.running:
            # Count each reason separately, because a sample may have several.
            reasons = row.gpu.throttle_reasons or ()
            counts.update(reasons)
        shares = {}
        for name in sorted(counts):
            part = counts[name] / len(self.running)
            shares[name] = part * 100
        return shares

    @property
    def power_share(self) -> float | None:
        """The power draw in percent of the power limit or, if the limit is unknown, of the rated
        power; None if unknown."""
        name = self.rows[0].gpu.name
        # Laptops and old drivers report no limit.
        limit = self.power_limit or rated_watts(name)
        return percent(self.power_watts, limit)

    @property
    def clock_share(self) -> float | None:
        """The SM clock in percent of its maximum, over the samples with work; None if unknown.

        If no source reports the maximum, the highest clock of the run is used.
        """
        if self.clock_most:
            return percent(self.clock_mhz, self.clock_most)
        # `nvidia-smi dmon` reports the clock but not its maximum.
        clocks = [row.gpu.clock_sm_mhz for row in self.running]
        highest_measured = highest([*clocks, self.highest_clock])
        return percent(self.clock_mhz, highest_measured)

    @property
    def pcie_rate(self) -> float | None:
        """The PCIe traffic of both directions together, in bytes per second; None if unknown."""
        to_card = self.pcie_in
        from_card = self.pcie_out
        return sum_of_known(to_card, from_card)

    @property
    def pcie_fuller_rate(self) -> float:
        """The PCIe traffic of the busier direction, in bytes per second; 0 if unknown."""
        to_card = or_zero(self.pcie_in)
        from_card = or_zero(self.pcie_out)
        return max(to_card, from_card)

    @property
    def pcie_one_way_share(self) -> float | None:
        """The PCIe traffic of the busier direction, in percent of what the link can carry in one
        direction; None if unknown."""
        return percent(self.pcie_fuller_rate, self.pcie_limit)

    @property
    def pcie_share(self) -> float | None:
        """The PCIe traffic of both directions together, in percent of what the link can carry in
        one direction; None if unknown."""
        rate = self.pcie_rate
        limit = self.pcie_limit
        return percent(rate, limit)

    @property
    def link_rate(self) -> float | None:
        """The NVLink traffic of both directions together, in bytes per second; None if unknown."""
        received = self.nvlink_in
        sent = self.nvlink_out
        return sum_of_known(received, sent)

    @property
    def workers(self) -> float:
        return or_zero(self.loader_workers)

    @property
    def worker_cpu(self) -> float | None:
        """The mean CPU use of a loader worker, in percent of a core; None if there are no workers
        or they used no CPU."""
        worker_count = self.workers
        loader_cpu = self.loader_cpu
        if not worker_count or not loader_cpu:
            return None
        return loader_cpu / worker_count

    @property
    def cpu_wait_share(self) -> float | None:
        """How long the command waited for a core, in percent of its waiting and computing time
        together.

        For example, 50 means that its threads waited as long as they computed. None if either is
        unknown, or if both are 0.
        """
        waited = self.cpu_wait
        computed = self.cpu
        # Only Linux reports the waiting time, and older recordings lack it.
        if waited is None or computed is None:
            return None
        return percent(waited, waited + computed)

    @property
    def helpers_cpu(self) -> float | None:
        """The CPU use of the command's processes except the busiest one and the loader workers, in
        percent of a core; None if no command was watched."""
        if self.cpu is None:
            return None
        busiest_cpu = or_zero(self.busiest_cpu)
        loader_cpu = or_zero(self.loader_cpu)
        return self.cpu - busiest_cpu - loader_cpu

    @property
    def host_share(self) -> float | None:
        """How busy the machine's CPU is, in percent of all its cores; None if unknown."""
        busy = self.host_cpu
        cores = self.host_cores
        if not busy or not cores:
            return None
        return busy / cores


def work_of(rows: Sequence[Moment], highest_clock: float | None = None) -> Work | None:
    """The means over these samples; None if there are none."""
    if not rows:
        return None
    return Work(rows, highest_clock)


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values; None if all are unknown.

    >>> mean([1, None, 3]), mean([None])
    (2.0, None)
    """
    figures = [value for value in values if value is not None]
    if not figures:
        return None
    return sum(figures) / len(figures)


def highest(values: Iterable[Any]) -> Any:
    """The largest of the known values; None if all are unknown.

    >>> highest([1, None, 3]), highest([None])
    (3, None)
    """
    figures = []
    for value in values:
        if value is not None:
            figures.append(value)
    return max(figures, default=None)


def percentile(values: Iterable[float], share: float) -> float:
    """The percentile of these values by the nearest-rank method: the smallest value that is at
    least as large as `share` percent of them.

    >>> percentile([1, 2, 3, 10], 5), percentile([1, 2, 3, 10], 95)
    (1, 10)
    """
    order = sorted(values)
    # Round up (nearest rank): the 95th percentile of 10 values is the tenth.
    exact_rank = len(order) * share / 100
    rank = math.ceil(exact_rank)
    position = max(rank, 1) - 1
    return order[position]


def or_zero(value: float | None) -> float:
    """The value, or 0 if it is None."""
    if value is None:
        return 0.0
    return value


def sum_of_known(first: float | None, second: float | None) -> float | None:
    """The sum of two values, where None counts as 0; None if both are None.

    >>> sum_of_known(1.0, None), sum_of_known(None, None)
    (1.0, None)
    """
    neither_is_known = first is None and second is None
    if neither_is_known:
        return None
    known_first = or_zero(first)
    known_second = or_zero(second)
    return known_first + known_second


def is_quiet(gpu: GpuSample) -> bool:
    """Whether at most a stray kernel ran (utilisation up to 3 %); false if the utilisation is
    unknown."""
    if gpu.utilization_percent is None:
        return False
    return gpu.utilization_percent <= QUIET


def percent(part: float | None, whole: float | None) -> float | None:
    """
    >>> percent(3, 4), percent(None, 4), percent(3, 0)
    (75.0, None, None)
    """
    if part is None or not whole:
        return None
    return part / whole * 100


@lru_cache(maxsize=64)
def rated_watts(name: str | None) -> float | None:
    """The rated power, in watts, of the GPU model with this name; None if the catalog lacks it or
    lists several ratings for it.

    >>> rated_watts("Tesla T4"), rated_watts("NVIDIA Graphics Device"), rated_watts(None)
    (70.0, None, None)
    """
    if not name:
        return None
    from gpusetup.catalog.file import load_catalog
    from gpusetup.catalog.gpus import rows_or_none, tokens

    # A laptop's rating is unknown, because laptop makers choose different power ratings for the
    # same chip.
    if "laptop" in tokens(name):
        return None
    # A name may fit several cards (SXM and PCIe); the result is clear only if all of them have the
    # same rating.
    rows = rows_or_none(name, load_catalog().gpus)
    ratings = {row.tdp_w for row in rows}
    if len(ratings) != 1:
        return None
    watts = ratings.pop()
    return None if watts is None else float(watts)


def at_least(value: float | None, mark: float) -> bool:
    """Whether a figure is known and at least as high as the threshold."""
    # An unknown value counts as false.
    if value is None:
        return False
    return value >= mark


def below(value: float | None, mark: float) -> bool:
    """Whether a figure is known and below the threshold."""
    # An unknown value counts as false.
    if value is None:
        return False
    return value < mark
