"""One GPU's work sample by sample, in few slices of the run, so that a part can be left out.

A slice keeps its work and its pauses apart. When there are too many, neighbours become one: a run
of any length has at most `MOST_SLICES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpusetup.monitor.facts import Work
from gpusetup.monitor.histogram import Histogram, Mean
from gpusetup.monitor.marks import PAUSE, QUIET, WARM_FULL, WARM_LESS, WARM_MOST
from gpusetup.monitor.values import GpuSample, HostSample, Sample, TreeSample

MOST_SLICES = 64


class WorkTally:
    """What is summed over the samples of one stretch of a GPU's work."""

    def __init__(self) -> None:
        self.utilization = Histogram()
        self.of: dict[str, Mean] = {}
        self.reasons: Counter[str] = Counter()
        self.quiet = 0
        self.workers = 0

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        quiet = is_quiet(gpu)
        self.utilization.add(gpu.utilization_percent)
        self.quiet += quiet
        self._keep("memory_busy", gpu.memory_busy_percent)
        self._keep("power_share", percent(gpu.power_watts, gpu.power_limit_watts))
        if not quiet:
            self._keep("sm_active", gpu.sm_active_percent)
            self._keep("clock_share", percent(gpu.clock_sm_mhz, gpu.clock_sm_max_mhz))
            self.reasons.update(gpu.throttle_reasons or ())
        self._add_links(gpu)
        if sample.tree is not None:
            self._add_tree(sample.tree)
        if sample.host is not None:
            self._add_host(sample.host)

    def _keep(self, name: str, value: float | None) -> None:
        if value is not None:
            self.of.setdefault(name, Mean()).add(value)

    def _add_links(self, gpu: GpuSample) -> None:
        pcie = both(gpu.pcie_rx_bytes_per_second, gpu.pcie_tx_bytes_per_second)
        self._keep("pcie_rate", pcie)
        self._keep("pcie_share", percent(pcie, gpu.pcie_limit_bytes_per_second))
        self._keep(
            "link_rate", both(gpu.nvlink_rx_bytes_per_second, gpu.nvlink_tx_bytes_per_second)
        )

    def _add_tree(self, tree: TreeSample) -> None:
        self._keep("busiest_cpu", tree.busiest_cpu_percent)
        self._keep("cpu", tree.cpu_percent)
        rest = tree.cpu_percent - tree.busiest_cpu_percent - tree.loader_cpu_percent
        self._keep("helpers_cpu", max(0.0, rest))
        self._keep("read_rate", tree.read_bytes_per_second)
        self._keep("input_rate", tree.input_bytes_per_second)
        self._keep("write_rate", tree.write_bytes_per_second)
        self._keep("blocked", tree.blocked_processes)
        self._keep("held_back", tree.held_back_percent)
        self.workers += tree.loader_workers
        if tree.loader_workers:
            self._keep("worker_cpu", tree.loader_cpu_percent / tree.loader_workers)

    def _add_host(self, host: HostSample) -> None:
        self._keep("host_cpu", host.cpu_percent)
        self._keep("network_rate", host.network_receive_bytes_per_second)
        self._keep("disk_read_rate", host.disk_read_bytes_per_second)
        self._keep("disk_write_rate", host.disk_write_bytes_per_second)

    def merge(self, other: WorkTally) -> None:
        self.utilization.merge(other.utilization)
        for name, mean in other.of.items():
            self.of.setdefault(name, Mean()).merge(mean)
        self.reasons.update(other.reasons)
        self.quiet += other.quiet
        self.workers += other.workers

    @property
    def samples(self) -> int:
        return self.utilization.count

    def work(self) -> Work | None:
        """None where there is nothing in it."""
        count = self.samples
        if not count:
            return None
        loud = max(1, count - self.quiet)
        return Work(
            samples=count,
            utilization=self.utilization.mean,
            utilization_p5=self.utilization.percentile(5),
            utilization_p95=self.utilization.percentile(95),
            quiet_share=self.quiet / count * 100,
            reasons={name: on / loud * 100 for name, on in sorted(self.reasons.items())},
            workers=self.workers / count,
            **{name: mean.value() for name, mean in self.of.items()},
        )


def merged(tallies: Sequence[WorkTally]) -> WorkTally:
    whole = WorkTally()
    for tally in tallies:
        whole.merge(tally)
    return whole


