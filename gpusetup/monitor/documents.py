"""The documents that `monitor --json` prints: one sample per line, and a summary at the end.

A value that no source reported is null. Percentages run from 0 to 100, except that CPU percentages
are per core: 400 means four full cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.documents import Verdict
from gpusetup.model.frozen import Frozen

Figure = float | None
Count = int | None
"""A number; None if it is unknown."""


class ProcessUse(Frozen):
    """A process on a GPU. In a container, its pid is the host's pid, and its name may be hidden."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None
    kind: Literal["compute", "graphics", "both"] | None = None
    sm_percent: float | None = None
    """The share of the multiprocessors that it used most recently (NVML: process utilisation)."""


class GpuSample(Frozen):
    """One GPU at one moment; None means that the source does not report the value."""

    index: int
    name: str | None = None
    uuid: str | None = None
    utilization_percent: Figure = None
    """The share of the last sampling period in which at least one kernel ran."""
    memory_busy_percent: Figure = None
    """The share of time in which its memory was read or written (NVML: utilization.memory)."""
    memory_used_bytes: Count = None
    memory_total_bytes: Count = None
    temperature_celsius: Figure = None
    power_watts: Figure = None
    power_limit_watts: Figure = None
    power_limit_default_watts: Figure = None
    """The card's rated power limit, as set by its maker."""
    pcie_rx_bytes_per_second: Figure = None
    pcie_tx_bytes_per_second: Figure = None
    nvlink_rx_bytes_per_second: Figure = None
    nvlink_tx_bytes_per_second: Figure = None
    """The total over all of the GPU's NVLinks."""
    clock_sm_mhz: Count = None
    clock_sm_max_mhz: Count = None
    throttle_reasons: tuple[str, ...] | None = None
    processes: tuple[ProcessUse, ...] | None = None
    lost: bool = False
    problem: str | None = None
    fault: str | None = None
    """What the driver reports about faulty memory, such as uncorrectable ECC errors."""

    @property
    def memory_percent(self) -> float | None:
        """How full the memory is; None if unknown."""
        used, total = self.memory_used_bytes, self.memory_total_bytes
        if used is None or not total:
            return None
        return used / total * 100


class TreeSample(Frozen):
    """What the command's processes used together since the previous sample.

    The first sample of a recording has no `TreeSample`, because it only takes the baseline.
    """

    processes: int
    cpu_percent: float
    busiest_cpu_percent: float
    """The CPU use of the busiest process that is not a loader worker."""
    memory_bytes: int
    read_bytes_per_second: Figure = None
    """Bytes read from the disk."""
    input_bytes_per_second: Figure = None
    """Bytes read with read calls, including those from the page cache."""
    loader_workers: int = 0
    loader_cpu_percent: float = 0.0
    """The CPU use of all DataLoader workers together."""
    cores: Figure = None
    """How many cores the command may use, according to its affinity and cgroup quota."""
    write_bytes_per_second: Figure = None
    blocked_processes: Count = None
    """The number of processes in uninterruptible sleep (state D), which usually wait for a disk."""
    gpu_processes: Count = None
    """The number of processes that use a watched GPU; in a distributed job these are the ranks."""


class HostSample(Frozen):
    """What the whole machine used since the previous sample; the first sample has no rates."""

    cpu_percent: Figure = None
    """100 means one core."""
    cores: Count = None
    memory_used_bytes: Count = None
    memory_total_bytes: Count = None
    disk_read_bytes_per_second: Figure = None
    disk_write_bytes_per_second: Figure = None
    network_receive_bytes_per_second: Figure = None


class Sample(Frozen):
    schema: Literal["gpusetup.monitor/1"] = "gpusetup.monitor/1"
    kind: Literal["sample"] = "sample"
    at: str
    seconds: float
    """The seconds since the monitor started."""
    gpus: tuple[GpuSample, ...] = ()
    tree: TreeSample | None = None
    host: HostSample | None = None


class Spread(Frozen):
    mean: float
    p5: float
    p95: float
    peak: float


class GpuSummary(Frozen):
    """One GPU's figures from its first to its last work; of the whole run if it never worked."""

    index: int
    name: str | None = None
    uuid: str | None = None
    samples: int
    utilization_percent: Spread | None = None
    memory_used_bytes: Spread | None = None
    memory_total_bytes: Count = None
    temperature_celsius: Spread | None = None
    power_watts: Spread | None = None
    clock_sm_mhz: Spread | None = None
    throttled: Mapping[str, float] = {}
    """Maps each throttle reason to the share (0 to 1) of the working samples in which it slowed
    down the clocks."""
    lost_at: str | None = None


class EpochTimes(Frozen):
    """How long the epochs took, measured from the command's output."""

    epochs: float
    """How many epochs were measured; 0.5 means half an epoch."""
    seconds: float
    """The average seconds per epoch."""


class NextStep(Frozen):
    id: str = ""
    """The step's id in the table of next steps, such as `more-workers`."""
    text: str
    command: str | None = None


class Summary(Frozen):
    schema: Literal["gpusetup.monitor/1"] = "gpusetup.monitor/1"
    kind: Literal["summary"] = "summary"
    verdict: Verdict | None
    """None if nothing could be judged; in that case `evidence` says why."""
    cause: str = ""
    """The cause of the verdict, such as `storage` for `input-starved`."""
    evidence: str
    next: NextStep | None = None
    advice: tuple[str, ...] = ()
    """The acceleration guide's advice in order of importance, if utilisation is below 50 %."""
    notes: tuple[str, ...] = ()
    """Notes on everything else that is worth knowing about the run."""
    source: str | None = None
    """Where the samples come from: `nvml`, `nvidia-smi`, `machine` (no GPU) and so on, or the kind
    of a recording."""
    not_watched: str | None = None
    """Why a better source was not used, for example `NVML: Driver Not Loaded; nvidia-smi: not
    found`."""
    seconds: float = 0.0
    samples: int = 0
    epochs: EpochTimes | None = None
    """The epochs' times; None if the command did not print two epochs, or if its output was not
    read."""
    gpus: tuple[GpuSummary, ...] = ()
    machine: HostSample | None = None
    """The means of the machine's figures over the run, including all other programs."""
    command: tuple[str, ...] | None = None
    exit: Count = None
    error: str | None = None
    """The last error line that the command printed, if it failed."""


DOCUMENTS = (Sample, Summary)
"""The documents that `monitor --json` prints, one per line."""
