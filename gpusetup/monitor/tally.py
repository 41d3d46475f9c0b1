"""Folding samples into a summary's figures: memory stays bounded however long one watches.

A histogram keeps a count for each rounded value, so that percentiles need no list of samples;
means and peaks are exact. The same samples in the same order always give the same figures.
"""

from __future__ import annotations

from collections import Counter

from gpusetup.monitor.facts import GpuFacts, RunFacts, Work
from gpusetup.monitor.marks import PAUSE, QUIET
from gpusetup.monitor.values import GpuSample, GpuSummary, Sample, Spread, TreeSample, TreeSummary

QUANTA = {"memory_used_bytes": 16 << 20, "memory_bytes": 16 << 20, "read_bytes_per_second": 1e5}
"""Field -> what percentiles are rounded to; 1 where it is not here."""
GPU_FIELDS = (
    "utilization_percent",
    "memory_busy_percent",
    "memory_used_bytes",
    "temperature_celsius",
    "power_watts",
    "clock_sm_mhz",
)
TREE_FIELDS = ("cpu_percent", "memory_bytes", "read_bytes_per_second", "loader_cpu_percent")


class Histogram:
    """Counts of rounded values.

    >>> some = Histogram()
    >>> for value in (1, 2, 3, 10):
    ...     some.add(value)
    >>> some.mean, some.percentile(5), some.percentile(95), some.peak
    (4.0, 1.0, 10.0, 10.0)
    """

    def __init__(self, quantum: float = 1.0) -> None:
        self.quantum = quantum
        self.counts: Counter[int] = Counter()
        self.count = 0
        self.total = 0.0
        self.peak = 0.0

    def add(self, value: float | None) -> None:
        if value is None:
            return
        self.peak = max(self.peak, float(value)) if self.count else float(value)
        self.counts[round(value / self.quantum)] += 1
        self.count += 1
        self.total += value

    def merge(self, other: Histogram) -> None:
        if not other.count:
            return
        self.peak = max(self.peak, other.peak) if self.count else other.peak
        self.counts.update(other.counts)
        self.count += other.count
        self.total += other.total

    @property
    def mean(self) -> float:
        return self.total / self.count

    def percentile(self, percent: float) -> float:
        """The smallest value with at least so many percent of all at or below it."""
        wanted, seen = percent / 100 * self.count, 0
        for step in sorted(self.counts):
            seen += self.counts[step]
            if seen >= wanted:
                return float(step * self.quantum)
        return self.peak

    def spread(self) -> Spread | None:
        if not self.count:
            return None
        p5, p95 = (min(self.percentile(p), self.peak) for p in (5, 95))
        return Spread(mean=round(self.mean, 2), p5=p5, p95=p95, peak=self.peak)

    def mean_or_none(self) -> float | None:
        return self.mean if self.count else None


class Mean:
    """A sum and a count, of what is told."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.count += 1
            self.total += value

    def merge(self, other: Mean) -> None:
        self.count += other.count
        self.total += other.total

    def value(self) -> float | None:
        return self.total / self.count if self.count else None


class WorkTally:
    """What is summed over the samples of one stretch of a GPU's work."""

    FIELDS = ("memory_busy", "power", "clock", "busiest", "worker", "read", "input")

    def __init__(self) -> None:
        self.utilization = Histogram()
        self.of = {name: Mean() for name in self.FIELDS}
        self.reasons: Counter[str] = Counter()
        self.quiet = 0
        self.workers = 0

    def add(self, gpu: GpuSample, tree: TreeSample | None) -> None:
        self.utilization.add(gpu.utilization_percent)
        self.of["memory_busy"].add(gpu.memory_busy_percent)
        self.of["power"].add(percent(gpu.power_watts, gpu.power_limit_watts))
        self.of["clock"].add(percent(gpu.clock_sm_mhz, gpu.clock_sm_max_mhz))
        self.reasons.update(gpu.throttle_reasons or ())
        self.quiet += is_quiet(gpu)
        if tree is not None:
            self._add_tree(tree)

    def _add_tree(self, tree: TreeSample) -> None:
        self.of["busiest"].add(tree.busiest_cpu_percent)
        self.of["read"].add(tree.read_bytes_per_second)
        self.of["input"].add(tree.input_bytes_per_second)
        self.workers += tree.loader_workers
        if tree.loader_workers:
            self.of["worker"].add(tree.loader_cpu_percent / tree.loader_workers)

    def merge(self, other: WorkTally) -> None:
        self.utilization.merge(other.utilization)
        for name, mean in other.of.items():
            self.of[name].merge(mean)
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
        mean = {name: mean.value() for name, mean in self.of.items()}
        return Work(
            samples=count,
            utilization=self.utilization.mean,
            utilization_p5=self.utilization.percentile(5),
            utilization_p95=self.utilization.percentile(95),
            quiet_share=self.quiet / count * 100,
            memory_busy=mean["memory_busy"],
            power_share=mean["power"],
            clock_share=mean["clock"],
            reasons={name: on / count * 100 for name, on in sorted(self.reasons.items())},
            busiest_cpu=mean["busiest"],
            workers=self.workers / count,
            worker_cpu=mean["worker"],
            read_rate=mean["read"],
            input_rate=mean["input"],
        )


def merged(*tallies: WorkTally) -> WorkTally:
    whole = WorkTally()
    for tally in tallies:
        whole.merge(tally)
    return whole


