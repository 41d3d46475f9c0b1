"""Folding samples into a summary's figures: memory stays bounded however long one watches.

A histogram keeps a count for each rounded value, so that percentiles need no list of samples;
means and peaks are exact. The same samples in the same order always give the same figures.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

from gpusetup.monitor.facts import GpuFacts, RunFacts
from gpusetup.monitor.histogram import Histogram, Mean
from gpusetup.monitor.marks import GROWN, MEMORY_FULL, MEMORY_GONE, QUIET
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.rated import rated_watts
from gpusetup.monitor.stretch import Parts, Stretches, merged, percent
from gpusetup.monitor.tail import Tail
from gpusetup.monitor.values import (
    GpuSample,
    GpuSummary,
    HostSample,
    ProcessUse,
    Sample,
    TreeSample,
    TreeSummary,
)

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
MOST_OF_TREE = ("loader_workers", "gpu_processes", "collective_threads")
TREE_FIELDS = ("cpu_percent", "memory_bytes", "read_bytes_per_second", "loader_cpu_percent")


class MemoryTally:
    """The share of a GPU's memory over the run: its spread, its end, and whether it grew."""

    LAST = 5
    """Samples that are the end."""

    def __init__(self) -> None:
        self.share = Histogram(0.1)
        self._last: deque[float] = deque(maxlen=self.LAST)
        self._fell_from: float | None = None
        self._marks: list[float] = []
        self._every, self._seen = 1, 0

    def add(self, share: float | None) -> None:
        if share is None:
            return
        self.share.add(share)
        if self._last and share < MEMORY_GONE.value and max(self._last) >= MEMORY_FULL.value:
            self._fell_from = max(self._last)
        self._last.append(share)
        self._mark(share)

    def _mark(self, share: float) -> None:
        """Some of all values, evenly; of neighbours the later one stays."""
        self._seen += 1
        if self._seen % self._every:
            return
        self._marks.append(share)
        if len(self._marks) >= 64:
            self._marks, self._every = self._marks[1::2], self._every * 2

    def last(self) -> float | None:
        return self._fell_from or (max(self._last) if self._last else None)

    def fell(self) -> bool:
        return self._fell_from is not None

    def grew(self) -> bool:
        """By much, and in each quarter of the time."""
        count = len(self._marks)
        if count < 8:
            return False
        quarters = [self._marks[min(count - 1, n * count // 4)] for n in range(5)]
        steps = [later - sooner for sooner, later in pairwise(quarters)]
        whole = quarters[-1] - quarters[0]
        return whole >= GROWN.value and min(steps) >= whole / 12


class Holders:
    """Who was seen on a GPU."""

    MOST = 64

    def __init__(self) -> None:
        self.told = False
        self.pids: dict[int, str] = {}
        self.use: dict[int, Mean] = {}
        self.drawing: set[str] = set()
        self.computes = False
        self.draws = False

    def add(self, processes: tuple[ProcessUse, ...] | None) -> None:
        if processes is None:
            return
        self.told = True
        for one in processes:
            drawing = is_display(one)
            self.draws |= drawing
            self.computes |= not drawing
            if drawing and len(self.drawing) < self.MOST:
                self.drawing |= {one.name} if one.name else set()
            elif not drawing and (one.pid in self.pids or len(self.pids) < self.MOST):
                self.pids[one.pid] = one.name or ""
                self.use.setdefault(one.pid, Mean()).add(one.sm_percent)

    def sharing(self) -> tuple[tuple[str, float], ...]:
        """Those whose share of the GPU was told."""
        told = ((pid, self.use[pid].value()) for pid in sorted(self.pids))
        return tuple(
            (f"{self.pids[pid] or 'a process'} ({pid})", use)
            for pid, use in told
            if use is not None
        )


class GpuTally:
    """Everything about one GPU, sample by sample."""

    def __init__(self, first: GpuSample) -> None:
        self.first = first
        self.latest = first
        self.samples = 0
        self.of = {name: Histogram(QUANTA.get(name, 1.0)) for name in GPU_FIELDS}
        self.memory = MemoryTally()
        self.stretches = Stretches()
        self.tail = Tail()
        self._parts: tuple[int, Parts] | None = None
        self.holders = Holders()
        self.lost_at: str | None = None
        self.lost_since = 0.0
        self.link_limit, self.ecc = 0.0, 0

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
        if (gpu.utilization_percent or 0.0) > QUIET.value:  # a card at rest has a slower link
            self.link_limit = max(self.link_limit, gpu.pcie_limit_bytes_per_second or 0.0)
        self.ecc = max(self.ecc, gpu.ecc_uncorrected or 0)
        if gpu.utilization_percent is not None:
            self.stretches.add(gpu, sample)

    def parts(self) -> Parts:
        """Of the samples so far, merged once."""
        if self._parts is None or self._parts[0] != self.samples:
            self._parts = self.samples, self.stretches.parts()
        return self._parts[1]

    def facts(self) -> GpuFacts:
        told, heat = self.of["utilization_percent"], self.of["temperature_celsius"]
        return GpuFacts(
            label=self.first.label,
            name=self.first.name,
            samples=self.samples,
            utilization=told.mean_or_none(),
            utilization_p95=told.percentile(95) if told.count else None,
            temperature_p95=heat.percentile(95) if heat.count else None,
            slowdown_celsius=self.latest.temperature_slowdown_celsius,
            power_limit=self.latest.power_limit_watts,
            power_default=self.latest.power_limit_default_watts or rated_watts(self.first.name),
            power_rated=rated_watts(self.first.name),
            power_max=self.latest.power_limit_max_watts,
            lost_at=self.lost_at,
            lost_since=self.lost_since,
            link_limit=self.link_limit or None,
            ecc_uncorrected=self.ecc,
            **self._work(),
            **self._end(),
            **self._memory(),
            **self._held(),
        )

    def _work(self) -> dict[str, Any]:
        work, pause, whole, pauses, warm = self.parts()
        body = merged([work, pause])
        return {
            "work": work.work(),
            "body": body.work(),
            "paused": pause.work(),
            "whole": whole.work(),
            "pauses": pauses.count,
            "pause_share": pause.samples / max(1, body.samples) * 100,
            "longest_pause_seconds": pauses.longest,
            "mean_pause_seconds": pauses.seconds / max(1, pauses.count),
            "startup_seconds": self.stretches.first_work or 0.0,
            "warmup_seconds": warm,
        }

    def _end(self) -> dict[str, Any]:
        tail, stretches = self.tail, self.stretches
        after = stretches.first_work is not None
        return {
            "tail": tail.work.work(),
            "watts_before_tail": tail.watts_before.value(),
            "traffic_before_tail": tail.traffic_before.value(),
            "tail_since": tail.since or 0.0,
            "tail_seconds": tail.seconds,
            "rest": stretches.pending.work() if after else None,
            "rest_since": stretches.pending_since if after else None,
        }

    def _memory(self) -> dict[str, Any]:
        share = self.memory.share
        return {
            "memory_p95_share": share.percentile(95) if share.count else None,
            "memory_peak_share": share.peak if share.count else None,
            "memory_last_share": self.memory.last(),
            "memory_first_bytes": self.first.memory_used_bytes,
            "memory_used_bytes": self.latest.memory_used_bytes,
            "memory_fell": self.memory.fell(),
            "memory_grew": self.memory.grew(),
        }

    def _held(self) -> dict[str, Any]:
        holders = self.holders
        return {
            "has_process": holders.computes if holders.told else None,
            "only_display": holders.draws and not holders.computes,
            "holders": tuple(sorted(holders.pids)),
            "names": tuple(sorted({name for name in holders.pids.values() if name})),
            "drawing": tuple(sorted(holders.drawing)),
            "sharing": holders.sharing(),
        }

    def summary(self) -> GpuSummary:
        work, *_ = self.parts()
        told = work.work()
        return GpuSummary(
            index=self.first.index,
            mig_index=self.first.mig_index,
            name=self.first.name,
            uuid=self.first.uuid,
            samples=self.samples,
            memory_total_bytes=self.latest.memory_total_bytes or self.first.memory_total_bytes,
            throttled={k: round(v / 100, 4) for k, v in (told.reasons if told else {}).items()},
            working_share=round(work.samples / self.samples, 4) if self.samples else None,
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
        self.busiest = Mean()
        self.most: dict[str, int] = {}
        self.cores: float | None = None
        self.host_cores: int | None = None
        self.host_memory: float | None = None

    def add(self, sample: Sample) -> None:
        self.samples += 1
        self.seconds = sample.seconds
        for gpu in sample.gpus:
            place = (gpu.index, gpu.mig_index)
            if place not in self.gpus:
                self.gpus[place] = GpuTally(gpu)
            self.gpus[place].add(gpu, sample)
        if sample.tree is not None:
            self._add_tree(sample.tree)
        if sample.host is not None:
            self._add_host(sample.host)

    def _add_tree(self, tree: TreeSample) -> None:
        for name in MOST_OF_TREE:
            value = getattr(tree, name)
            if value is not None:
                self.most[name] = max(self.most.get(name, 0), value)
        self.cores = tree.cores
        self.busiest.add(tree.busiest_cpu_percent)
        for name, histogram in self.tree.items():
            histogram.add(getattr(tree, name))

    def _add_host(self, host: HostSample) -> None:
        self.host_cores = host.cores or self.host_cores
        share = percent(host.memory_used_bytes, host.memory_total_bytes)
        if share is not None:
            self.host_memory = max(self.host_memory or 0.0, share)

    def facts(
        self, command: tuple[str, ...] | None = None, exit_code: int | None = None
    ) -> RunFacts:
        return RunFacts(
            samples=self.samples,
            seconds=self.seconds,
            gpus=tuple(tally.facts() for tally in self.gpus.values()),
            cores=self.cores,
            host_cores=self.host_cores,
            cpu=self.tree["cpu_percent"].mean_or_none(),
            busiest_cpu=self.busiest.value(),
            ranks=self.most.get("gpu_processes"),
            collective_threads=self.most.get("collective_threads"),
            host_memory_share=self.host_memory,
            command=command,
            exit=exit_code,
        )

    def tree_summary(self) -> TreeSummary | None:
        told = {name: histogram.spread() for name, histogram in self.tree.items()}
        if told["cpu_percent"] is None or told["memory_bytes"] is None:
            return None
        return TreeSummary(
            cpu_percent=told["cpu_percent"],
            memory_bytes=told["memory_bytes"],
            read_bytes_per_second=told["read_bytes_per_second"],
            loader_workers=self.most.get("loader_workers", 0),
            loader_cpu_percent=told["loader_cpu_percent"]
            if self.most.get("loader_workers", 0)
            else None,
            cores=self.cores,
        )
