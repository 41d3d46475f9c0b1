"""What a run was, as plain values: what the verdict is a function of."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import Frozen


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
    memory_busy: float | None = None
    sm_active: float | None = None
    """Of the multiprocessors, while something ran."""
    power_share: float | None = None
    """Of the power limit; where none is told, of what the card is rated at."""
    power_watts: float | None = None
    clock_share: float | None = None
    """Of the highest SM clock, while something ran."""
    clock_mhz: float | None = None
    reasons: Mapping[str, float] = {}
    """Throttle reason -> the share of the samples with work in which it was on."""
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


class GpuFacts(Frozen):
    label: str
    name: str | None = None
    samples: int
    utilization: float | None = None
    """The mean over everything; None where it is not told (MIG)."""
    utilization_p95: float | None = None
    work: Work | None = None
    """Between its first and its last work, without start-up, warm-up and pauses; None where it
    never worked."""
    body: Work | None = None
    """The same with the pauses."""
    paused: Work | None = None
    """The pauses alone."""
    whole: Work | None = None
    """All samples, the start and the end too."""
    pauses: int = 0
    pause_share: float = 0.0
    """Percent of the samples between the first and the last work."""
    longest_pause_seconds: float = 0.0
    mean_pause_seconds: float = 0.0
    startup_seconds: float = 0.0
    warmup_seconds: float = 0.0
    """Of the first work that was much less than what came later; it is not judged."""
    tail: Work | None = None
    """The last stretch, where it looked busy and drew little power; None where it did not."""
    watts_before_tail: float | None = None
    """None where it did nothing else, or no power is told."""
    traffic_before_tail: float | None = None
    """Of its memory, in percent of the time."""
    tail_since: float = 0.0
    tail_seconds: float = 0.0
    rest: Work | None = None
    """What came after its last work."""
    rest_since: float | None = None
    memory_p95_share: float | None = None
    memory_peak_share: float | None = None
    memory_last_share: float | None = None
    """The highest of the last seconds, or of those before it fell to nothing."""
    memory_first_bytes: int | None = None
    memory_used_bytes: int | None = None
    """At the first and at the last sample."""
    memory_fell: bool = False
    """From full to nothing, as where a process ends by it."""
    memory_grew: bool = False
    """It grew all the time, by much."""
    temperature_p95: float | None = None
    slowdown_celsius: float | None = None
    power_limit: float | None = None
    power_default: float | None = None
    """What the maker rated it at, as the card tells it, else by the catalog."""
    power_rated: float | None = None
    """By the catalog alone."""
    power_max: float | None = None
    has_process: bool | None = None
    """Whether a process that computes was ever seen on it; None where processes are not told."""
    only_display: bool = False
    """Only programs that draw were ever seen on it."""
    holders: tuple[int, ...] = ()
    """The pids that were seen on it."""
    names: tuple[str, ...] = ()
    drawing: tuple[str, ...] = ()
    """Names of programs that draw."""
    sharing: tuple[tuple[str, float], ...] = ()
    """Processes that compute: name and pid, and the mean share of the multiprocessors."""
    link_limit: float | None = None
    """The most that its PCIe link could carry one way, bytes a second."""
    ecc_uncorrected: int = 0
    lost_at: str | None = None
    lost_since: float = 0.0
    """Seconds after the start."""


class RunFacts(Frozen):
    samples: int
    seconds: float
    gpus: tuple[GpuFacts, ...] = ()
    cores: float | None = None
    host_cores: int | None = None
    cpu: float | None = None
    """Mean CPU of the command's tree, 100 for each core."""
    busiest_cpu: float | None = None
    ranks: int | None = None
    """Processes of the command that hold a watched GPU."""
    collective_threads: int | None = None
    host_memory_share: float | None = None
    command: tuple[str, ...] | None = None
    exit: int | None = None
