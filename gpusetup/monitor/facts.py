"""What a run was, as plain values: what the verdict is a function of."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import Frozen


class Work(Frozen):
    """Means over the samples in which a GPU was at work. Shares are percentages."""

    samples: int
    utilization: float
    utilization_p5: float
    utilization_p95: float
    quiet_share: float
    """Of the samples in which nothing ran."""
    memory_busy: float | None = None
    power_share: float | None = None
    """Of the power limit."""
    clock_share: float | None = None
    """Of the highest SM clock."""
    reasons: Mapping[str, float] = {}
    """Throttle reason -> the share of the samples in which it was on."""
    busiest_cpu: float | None = None
    """Of the busiest process that is no loader's worker; None where no command was watched."""
    workers: float = 0.0
    worker_cpu: float | None = None
    """Each; None where there is none."""
    read_rate: float | None = None
    input_rate: float | None = None


class GpuFacts(Frozen):
    label: str
    name: str | None = None
    samples: int
    utilization: float | None = None
    """The mean over everything; None where it is not told (MIG)."""
    utilization_p95: float | None = None
    work: Work | None = None
    """Between its first and its last work, without the pauses; None where it never worked."""
    body: Work | None = None
    """The same with the pauses."""
    whole: Work | None = None
    """All samples, the start and the end too."""
    pauses: int = 0
    pause_share: float = 0.0
    """Percent of the samples between the first and the last work."""
    longest_pause_seconds: float = 0.0
    startup_seconds: float = 0.0
    memory_p95_share: float | None = None
    memory_peak_share: float | None = None
    temperature_p95: float | None = None
    has_process: bool | None = None
    """Whether a process was ever seen on it; None where processes are not told."""
    lost_at: str | None = None


class RunFacts(Frozen):
    samples: int
    seconds: float
    gpus: tuple[GpuFacts, ...] = ()
    cores: int | None = None
    cpu: float | None = None
    """Mean CPU of the command's tree, 100 for each core."""
    command: tuple[str, ...] | None = None
