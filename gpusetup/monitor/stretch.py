"""One GPU's work sample by sample, in few slices of the run, so that a part can be left out.

A slice keeps its work and its pauses apart. When there are too many, neighbours become one: a run
of any length has at most `MOST_SLICES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.monitor.facts import Work
from gpusetup.monitor.histogram import Histogram, Mean
from gpusetup.monitor.marks import BLIP, LOW, PAUSE, QUIET, WARM_FULL, WARM_LESS, WARM_MOST
from gpusetup.monitor.rated import rated_watts
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
        self._keep("power_watts", gpu.power_watts)
        self._keep("power_share", power_share(gpu))
        self._keep("encoder", gpu.encoder_percent)
        self._keep("decoder", gpu.decoder_percent)
        if not quiet:
            self._keep("sm_active", gpu.sm_active_percent)
            self._keep("clock_share", percent(gpu.clock_sm_mhz, gpu.clock_sm_max_mhz))
            self._keep("clock_mhz", gpu.clock_sm_mhz)
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
        share = host.busy_percent
        if share is None and host.cpu_percent is not None and host.cores:
            share = host.cpu_percent / host.cores
        self._keep("host_share", share)
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


class Pauses:
    """How many there were, and how long."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = self.longest = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)

    def merge(self, other: Pauses) -> None:
        self.count += other.count
        self.seconds += other.seconds
        self.longest = max(self.longest, other.longest)


class Slice:
    """A part of the run, from a second on."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.work = WorkTally()
        self.pause = WorkTally()
        self.pauses = Pauses()

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
        self.pauses.merge(later.pauses)
        return self


class Stretches:
    """The slices of one GPU, and what was before its first and after its last work."""

    def __init__(self) -> None:
        self.slices: list[Slice] = []
        self.work, self.paused, self.pauses = WorkTally(), WorkTally(), Pauses()
        """Of all slices together."""
        self.every = 1
        self.start = WorkTally()
        self.pending = WorkTally()
        self.pending_since: float | None = None
        self.stray: tuple[GpuSample, Sample] | None = None
        """A little work in a pause: what comes next tells whether the pause is over."""
        self.first_work: float | None = None

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        """Work, or quiet that waits to be told a stutter, a pause or the end."""
        if is_quiet(gpu) or self._is_blip(gpu):
            if self.pending_since is None:
                self.pending_since = sample.seconds
            if self.stray is not None:
                self.pending.add(*self.stray)
                self.stray = None
            self.pending.add(gpu, sample)
        elif self._is_stray(gpu, sample):
            self.stray = gpu, sample
        else:
            self._work(gpu, sample)

    def _is_blip(self, gpu: GpuSample) -> bool:
        """Within quiet, next to nothing on a GPU that otherwise works."""
        works = self.pending_since is not None and self._usual() >= LOW.value
        return works and (gpu.utilization_percent or 0.0) < BLIP.value

    def _is_stray(self, gpu: GpuSample, sample: Sample) -> bool:
        """One sample of little work in what is a pause already."""
        if self.stray is not None or self.pending_since is None or self.first_work is None:
            return False
        paused = sample.seconds - self.pending_since >= PAUSE.value
        return paused and (gpu.utilization_percent or 0.0) < self._usual() / 2

    def _usual(self) -> float:
        return self.work.utilization.mean if self.work.samples else 0.0

    def _work(self, gpu: GpuSample, sample: Sample) -> None:
        begun = self.stray or (gpu, sample)
        self._settle(begun[1].seconds)
        if self.first_work is None:
            self.first_work = sample.seconds
        for one in (self.stray, (gpu, sample)):
            if one is not None:
                self._open(one[1].seconds).work.add(*one)
                self.work.add(*one)
        self.stray = None

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
            place = self._open(self.pending_since)
            place.pause.merge(self.pending)
            self.paused.merge(self.pending)
            for pauses in (place.pauses, self.pauses):
                pauses.add(length)
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
        return full if mean < usual * WARM_LESS.value and _steady(levels[full:], usual) else 0

    def parts(self) -> Parts:
        """The warm-up is in neither the work nor the pauses."""
        warm = self.warm_up()
        whole = merged([self.start, self.work, self.paused, self.pending])
        if not warm:
            return Parts(self.work, self.paused, whole, self.pauses, 0.0)
        kept, pauses = self.slices[warm:], Pauses()
        for one in kept:
            pauses.merge(one.pauses)
        work, paused = merged([one.work for one in kept]), merged([one.pause for one in kept])
        return Parts(work, paused, whole, pauses, kept[0].at - self.slices[0].at)


class Parts(NamedTuple):
    work: WorkTally
    paused: WorkTally
    whole: WorkTally
    pauses: Pauses
    warm: float
    """Seconds."""


def _steady(levels: Sequence[float], usual: float) -> bool:
    """What comes and goes is no work after a warm-up: most of it is as usual."""
    low = sum(level < usual * WARM_LESS.value for level in levels)
    return low * 4 <= len(levels)


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


def power_share(gpu: GpuSample) -> float | None:
    return percent(gpu.power_watts, gpu.power_limit_watts or rated_watts(gpu.name))


def is_quiet(gpu: GpuSample) -> bool:
    return gpu.utilization_percent is not None and gpu.utilization_percent <= QUIET.value


def percent(part: float | None, whole: float | None) -> float | None:
    """
    >>> percent(3, 4), percent(None, 4), percent(3, 0)
    (75.0, None, None)
    """
    return part / whole * 100 if part is not None and whole else None
