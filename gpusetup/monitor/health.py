"""Hardware faults that the GPU itself reports: uncorrectable memory errors, and faulty memory that
could not be replaced or is waiting to be replaced. Pure functions.

These faults take precedence over every other verdict, because results computed on faulty memory may
be wrong, and because the next error ends the run.
"""

from __future__ import annotations

from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.run import WatchedRun


def faulty_memory(run: WatchedRun) -> Judgement | None:
    """The verdict on the first GPU that reports uncorrectable memory errors, or pending or failed
    repairs; None if there is no such GPU."""
    for gpu in run.gpus:
        faults = faults_of(gpu)
        if not faults:
            continue
        evidence = f"GPU {gpu.label}: {', '.join(faults)}"
        # A reset cannot help once no spare memory is left.
        is_worn_out = gpu.latest.remap_failed is True
        step = "replace-the-gpu" if is_worn_out else "reset-the-gpu"
        return Judgement("faulty", "memory", evidence, (step,))
    return None


def faults_of(gpu: GpuRun) -> list[str]:
    """The memory faults that the GPU reports, as phrases; empty if there are none."""
    faults = []
    if gpu.new_memory_errors:
        noun = "error" if gpu.new_memory_errors == 1 else "errors"
        faults.append(f"{gpu.new_memory_errors} uncorrectable memory {noun} during the run")
    if gpu.latest.remap_failed:
        faults.append("a faulty place of its memory could not be replaced")
    if gpu.latest.retired_pending:
        faults.append("a faulty place of its memory waits for a reset to be replaced")
    return faults


def earlier_errors(gpu: GpuRun, *, is_reading: bool) -> str | None:
    """A note on uncorrectable memory errors from before the run, which the driver counts from the
    time it was loaded; None if there are none.

    `is_reading`: whether there is only one reading, so that there was nothing before it.
    """
    count = gpu.first.ecc_uncorrected
    if not count or gpu.new_memory_errors:
        return None
    noun = "error" if count == 1 else "errors"
    if is_reading:
        return f"{count} uncorrectable memory {noun} since the driver was loaded"
    return f"{count} uncorrectable memory {noun} before the run, none during it"
