"""Recognises runs in which no GPU ever worked, and finds out why. Pure functions."""

from __future__ import annotations

from gpusetup.model.units import GIB
from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.programs import kind_of
from gpusetup.monitor.run import WatchedRun
from gpusetup.monitor.work import Work, at_least, mean, or_zero, percent


def idle(run: WatchedRun) -> Judgement | None:
    """The verdict on a run in which no GPU worked; None if at least one did."""
    if run.at_work:
        return None
    starved = starved_between_short_kernels(run)
    if starved:
        return starved
    utilizations = [or_zero(gpu.utilization) for gpu in run.gpus]
    highest_use = max(utilizations)
    evidence = f"utilisation {highest_use:.0f} % over {run.samples} samples{held_memory(run)}"
    since_gpu = run.since_held
    if since_gpu is not None and since_gpu.cpu is not None:
        evidence += f" while the command used {since_gpu.cpu:.0f} % of a core"
        start_up = since_gpu.rows[0].seconds
        # A shorter start-up, such as a second of imports, is not worth mentioning.
        if start_up >= marks.START_UP_NOTE:
            evidence += f" (the first {start_up:.0f} s, before it used the GPU, are not counted)"
    elif run.cpu is not None:
        evidence += f" while the command used {run.cpu:.0f} % of a core"
    cause, step = why_idle(run)
    return Judgement("idle", cause, evidence, (step,))


def held_memory(run: WatchedRun) -> str:
    """The end of a sentence, saying how much GPU memory is in use, such as `, with 40.0 GiB of GPU
    memory in use`; "" if none is known."""
    held_bytes = 0.0
    for gpu in run.gpus:
        # Leave out memory that the GPU shares with the machine (DGX Spark, Jetson).
        if run.held(gpu) and not gpu.latest.memory_is_unified:
            held_bytes += or_zero(gpu.latest.memory_used_bytes)
    if not held_bytes:
        return ""
    return f", with {held_bytes / GIB:.1f} GiB of GPU memory in use"


def starved_between_short_kernels(run: WatchedRun) -> Judgement | None:
    """The verdict on a training that prepares its batches itself and whose kernels are too short to
    show in the GPU's utilisation; None if the run is not like that.

    For example, an H100 (driver 580) reported 0 % utilisation for a training whose process decoded
    16 pictures for 20 ms and then computed for less than 1 ms. The only signs were 54 % CPU use of
    a core, GPU memory in use, and high clocks.
    """
    held = run.since_held
    is_over_with_error = bool(run.exit)
    if not run.command or held is None or is_over_with_error:
        return None
    # A program that is still loading its model looks the same, so rule that out.
    if run.exit is None and is_starting(run):
        return None
    # Judge only training runs, because a server that waits for requests also keeps the GPU's clocks
    # high.
    if kind_of(run.command, programs_of(run)) not in ("training", ""):
        return None
    # A process that hardly computes may be waiting for anything; one that fills a core is preparing
    # data.
    busiest_cpu = or_zero(held.busiest_cpu)
    works_and_waits = marks.RESTING_CPU <= busiest_cpu < marks.CORE_FULL
    held_gpus = [gpu for gpu in run.gpus if run.held(gpu)]
    awake_gpus = [gpu for gpu in held_gpus if stays_awake(gpu, run.held_from)]
    if not works_and_waits or not awake_gpus:
        return None
    evidence = evidence_of_short_kernels(awake_gpus[0], run.held_from, held)
    # The signs that usually choose a next step need a working GPU. No GPU worked here, so check for
    # loader workers directly.
    step = "run-ahead" if held.workers >= 1 else "load-with-workers"
    return Judgement("input-starved", "by-itself", evidence, (step,))


def programs_of(run: WatchedRun) -> list[str]:
    """The names of the programs that compute on the GPUs, listed GPU by GPU."""
    names: list[str] = []
    for gpu in run.gpus:
        names.extend(gpu.programs)
    return names


def evidence_of_short_kernels(gpu: GpuRun, since: float, held: Work) -> str:
    """The evidence that a GPU was ready all the time and waited for the command's process."""
    powers = [row.gpu.power_watts for row in gpu.rows if row.seconds >= since]
    watts = mean(powers)
    draw = "" if watts is None else f" and it drew {watts:.0f} W"
    utilization = or_zero(gpu.utilization)
    cpu = or_zero(held.busiest_cpu)
    return (
        f"GPU {gpu.label} was ready (its clocks were up{draw}), but its utilisation was "
        f"{utilization:.0f} %: its kernels are too short to count, and between them "
        f"it waits for the command, which used {cpu:.0f} % of a core"
    )