class Slice:
    """A part of the run, from a second on."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.work = WorkTally()
        self.pause = WorkTally()

    @property
    def samples(self) -> int:
        return self.work.samples + self.pause.samples

    @property
    def level(self) -> float:
        """Mean utilisation, its pauses counted."""
        total = self.work.utilization.total + self.pause.utilization.total
        return total / max(1, self.samples)

    def merge(self, later: Slice) -> Slice:
        self.work.merge(later.work)
        self.pause.merge(later.pause)
        return self


class Stretches:
    """The slices of one GPU, and what was before its first and after its last work."""

    def __init__(self) -> None:
        self.slices: list[Slice] = []
        self.work, self.pauses = WorkTally(), WorkTally()
        """Of all slices together."""
        self.every = 1
        self.start = WorkTally()
        self.pending = WorkTally()
        self.pending_since: float | None = None
        self.pause_count = 0
        self.longest_pause = 0.0
        self.first_work: float | None = None

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        """Work, or quiet that waits to be told a stutter, a pause or the end."""
        if is_quiet(gpu):
            if self.pending_since is None:
                self.pending_since = sample.seconds
            self.pending.add(gpu, sample)
            return
        self._settle(sample.seconds)
        if self.first_work is None:
            self.first_work = sample.seconds
        self._open(sample.seconds).work.add(gpu, sample)
        self.work.add(gpu, sample)

    def _settle(self, now: float) -> None:
        """Work came after quiet: it was the start-up, a stutter or a pause."""
        if self.pending_since is None:
            return
        length = now - self.pending_since
        if self.first_work is None:
            self.start.merge(self.pending)
        elif length < PAUSE.value:
            self._open(self.pending_since).work.merge(self.pending)
            self.work.merge(self.pending)
        else:
            self._open(self.pending_since).pause.merge(self.pending)
            self.pauses.merge(self.pending)
            self.pause_count += 1
            self.longest_pause = max(self.longest_pause, length)
        self.pending, self.pending_since = WorkTally(), None

    def _open(self, at: float) -> Slice:
        """The slice that takes what comes now."""
        if self.slices and self.slices[-1].samples < self.every:
            return self.slices[-1]
        if len(self.slices) >= MOST_SLICES:
            pairs = zip(self.slices[::2], self.slices[1::2], strict=True)
            self.slices = [first.merge(second) for first, second in pairs]
            self.every *= 2
        self.slices.append(Slice(at))
        return self.slices[-1]

    def warm_up(self) -> int:
        """How many of the first slices are a warm-up: much less work than what came later."""
        levels = [one.level for one in self.slices]
        usual = median(levels[len(levels) // 2 :])
        full = next(
            (n for n, pair in enumerate(pairs_of(levels)) if min(pair) >= usual * WARM_FULL.value),
            0,
        )
        first = self.slices[:full]
        count = sum(one.samples for one in first)
        most = WARM_MOST.value / 100 * sum(one.samples for one in self.slices)
        if not 3 <= count <= most:
            return 0
        mean = sum(one.level * one.samples for one in first) / count
        return full if mean < usual * WARM_LESS.value else 0

    def parts(self) -> Parts:
        """Work, pauses, everything, and how long the warm-up took, which is in neither."""
        warm = self.warm_up()
        whole = merged([self.start, self.work, self.pauses, self.pending])
        if not warm:
            return self.work, self.pauses, whole, 0.0
        kept = self.slices[warm:]
        work, pause = merged([one.work for one in kept]), merged([one.pause for one in kept])
        return work, pause, whole, kept[0].at - self.slices[0].at


Parts = tuple[WorkTally, WorkTally, WorkTally, float]


def pairs_of(levels: Sequence[float]) -> list[tuple[float, float]]:
    """Each with the one behind it; the last alone."""
    return list(zip(levels, [*levels[1:], *levels[-1:]], strict=True))


def median(values: Sequence[float]) -> float:
    ranked = sorted(values)
    return ranked[len(ranked) // 2] if ranked else 0.0


def both(first: float | None, second: float | None) -> float | None:
    """
    >>> both(1.0, None), both(None, None)
    (1.0, None)
    """
    return None if first is None and second is None else (first or 0.0) + (second or 0.0)


def is_quiet(gpu: GpuSample) -> bool:
    return gpu.utilization_percent is not None and gpu.utilization_percent <= QUIET.value


def percent(part: float | None, whole: float | None) -> float | None:
    """
    >>> percent(3, 4), percent(None, 4), percent(3, 0)
    (75.0, None, None)
    """
    return part / whole * 100 if part is not None and whole else None
