"""Runs in which no GPU ever worked, and why. Pure."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.programs import kind_of
from gpusetup.monitor.run import Run
from gpusetup.monitor.work import below, or_zero


def idle(run: Run) -> Judgement | None:
    """No GPU ever worked."""
    if run.at_work:
        return None
    utilization = max(or_zero(gpu.utilization) for gpu in run.gpus)
    evidence = f"utilisation {utilization:.0f} % over {run.samples} samples"
    held = run.since_held
    if held is not None and held.cpu is not None:
        evidence += f" while the command used {held.cpu:.0f} % of a core"
        start_up = held.rows[0].seconds
        if start_up >= marks.START_UP_NOTE:
            evidence += f" (the first {start_up:.0f} s, before it used the GPU, are not counted)"
    elif run.cpu is not None:
        evidence += f" while the command used {run.cpu:.0f} % of a core"
    cause, step = why_idle(run)
    return Judgement("idle", cause, evidence, (step,))


def why_idle(run: Run) -> tuple[str, str]:
    """The cause why no GPU worked, and the next step."""
    held = any(map(run.held, run.gpus))
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
    if held and kind in WAITS_FOR_PEOPLE:
        return WAITS_FOR_PEOPLE[kind]
    if cpu is None:
        return ("held", "see-where-it-waits") if held else ("unused", "watch-the-command")
    if held and cpu >= marks.MANY_THREADS:
        return "computes", "move-to-the-gpu"
    helpers_cpu = or_zero(whole_cpu) - cpu
    only_helpers = helpers_cpu >= marks.HELPER_CPU and cpu < marks.MANY_THREADS
    prepares = cpu >= marks.CORE_FULL if held else only_helpers
    if prepares:
        return "prepares", "prepare-once"
    return ("held", "see-where-it-waits") if held else ("unused", "see-whether-torch-can")


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