class GpuTally:
    """Everything about one GPU, sample by sample."""

    def __init__(self, first: GpuSample) -> None:
        self.first = first
        self.samples = 0
        self.of = {name: Histogram(QUANTA.get(name, 1.0)) for name in GPU_FIELDS}
        self.memory_share = Histogram(0.1)
        self.total_bytes: int | None = None
        self.busy = WorkTally()
        self.pauses = WorkTally()
        self.start = WorkTally()
        self.pending = WorkTally()
        self.pending_since: float | None = None
        self.pause_count = 0
        self.longest_pause = 0.0
        self.first_work: float | None = None
        self.has_process: bool | None = None
        self.lost_at: str | None = None

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        self.samples += 1
        for name, histogram in self.of.items():
            histogram.add(getattr(gpu, name))
        self.total_bytes = gpu.memory_total_bytes or self.total_bytes
        self.memory_share.add(percent(gpu.memory_used_bytes, gpu.memory_total_bytes))
        if gpu.processes is not None:
            self.has_process = bool(gpu.processes) or bool(self.has_process)
        self.lost_at = (self.lost_at or sample.at) if gpu.lost else None
        if gpu.utilization_percent is not None:
            self._sort(gpu, sample)

    def _sort(self, gpu: GpuSample, sample: Sample) -> None:
        """Work, or quiet that waits to be told a stutter, a pause or the end."""
        if is_quiet(gpu):
            if self.pending_since is None:
                self.pending_since = sample.seconds
            self.pending.add(gpu, sample.tree)
            return
        self._settle(sample.seconds)
        if self.first_work is None:
            self.first_work = sample.seconds
        self.busy.add(gpu, sample.tree)

    def _settle(self, now: float) -> None:
        """Work came after quiet: it was the start-up, a stutter or a pause."""
        if self.pending_since is None:
            return
        length = now - self.pending_since
        if self.first_work is None:
            self.start.merge(self.pending)
        elif length < PAUSE.value:
            self.busy.merge(self.pending)
        else:
            self.pauses.merge(self.pending)
            self.pause_count += 1
            self.longest_pause = max(self.longest_pause, length)
        self.pending, self.pending_since = WorkTally(), None

    def facts(self) -> GpuFacts:
        body = merged(self.busy, self.pauses)
        told = self.of["utilization_percent"]
        memory, heat = self.memory_share, self.of["temperature_celsius"]
        return GpuFacts(
            label=self.first.label,
            name=self.first.name,
            samples=self.samples,
            utilization=told.mean_or_none(),
            utilization_p95=told.percentile(95) if told.count else None,
            work=self.busy.work(),
            body=body.work(),
            whole=merged(self.start, body, self.pending).work(),
            pauses=self.pause_count,
            pause_share=self.pauses.samples / max(1, body.samples) * 100,
            longest_pause_seconds=self.longest_pause,
            startup_seconds=self.first_work or 0.0,
            memory_p95_share=memory.percentile(95) if memory.count else None,
            memory_peak_share=memory.peak if memory.count else None,
            temperature_p95=heat.percentile(95) if heat.count else None,
            has_process=self.has_process,
            lost_at=self.lost_at,
        )

    def summary(self) -> GpuSummary:
        work = self.busy.work()
        return GpuSummary(
            index=self.first.index,
            mig_index=self.first.mig_index,
            name=self.first.name,
            uuid=self.first.uuid,
            samples=self.samples,
            memory_total_bytes=self.total_bytes,
            throttled={k: round(v / 100, 4) for k, v in (work.reasons if work else {}).items()},
            working_share=round(self.busy.samples / self.samples, 4) if self.samples else None,
            lost_at=self.lost_at,
            **{name: histogram.spread() for name, histogram in self.of.items()},
        )


class Tally:
    """Everything about one run."""

    def __init__(self) -> None:
        self.samples = 0
        self.seconds = 0.0
        self.gpus: dict[tuple[int, int | None], GpuTally] = {}
        self.tree = {name: Histogram(QUANTA.get(name, 1.0)) for name in TREE_FIELDS}
        self.most_workers = 0
        self.cores: int | None = None

    def add(self, sample: Sample) -> None:
        self.samples += 1
        self.seconds = sample.seconds
        for gpu in sample.gpus:
            place = (gpu.index, gpu.mig_index)
            if place not in self.gpus:
                self.gpus[place] = GpuTally(gpu)
            self.gpus[place].add(gpu, sample)
        if sample.tree is not None:
            self.most_workers = max(self.most_workers, sample.tree.loader_workers)
            self.cores = sample.tree.cores
            for name, histogram in self.tree.items():
                histogram.add(getattr(sample.tree, name))

    def facts(self, command: tuple[str, ...] | None = None) -> RunFacts:
        return RunFacts(
            samples=self.samples,
            seconds=self.seconds,
            gpus=tuple(tally.facts() for tally in self.gpus.values()),
            cores=self.cores,
            cpu=self.tree["cpu_percent"].mean_or_none(),
            command=command,
        )

    def tree_summary(self) -> TreeSummary | None:
        told = {name: histogram.spread() for name, histogram in self.tree.items()}
        if told["cpu_percent"] is None or told["memory_bytes"] is None:
            return None
        return TreeSummary(
            cpu_percent=told["cpu_percent"],
            memory_bytes=told["memory_bytes"],
            read_bytes_per_second=told["read_bytes_per_second"],
            loader_workers=self.most_workers,
            loader_cpu_percent=told["loader_cpu_percent"] if self.most_workers else None,
            cores=self.cores,
        )


def is_quiet(gpu: GpuSample) -> bool:
    return gpu.utilization_percent is not None and gpu.utilization_percent <= QUIET.value


def percent(part: float | None, whole: float | None) -> float | None:
    """
    >>> percent(3, 4), percent(None, 4), percent(3, 0)
    (75.0, None, None)
    """
    return part / whole * 100 if part is not None and whole else None
