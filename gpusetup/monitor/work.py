"""What a GPU did over some samples: sums while they come, means at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpusetup.model.frozen import Frozen
from gpusetup.monitor.histogram import Histogram, Mean
from gpusetup.monitor.marks import QUIET
from gpusetup.monitor.rated import rated_watts
from gpusetup.monitor.values import GpuSample, HostSample, Sample, TreeSample


class Work(Frozen):
    """Means over the samples in which a GPU was at work. Shares are percentages.

    What is None was told by no source. CPU percentages count cores: 400 is four of them.
    """

    samples: int
    utilization: float
    utilization_p5: float
    utilization_p95: float
    quiet_share: float
    """Of the samples in which nothing ran."""
    reasons: Mapping[str, float] = {}
    """Throttle reason -> the share of the samples with work in which it was on."""
    memory_busy: float | None = None
    sm_active: float | None = None
    """Of the multiprocessors, while something ran."""
    power_share: float | None = None
    """Of the power limit; where none is told, of what the card is rated at."""
    power_watts: float | None = None
    clock_share: float | None = None
    """Of the highest SM clock, while something ran."""
    clock_mhz: float | None = None
    busiest_cpu: float | None = None
    """Of the busiest process that is no loader's worker; None where no command was watched."""
    workers: float = 0.0
    worker_cpu: float | None = None
    """Each; None where there is none."""
    helpers_cpu: float | None = None
    """Of the command's other processes together: neither the busiest nor workers."""
    cpu: float | None = None
    """Of all of the command's processes."""
    read_rate: float | None = None
    input_rate: float | None = None
    write_rate: float | None = None
    blocked: float | None = None
    """How many processes slept without interruption, as one does that waits for a disk."""
    held_back: float | None = None
    """Percent of the periods in which the cgroup's CPU quota was used up."""
    host_cpu: float | None = None
    host_share: float | None = None
    """Of all cores of the machine."""
    encoder: float | None = None
    decoder: float | None = None
    network_rate: float | None = None
    """Received by the machine, bytes a second."""
    disk_read_rate: float | None = None
    disk_write_rate: float | None = None
    """By the machine, bytes a second."""
    link_rate: float | None = None
    """NVLink, both ways, bytes a second."""
    pcie_rate: float | None = None
    pcie_share: float | None = None
    """Of what the link carries, both ways."""


Measures = Mapping[str, float | None]
"""What one sample tells, by the fields of `Work`."""


def of_gpu(gpu: GpuSample) -> Measures:
    pcie = both(gpu.pcie_rx_bytes_per_second, gpu.pcie_tx_bytes_per_second)
    return {
        "memory_busy": gpu.memory_busy_percent,
        "power_watts": gpu.power_watts,
        "power_share": power_share(gpu),
        "encoder": gpu.encoder_percent,
        "decoder": gpu.decoder_percent,
        "pcie_rate": pcie,
        "pcie_share": percent(pcie, gpu.pcie_limit_bytes_per_second),
        "link_rate": both(gpu.nvlink_rx_bytes_per_second, gpu.nvlink_tx_bytes_per_second),
    }


def while_it_runs(gpu: GpuSample) -> Measures:
    return {
        "sm_active": gpu.sm_active_percent,
        "clock_share": percent(gpu.clock_sm_mhz, gpu.clock_sm_max_mhz),
        "clock_mhz": gpu.clock_sm_mhz,
    }


def of_tree(tree: TreeSample) -> Measures:
    workers, computed = tree.loader_workers, tree.loader_cpu_percent
    return {
        "busiest_cpu": tree.busiest_cpu_percent,
        "cpu": tree.cpu_percent,
        "helpers_cpu": max(0.0, tree.cpu_percent - tree.busiest_cpu_percent - computed),
        "read_rate": tree.read_bytes_per_second,
        "input_rate": tree.input_bytes_per_second,
        "write_rate": tree.write_bytes_per_second,
        "blocked": tree.blocked_processes,
        "held_back": tree.held_back_percent,
        "worker_cpu": computed / workers if workers else None,
    }


def of_host(host: HostSample) -> Measures:
    share = host.busy_percent
    if share is None and host.cpu_percent is not None and host.cores:
        share = host.cpu_percent / host.cores
    return {
        "host_cpu": host.cpu_percent,
        "host_share": share,
        "network_rate": host.network_receive_bytes_per_second,
        "disk_read_rate": host.disk_read_bytes_per_second,
        "disk_write_rate": host.disk_write_bytes_per_second,
    }


class WorkTally:
    """What is summed over the samples of one stretch of a GPU's work."""

    def __init__(self) -> None:
        self.utilization = Histogram()
        self.of: dict[str, Mean] = {}
        self.reasons: Counter[str] = Counter()
        self.quiet = self.workers = 0

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        self.utilization.add(gpu.utilization_percent)
        self._keep(of_gpu(gpu))
        if is_quiet(gpu):
            self.quiet += 1
        else:
            self._keep(while_it_runs(gpu))
            self.reasons.update(gpu.throttle_reasons or ())
        if sample.tree is not None:
            self._keep(of_tree(sample.tree))
            self.workers += sample.tree.loader_workers
        if sample.host is not None:
            self._keep(of_host(sample.host))

    def _keep(self, told: Measures) -> None:
        for name, value in told.items():
            if value is not None:
                self.of.setdefault(name, Mean()).add(value)

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
        count, use = self.samples, self.utilization
        if not count:
            return None
        loud = max(1, count - self.quiet)
        return Work(
            samples=count,
            utilization=use.total / count,
            utilization_p5=use.percentile(5),
            utilization_p95=use.percentile(95),
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


def both(first: float | None, second: float | None) -> float | None:
    """
    >>> both(1.0, None), both(None, None)
    (1.0, None)
    """
    return None if first is None and second is None else (first or 0.0) + (second or 0.0)


def power_share(gpu: GpuSample) -> float | None:
    return percent(gpu.power_watts, gpu.power_limit_watts or rated_watts(gpu.name))


def is_quiet(gpu: GpuSample) -> bool:
    return gpu.utilization_percent is not None and gpu.utilization_percent <= QUIET


def percent(part: float | None, whole: float | None) -> float | None:
    """
    >>> percent(3, 4), percent(None, 4), percent(3, 0)
    (75.0, None, None)
    """
    return part / whole * 100 if part is not None and whole else None
