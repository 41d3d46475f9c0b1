"""Which GPUs of a run work, and which of them on one job. Pure."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.facts import GpuFacts, RunFacts, Work


def at_work(facts: RunFacts) -> tuple[GpuFacts, ...]:
    return tuple(gpu for gpu in facts.gpus if worked(gpu))


def worked(gpu: GpuFacts) -> bool:
    """Not idle: neither stray kernels over a whole run nor a display count as work."""
    stray = (gpu.utilization or 0.0) < marks.IDLE.value
    calm = (gpu.utilization_p95 or 0.0) < marks.GAPS.value
    return considered(gpu) is not None and not (stray and calm) and not drawn(gpu)


def drawn(gpu: GpuFacts) -> bool:
    """Only programs that draw are on it, and they do not work it hard; or nobody told who is, and
    it does what a desktop does."""
    used = gpu.utilization or 0.0
    if gpu.has_process is not None:
        return gpu.only_display and used < marks.LOW.value
    watched = gpu.whole is not None and gpu.whole.busiest_cpu is not None
    faint = used < marks.FAINT.value and (gpu.utilization_p95 or 0.0) < marks.FAINT_MOST.value
    share = gpu.memory_p95_share
    return faint and not watched and share is not None and share < marks.FAINT_MEMORY.value


def considered(gpu: GpuFacts) -> Work | None:
    """Its work without the pauses, unless the pauses are the problem."""
    return gpu.body if gpu.pause_share > marks.WAITS.value else gpu.work


def belongs(gpu: GpuFacts, facts: RunFacts) -> bool:
    """It works, or a process that computes sits on it, or it is one of the few that do not."""
    if gpu.only_display and not worked(gpu):
        return False
    count = len(at_work(facts))
    held = (gpu.memory_p95_share or 0.0) > marks.HELD.value and gpu.has_process is None
    few = count > len(facts.gpus) - count and (facts.ranks is None or facts.ranks > 1 or count > 1)
    return worked(gpu) or bool(gpu.has_process) or held or few


def team(gpu: GpuFacts, facts: RunFacts) -> tuple[GpuFacts, ...]:
    """The GPUs at work on the same job: all of a command; else those that share a process, or
    whose processes have one name and take like amounts of memory."""
    working = at_work(facts)
    if facts.command or facts.ranks:
        return working
    return tuple(one for one in working if one is gpu or _alike(one, gpu))


def _alike(one: GpuFacts, other: GpuFacts) -> bool:
    if one.name != other.name:
        return False
    if set(one.holders) & set(other.holders):
        return True
    if one.holders and other.holders and one.names != other.names:
        return False
    shares = [gpu.memory_p95_share or 0.0 for gpu in (one, other)]
    return max(shares) - min(shares) <= marks.LIKE_MEMORY.value
