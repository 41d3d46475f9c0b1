"""Folding samples into a summary's figures: memory stays bounded however long one watches.

A histogram keeps a count for each rounded value, so that percentiles need no list of samples;
means and peaks are exact. The same samples in the same order always give the same figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from gpusetup.monitor.histogram import Histogram, Mean
from gpusetup.monitor.marks import GROWN, MEMORY_FULL, MEMORY_GONE, QUIET
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.rated import rated_watts
from gpusetup.monitor.stretch import Parts, Stretches
from gpusetup.monitor.tail import Tail
from gpusetup.monitor.values import (
    GpuSample,
    GpuSummary,
    ProcessUse,
    Sample,
    Spread,
    TreeSummary,
)
from gpusetup.monitor.work import percent

QUANTA = {"memory_used_bytes": 16 << 20, "memory_bytes": 16 << 20, "read_bytes_per_second": 1e5}
"""Field -> what percentiles are rounded to; 1 where it is not here."""
GPU_FIELDS = (
    *("utilization_percent", "memory_busy_percent", "memory_used_bytes"),
    *("temperature_celsius", "power_watts", "clock_sm_mhz"),
)
MOST_OF_TREE = ("loader_workers", "gpu_processes", "collective_threads")
TREE_FIELDS = ("cpu_percent", "memory_bytes", "read_bytes_per_second", "loader_cpu_percent")
LAST = 5
"""Samples of memory that are the end."""
MOST_MARKS = 64
MOST_HOLDERS = 64


class MemoryTally(Histogram):
    """The share of a GPU's memory over the run: its spread, its end, and whether it grew."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self._last: deque[float] = deque(maxlen=LAST)
        self._fell_from: float | None = None
        self._marks: list[float] = []
        """Some of all values, evenly; of neighbours the later one stays."""
        self._every = 1

    def add(self, value: float | None) -> None:
        if value is None:
            return
        super().add(value)
        if self._last and value < MEMORY_GONE and max(self._last) >= MEMORY_FULL:
            self._fell_from = max(self._last)
        self._last.append(value)
        if self.count % self._every == 0:
            self._marks.append(value)
            if len(self._marks) >= MOST_MARKS:
                self._marks, self._every = self._marks[1::2], self._every * 2

    @property
    def last(self) -> float | None:
        """The highest of the last seconds, or of those before it fell to nothing."""
        return self._fell_from or max(self._last, default=None)

    @property
    def fell(self) -> bool:
        """From full to nothing, as where a process ends by it."""
        return self._fell_from is not None

    @property
    def grew(self) -> bool:
        """By much, and in each quarter of the time."""
        count = len(self._marks)
        if count < 8:
            return False
        quarters = [self._marks[min(count - 1, n * count // 4)] for n in range(5)]
        steps = [later - sooner for sooner, later in pairwise(quarters)]
        whole = quarters[-1] - quarters[0]
        return whole >= GROWN and min(steps) >= whole / 12


class Holders:
    """Who was seen on a GPU."""

    def __init__(self) -> None:
        self.told = self.computes = self.draws = False
        self.pids: dict[int, str] = {}
        """Those that compute, and their names."""
        self.drawing: set[str] = set()
        self._use: dict[int, Mean] = {}

    def add(self, processes: tuple[ProcessUse, ...] | None) -> None:
        self.told |= processes is not None
        for one in processes or ():
            drawing = is_display(one)
            self.draws |= drawing
            self.computes |= not drawing
            if drawing and one.name and len(self.drawing) < MOST_HOLDERS:
                self.drawing.add(one.name)
            elif not drawing and (one.pid in self.pids or len(self.pids) < MOST_HOLDERS):
                self.pids[one.pid] = one.name or ""
                self._use.setdefault(one.pid, Mean()).add(one.sm_percent)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({name for name in self.pids.values() if name}))

    @property
    def only_draws(self) -> bool:
        """Only programs that draw were ever seen."""
        return self.draws and not self.computes

    def sharing(self) -> list[tuple[str, float]]:
        """Name and pid, and the share of the multiprocessors, where that was told."""
        told = ((pid, self._use[pid].value()) for pid in sorted(self.pids))
        return [
            (f"{self.pids[pid] or 'a process'} ({pid})", use)
            for pid, use in told
            if use is not None
        ]


class GpuTally:
    """Everything about one GPU, sample by sample."""

    def __init__(self, first: GpuSample) -> None:
        self.first = self.latest = first
        self.label, self.name = first.label, first.name
        self.samples = 0
        self.of = {name: Histogram(QUANTA.get(name, 1.0)) for name in GPU_FIELDS}
        self.memory, self.stretches = MemoryTally(), Stretches()
        self.tail, self.holders = Tail(), Holders()
        self.lost_at: str | None = None
        self.lost_since = 0.0
        """Seconds after the start."""
        self.link_limit = 0.0
        """The most that its PCIe link could carry one way, bytes a second."""
        self.ecc_uncorrected = 0
        self._parts: tuple[int, Parts] | None = None

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        self.samples += 1
        for name, histogram in self.of.items():
            histogram.add(getattr(gpu, name))
        self.memory.add(percent(gpu.memory_used_bytes, gpu.memory_total_bytes))
        self.holders.add(gpu.processes)
        if gpu.lost and self.lost_at is None:
            self.lost_since = sample.seconds
        self.lost_at = (self.lost_at or sample.at) if gpu.lost else None
        if not gpu.lost:
            self.latest = gpu
        self.tail.add(gpu, sample)
        if (gpu.utilization_percent or 0.0) > QUIET:  # a card at rest has a slower link
            self.link_limit = max(self.link_limit, gpu.pcie_limit_bytes_per_second or 0.0)
        self.ecc_uncorrected = max(self.ecc_uncorrected, gpu.ecc_uncorrected or 0)
        if gpu.utilization_percent is not None:
            self.stretches.add(gpu, sample)

    @property
    def parts(self) -> Parts:
        """Of the samples so far, merged once."""
        if self._parts is None or self._parts[0] != self.samples:
            self._parts = self.samples, self.stretches.parts()
        return self._parts[1]

    @property
    def utilization(self) -> float | None:
        """The mean over everything; None where it is not told (MIG)."""
        return self.of["utilization_percent"].value()

    @property
    def utilization_p95(self) -> float:
        return self.of["utilization_percent"].p95 or 0.0

    @property
    def heat(self) -> float | None:
        return self.of["temperature_celsius"].p95

    @property
    def power_rated(self) -> float | None:
        """By the catalog alone."""
        return rated_watts(self.name)

    @property
    def power_default(self) -> float | None:
        """What the maker rated it at, as the card tells it, else by the catalog."""
        return self.latest.power_limit_default_watts or self.power_rated

    @property
    def has_process(self) -> bool | None:
        """Whether a process that computes was ever seen; None where processes are not told."""
        return self.holders.computes if self.holders.told else None

    @property
    def memory_rose(self) -> int:
        """Bytes, from the first sample to the last."""
        return (self.latest.memory_used_bytes or 0) - (self.first.memory_used_bytes or 0)

    def summary(self) -> GpuSummary:
        work, first = self.parts.work, self.first
        return GpuSummary(
            index=first.index,
            mig_index=first.mig_index,
            name=first.name,
            uuid=first.uuid,
            samples=self.samples,
            memory_total_bytes=self.latest.memory_total_bytes or first.memory_total_bytes,
            throttled={k: round(v / 100, 4) for k, v in (work.reasons if work else {}).items()},
            working_share=round((work.samples if work else 0) / self.samples, 4),
            lost_at=self.lost_at,
            **{name: histogram.spread() for name, histogram in self.of.items()},
        )


class Tally:
    """Everything about one run."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples = 0
        self.seconds = 0.0
        self.gpus: dict[tuple[int, int | None], GpuTally] = {}
        self.tree = {name: Histogram(QUANTA.get(name, 1.0)) for name in TREE_FIELDS}
        self.busiest = Mean()
        self.most: dict[str, int] = {}
        self.cores: float | None = None
        self.host_cores: int | None = None
        self.host_memory: float | None = None
        """Percent of the machine's memory that was in use, at most."""
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        self.samples += 1
        self.seconds = sample.seconds
        for gpu in sample.gpus:
            place = (gpu.index, gpu.mig_index)
            if place not in self.gpus:
                self.gpus[place] = GpuTally(gpu)
            self.gpus[place].add(gpu, sample)
        if (tree := sample.tree) is not None:
            for name in MOST_OF_TREE:
                self.most[name] = max(self.most.get(name, 0), getattr(tree, name) or 0)
            self.cores = tree.cores
            self.busiest.add(tree.busiest_cpu_percent)
            for name, histogram in self.tree.items():
                histogram.add(getattr(tree, name))
        if (host := sample.host) is not None:
            self.host_cores = host.cores or self.host_cores
            share = percent(host.memory_used_bytes, host.memory_total_bytes)
            if share is not None:
                self.host_memory = max(self.host_memory or 0.0, share)

    def tree_summary(self) -> TreeSummary | None:
        told: dict[str, Spread | None] = {n: h.spread() for n, h in self.tree.items()}
        cpu, memory = told["cpu_percent"], told["memory_bytes"]
        workers = self.most.get("loader_workers", 0)
        if cpu is None or memory is None:
            return None
        return TreeSummary(
            cpu_percent=cpu,
            memory_bytes=memory,
            read_bytes_per_second=told["read_bytes_per_second"],
            loader_workers=workers,
            loader_cpu_percent=told["loader_cpu_percent"] if workers else None,
            cores=self.cores,
        )
