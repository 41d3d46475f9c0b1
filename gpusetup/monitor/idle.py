"""Signs about a run in which no GPU worked. Pure functions."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.run import Subject
from gpusetup.monitor.signs import Sign
from gpusetup.monitor.work import at_least, or_zero, percent

STOPPED_FROM_OUTSIDE = (129, 130, 137, 143, -1, -2, -9, -15)
"""Exit codes of a command that was ended by SIGHUP, SIGINT, SIGKILL or SIGTERM."""
was_stopped = Sign(lambda subject: subject.run.exit in STOPPED_FROM_OUTSIDE)


@Sign
def is_starting(subject: Subject) -> bool:
    """Whether the run is too short to judge. While a program is loading a model, which rising GPU
    memory shows, it gets more time."""
    run = subject.run
    rises = [
        or_zero(gpu.latest.memory_used_bytes) - or_zero(gpu.first.memory_used_bytes)
        for gpu in run.gpus
    ]
    is_loading = max(rises, default=0.0) >= marks.CUDA_CONTEXT
    seconds = marks.START_UP_SECONDS if is_loading else marks.YOUNG_SECONDS
    return run.exit is None and run.seconds < seconds


@Sign
def stays_awake(subject: Subject) -> bool:
    """Whether the GPU's clocks are high in nearly all samples since a process first used it,
    although its utilisation is low. Only throttle reasons show whether an idle GPU explains the
    clock."""
    later = [row.gpu for row in subject.gpu.rows if row.seconds >= subject.run.held_from]
    told = [gpu for gpu in later if gpu.throttle_reasons is not None]
    awake = [
        gpu
        for gpu in told
        if at_least(percent(gpu.clock_sm_mhz, gpu.clock_sm_max_mhz), marks.LOW_CLOCKS)
        and "gpu_idle" not in (gpu.throttle_reasons or ())
    ]
    is_enough = len(told) >= marks.LEAST_SAMPLES
    return is_enough and len(awake) >= len(told) * marks.AWAKE_SHARE / 100


# A training that prepares its batches itself and whose kernels are too short to show in the GPU's
# utilisation. For example, an H100 (driver 580) reported 0 % for a training whose process decoded
# 16 pictures for 20 ms and then computed for less than 1 ms. The only signs were 54 % CPU use of a
# core, GPU memory in use, and high clocks. A program that is still loading its model looks the
# same; a server that waits for requests also keeps the clocks high.
kernels_are_short = (
    ~(s.unknown_job | s.failed | is_starting)
    & s.training
    & s.works_between_steps
    & ~s.core_full
    & Sign(lambda subject: subject.run.held(subject.gpu))
    & stays_awake
)