def stays_awake(gpu: GpuRun, since: float) -> bool:
    """Whether a GPU's clocks are high in nearly all samples from this second on, although its
    utilisation is low."""
    later = [row.gpu for row in gpu.rows if row.seconds >= since]
    # Only samples with throttle reasons count, because only they show whether an idle GPU explains
    # the clock.
    told = [sample for sample in later if sample.throttle_reasons is not None]
    if len(told) < marks.LEAST_SAMPLES:
        return False
    awake = [sample for sample in told if is_awake(sample)]
    least_awake = len(told) * marks.AWAKE_SHARE / 100
    return len(awake) >= least_awake


def is_awake(gpu: GpuSample) -> bool:
    """Whether a GPU's clocks are high and not reported as idle."""
    reasons = gpu.throttle_reasons or ()
    # The driver reports `gpu_idle` for a card with low clocks on which nothing runs.
    rests = "gpu_idle" in reasons
    clock_share = percent(gpu.clock_sm_mhz, gpu.clock_sm_max_mhz)
    has_high_clocks = at_least(clock_share, marks.LOW_CLOCKS)
    return has_high_clocks and not rests


def why_idle(run: WatchedRun) -> tuple[str, str]:
    """The cause of an idle run, and the id of the next step."""
    was_stopped = run.exit in STOPPED_FROM_OUTSIDE
    if run.command and run.exit and not was_stopped:
        return "failed", "read-its-error"
    if run.exit is None and is_starting(run):
        return "starting", "watch-longer"
    is_held = any(map(run.held, run.gpus))
    kind = kind_of(run.command, programs_of(run))
    if is_held and kind in WAITS_FOR_PEOPLE:
        return WAITS_FOR_PEOPLE[kind]
    if is_held and any(map(left_over, run.gpus)):
        return "left-over", "find-the-holder"
    # Leave out the time before the first use of a GPU, which is start-up.
    work = run.since_held or run.machine
    cpu = work.busiest_cpu if work else None
    # No command was watched.
    if cpu is None:
        return ("held", "see-where-it-waits") if is_held else ("unused", "watch-the-command")
    if is_held and cpu >= marks.MANY_THREADS:
        return "computes", "move-to-the-gpu"
    whole_cpu = or_zero(work.cpu if work else None)
    helpers_cpu = whole_cpu - cpu
    # Many threads without a GPU suggest torch on the CPU; busy helper processes suggest tokenizers
    # or similar.
    only_helpers = helpers_cpu >= marks.HELPER_CPU and cpu < marks.MANY_THREADS
    prepares = cpu >= marks.CORE_FULL if is_held else only_helpers
    if prepares:
        return "prepares", "prepare-once"
    return ("held", "see-where-it-waits") if is_held else ("unused", "see-whether-torch-can")


def left_over(gpu: GpuRun) -> bool:
    """Whether GPU memory is in use although the driver lists no process on the GPU."""
    latest = gpu.latest
    lists_none = latest.processes is not None and len(latest.processes) == 0
    return lists_none and or_zero(latest.memory_used_bytes) >= HELD_BY_NOBODY


HELD_BY_NOBODY = GIB
"""Bytes in use without a process from which something must hold them: the driver itself takes up to
0.6 GiB on a large card."""
STOPPED_FROM_OUTSIDE = (129, 130, 137, 143, -1, -2, -9, -15)
"""Exit codes of a command that was ended by SIGHUP, SIGINT, SIGKILL or SIGTERM."""
WAITS_FOR_PEOPLE = {
    "server": ("requests", "send-more-requests"),
    "notebook": ("cells", "release-between-cells"),
}


def is_starting(run: WatchedRun) -> bool:
    """Whether the run is too short to judge. While a program is loading a model, it gets more
    time."""
    rises = [gpu.memory_rose for gpu in run.gpus]
    most_memory = max(rises, default=0)
    # Rising GPU memory means that a model is being loaded, which may take minutes.
    is_loading = most_memory >= marks.CUDA_CONTEXT
    young_seconds = marks.START_UP_SECONDS if is_loading else marks.YOUNG_SECONDS
    return run.seconds < young_seconds
