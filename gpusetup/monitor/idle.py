"""Runs in which no GPU ever worked, and why. Pure."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample
from gpusetup.monitor.gpu import Gpu
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.programs import kind_of
from gpusetup.monitor.run import Run
from gpusetup.monitor.work import Work, at_least, below, mean, or_zero, percent


def idle(run: Run) -> Judgement | None:
    """No GPU ever worked."""
    if run.at_work:
        return None
    starved = starved_between_short_kernels(run)
    if starved:
        return starved
    utilization = max(or_zero(gpu.utilization) for gpu in run.gpus)
    evidence = f"utilisation {utilization:.0f} % over {run.samples} samples"
    since_gpu = run.since_held
    if since_gpu is not None and since_gpu.cpu is not None:
        evidence += f" while the command used {since_gpu.cpu:.0f} % of a core"
        start_up = since_gpu.rows[0].seconds
        if start_up >= marks.START_UP_NOTE:
            evidence += f" (the first {start_up:.0f} s, before it used the GPU, are not counted)"
    elif run.cpu is not None:
        evidence += f" while the command used {run.cpu:.0f} % of a core"
    cause, step = why_idle(run)
    return Judgement("idle", cause, evidence, (step,))


def starved_between_short_kernels(run: Run) -> Judgement | None:
    """A training that prepares its batches itself, with kernels too short for the GPU's counter.

    The counter of an H100 (driver 580) told 0 % of a training whose process decoded 16 pictures for
    20 ms and computed for less than one: 54 % of a core, a held GPU and clocks of work were all
    that showed it.
    """
    held = run.since_held
    is_over_with_error = bool(run.exit)
    if not run.command or held is None or is_over_with_error:
        return None
    # A program that still loads its model looks the same.
    if run.exit is None and is_starting(run):
        return None
    names = [name for gpu in run.gpus for name in gpu.programs]
    is_training = kind_of(run.command, names) in ("training", "")
    # A process that hardly computes may wait for anything; one that fills a core prepares data.
    works_and_waits = marks.RESTING_CPU <= or_zero(held.busiest_cpu) < marks.CORE_FULL
    awake_gpus = [gpu for gpu in run.gpus if run.held(gpu) and stays_awake(gpu, run.held_from)]
    if not (is_training and works_and_waits and awake_gpus):
        return None
    evidence = evidence_of_short_kernels(awake_gpus[0], run.held_from, held)
    # The signs of a step look at a GPU at work, and here none is: its workers are asked here.
    step = "run-ahead" if held.workers >= 1 else "load-with-workers"
    return Judgement("input-starved", "by-itself", evidence, (step,))


def evidence_of_short_kernels(gpu: Gpu, since: float, held: Work) -> str:
    """What was seen of a GPU that was ready all along while its process worked and waited."""
    watts = mean(row.gpu.power_watts for row in gpu.rows if row.seconds >= since)
    draw = "" if watts is None else f" and it drew {watts:.0f} W"
    return (
        f"GPU {gpu.label} was ready (its clocks were up{draw}), but its utilisation was "
        f"{or_zero(gpu.utilization):.0f} %: its kernels are too short to count, and between them "
        f"it waits for the command, which used {or_zero(held.busiest_cpu):.0f} % of a core"
    )


def stays_awake(gpu: Gpu, since: float) -> bool:
    """Whether a GPU's clocks are those of work in nearly all samples, though little runs."""
    told = [
        row for row in gpu.rows if row.seconds >= since and row.gpu.throttle_reasons is not None
    ]
    awake = [row for row in told if is_awake(row.gpu)]
    enough_samples = len(told) >= marks.LEAST_SAMPLES
    return enough_samples and len(awake) >= len(told) * marks.AWAKE_SHARE / 100


def is_awake(gpu: GpuSample) -> bool:
    """Whether a GPU's clocks are high, and rest is not the reason for them."""
    rests = "gpu_idle" in (gpu.throttle_reasons or ())
    return at_least(percent(gpu.clock_sm_mhz, gpu.clock_sm_max_mhz), marks.LOW_CLOCKS) and not rests


def why_idle(run: Run) -> tuple[str, str]:
    """The cause why no GPU worked, and the next step."""
    is_held = any(map(run.held, run.gpus))
    # What the program did before it had the GPU was its start.
    part = run.since_held or run.machine
    cpu = part.busiest_cpu if part else None
    whole_cpu = part.cpu if part else None
    running = run.exit is None
    if run.command and run.exit and run.exit not in STOPPED_FROM_OUTSIDE:
        return "failed", "read-its-error"
    kind = kind_of(run.command, [name for gpu in run.gpus for name in gpu.programs])
    network_rate = or_zero(run.machine.network_rate if run.machine else None)
    is_fetching = below(cpu, marks.CORE_FULL) and network_rate >= marks.NETWORK_RATE
    if running and (is_starting(run) or is_fetching):
        return "starting", "watch-longer"
    if is_held and kind in WAITS_FOR_PEOPLE:
        return WAITS_FOR_PEOPLE[kind]
    if cpu is None:
        return ("held", "see-where-it-waits") if is_held else ("unused", "watch-the-command")
    if is_held and cpu >= marks.MANY_THREADS:
        return "computes", "move-to-the-gpu"
    helpers_cpu = or_zero(whole_cpu) - cpu
    only_helpers = helpers_cpu >= marks.HELPER_CPU and cpu < marks.MANY_THREADS
    prepares = cpu >= marks.CORE_FULL if is_held else only_helpers
    if prepares:
        return "prepares", "prepare-once"
    return ("held", "see-where-it-waits") if is_held else ("unused", "see-whether-torch-can")


STOPPED_FROM_OUTSIDE = (129, 130, 137, 143, -1, -2, -9, -15)
"""Exit codes of a command that got SIGHUP, SIGINT, SIGKILL or SIGTERM."""
WAITS_FOR_PEOPLE = {
    "server": ("requests", "send-more-requests"),
    "notebook": ("cells", "release-between-cells"),
}


def is_starting(run: Run) -> bool:
    """Too young to be judged, or still loading."""
    most_memory = max((gpu.memory_rose for gpu in run.gpus), default=0)
    # Memory that rises says that something is loaded, which may take minutes.
    is_loading = most_memory >= marks.CUDA_CONTEXT
    return run.seconds < (marks.START_UP_SECONDS if is_loading else marks.YOUNG_SECONDS)
