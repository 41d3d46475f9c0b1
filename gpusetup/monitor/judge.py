"""The verdict on a run, with its next step, the ordered advice and the notes. Pure.

With several GPUs each is judged by itself (`alerts.py`), and the worst verdict is the run's, with
the GPU it is about. What else is beyond a mark becomes a note.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.frozen import replace
from gpusetup.monitor import marks
from gpusetup.monitor.alerts import (
    ORDER,
    Judged,
    active_brake,
    considered,
    judge_gpu,
    main_waits,
    workers_full,
)
from gpusetup.monitor.facts import GpuFacts, RunFacts
from gpusetup.monitor.steps import next_step, ordered_advice


def judge(facts: RunFacts) -> Judged:
    """The verdict with its evidence, one next step, the ordered advice, and the notes."""
    judged = _verdict(facts)
    low = judged.verdict not in (None, "idle") and _lowest(facts) < marks.LOW.value
    return replace(
        judged,
        next=next_step(judged.verdict, judged.cause, facts),
        advice=ordered_advice(facts) if low else (),
        notes=tuple(notes(facts)),
    )


def _verdict(facts: RunFacts) -> Judged:
    for question in (too_little, starving, idle, uneven):
        judged = question(facts)
        if judged is not None:
            return judged
    there = [gpu for gpu in at_work(facts) if gpu.lost_at is None]
    found = [(gpu, judge_gpu(gpu)) for gpu in there or at_work(facts)]
    gpu, worst = min(found, key=lambda pair: ORDER.index(pair[1].verdict or "good"))
    if len(facts.gpus) == 1 or worst.verdict == "good" or worst.evidence.startswith("GPU "):
        return worst
    return replace(worst, evidence=f"GPU {gpu.label}: {worst.evidence}")


def too_little(facts: RunFacts) -> Judged | None:
    if not facts.gpus:
        return Judged(verdict=None, evidence="no GPU was watched", cause="no-gpu")
    if all(gpu.utilization is None for gpu in facts.gpus):
        evidence = "no GPU told its utilisation (a MIG instance does not)"
        tight = [
            gpu for gpu in facts.gpus if (gpu.memory_p95_share or 0) >= marks.MEMORY_TIGHT.value
        ]
        if tight:
            share = f"{tight[0].memory_p95_share:.0f} %"
            return Judged(
                verdict="memory-tight", evidence=f"GPU {tight[0].label}: memory {share} (p95)"
            )
        return Judged(verdict=None, evidence=evidence)
    if facts.samples < marks.SHORT.value:
        return Judged(verdict=None, evidence=f"{facts.samples} samples are too few to judge")
    return None


def starving(facts: RunFacts) -> Judged | None:
    """A GPU that hardly works because its process waits for loader workers is not idle."""
    if at_work(facts):
        return None
    for gpu in facts.gpus:
        whole = gpu.whole
        if whole is None or not whole.utilization or whole.workers < 0.5:
            continue
        cause = workers_full(whole) or main_waits(whole)
        if cause is not None:
            reason, way = cause
            evidence = f"GPU {gpu.label} worked {whole.utilization:.1f} % of the time {reason}"
            return Judged(verdict="input-starved", evidence=evidence, cause=way)
    return None


def idle(facts: RunFacts) -> Judged | None:
    """No GPU ever worked."""
    if at_work(facts):
        return None
    used = max(gpu.utilization or 0.0 for gpu in facts.gpus)
    evidence = f"utilisation {used:.0f} % over {facts.samples} samples"
    if facts.cpu is not None:
        evidence += f" while the command used {facts.cpu:.0f} % of a core"
    held = any(gpu.has_process for gpu in facts.gpus)
    return Judged(verdict="idle", evidence=evidence, cause="held" if held else "unused")


def uneven(facts: RunFacts) -> Judged | None:
    """Of the GPUs that belong to the job, some work much less than others."""
    works = {gpu.label: considered(gpu) for gpu in at_work(facts)}
    mine = [gpu for gpu in facts.gpus if gpu.lost_at is None and belongs(gpu, facts)]
    means = {gpu.label: (w.utilization if (w := works.get(gpu.label)) else 0.0) for gpu in mine}
    if len(means) < 2 or max(means.values()) - min(means.values()) < marks.APART.value:
        return None
    least, most = (pick(means, key=lambda label: means[label]) for pick in (min, max))
    evidence = (
        f"GPU {least} worked {means[least]:.0f} % of the time, GPU {most} {means[most]:.0f} %"
    )
    return Judged(verdict="uneven", evidence=evidence, cause="none" if not means[least] else "less")


def at_work(facts: RunFacts) -> tuple[GpuFacts, ...]:
    return tuple(gpu for gpu in facts.gpus if worked(gpu))


def worked(gpu: GpuFacts) -> bool:
    """Not idle: neither stray kernels over a whole run nor a display count as work."""
    stray = (gpu.utilization or 0.0) < marks.IDLE.value
    calm = (gpu.utilization_p95 or 0.0) < marks.GAPS.value
    return considered(gpu) is not None and not (stray and calm)


def belongs(gpu: GpuFacts, facts: RunFacts) -> bool:
    """It works, or a process sits on it, or it is one of the few that do not."""
    count = len(at_work(facts))
    held = (gpu.memory_p95_share or 0.0) > marks.HELD.value
    return worked(gpu) or bool(gpu.has_process) or held or count > len(facts.gpus) - count


def _lowest(facts: RunFacts) -> float:
    return min((w.utilization for gpu in at_work(facts) if (w := considered(gpu))), default=0.0)


# --- notes ----------------------------------------------------------------------------------------


def notes(facts: RunFacts) -> Iterator[str]:
    for gpu in facts.gpus:
        who = f"GPU {gpu.label}"
        if gpu.lost_at is not None:
            yield f"{who} is lost since {gpu.lost_at}; `gpusetup doctor` says more"
            continue
        for note in (*memory_notes(gpu), *heat_notes(gpu), *time_notes(gpu)):
            yield f"{who}: {note}"
    count, unused = len(at_work(facts)), [g.label for g in facts.gpus if not belongs(g, facts)]
    if count and unused:
        yield f"not used: GPU {', '.join(unused)}"


def memory_notes(gpu: GpuFacts) -> Iterator[str]:
    share = gpu.memory_p95_share
    if share is None or not worked(gpu):
        return
    if share > marks.MEMORY_HIGH.value:
        yield f"memory {share:.0f} %, above the mark of {marks.MEMORY_HIGH.value:.0f} %"
    elif share < marks.MEMORY_LOW.value:
        yield f"memory {share:.0f} %: a larger batch would fit (the mark is 70 to 90 %)"


def heat_notes(gpu: GpuFacts) -> Iterator[str]:
    heat = gpu.temperature_p95
    if heat is not None and heat > marks.HOT.value:
        yield f"{heat:.0f} °C, above the mark of {marks.HOT.value:.0f} °C"
    capped = gpu.work.reasons.get("sw_power_cap", 0.0) if gpu.work else 0.0
    if capped >= marks.CAPPED.value and gpu.work and active_brake(gpu.work) is None:
        yield f"at its power limit in {capped:.0f} % of the work, as a busy GPU may be"


def time_notes(gpu: GpuFacts) -> Iterator[str]:
    if gpu.pauses:
        times = "once" if gpu.pauses == 1 else f"{gpu.pauses} times"
        share, longest = f"{gpu.pause_share:.0f} %", f"{gpu.longest_pause_seconds:.0f} s"
        yield f"paused {times}, {share} of its time, {longest} at most (evaluation, checkpoints?)"
