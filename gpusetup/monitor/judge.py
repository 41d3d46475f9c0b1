"""The verdict on a run, with its next steps. Pure.

With several GPUs each is judged by itself by the table of `verdicts.py`, and the worst verdict is
the run's, with the GPU it is about. What concerns the run as a whole is asked here: whether it ever
worked, and how it ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.cpu import judged_without_gpu
from gpusetup.monitor.documents import Verdict
from gpusetup.monitor.programs import kind_of
from gpusetup.monitor.run import Run, considered, worked
from gpusetup.monitor.subject import Subject
from gpusetup.monitor.tally import Gpu
from gpusetup.monitor.verdicts import ORDER, Case, case_of
from gpusetup.monitor.work import Work, below, or_zero
from gpusetup.readings.gpu_use import GpuUse, Use, gpu_use


class Judgement(NamedTuple):
    verdict: Verdict | None
    cause: str
    evidence: str
    steps: tuple[str, ...] = ()
    """Ids of next steps (`steps.STEPS`), the best first."""


def judge(run: Run) -> tuple[Judgement, Subject | None]:
    """The verdict with its evidence, and the GPU that it is about; None where it is the run."""
    judgement, subject = judgement_of(run)
    if not run.exit:
        return judgement, subject
    # A run that ended with an error: that comes first, and nothing of it is good.
    evidence = f"the command ended with exit {run.exit}; before, {judgement.evidence}"
    if judgement.verdict == "good":
        return Judgement(None, "failed", evidence, ("read-how-it-ended",)), subject
    return judgement._replace(evidence=evidence), subject


def judgement_of(run: Run) -> tuple[Judgement, Subject | None]:
    for question in RUN_VERDICTS:
        if judgement := question(run):
            return judgement, None
    subject, case = worst_case(run)
    is_hang_or_throttle = case.verdict == "throttled" or case.cause == "hang"
    unevenness = None if is_hang_or_throttle else uneven_work(run)
    if unevenness:
        return unevenness, None
    evidence = case.says(subject)
    names_its_gpu = evidence.startswith("GPU ")
    if len(run.gpus) > 1 and case.verdict != "good" and not names_its_gpu:
        evidence = f"GPU {subject.gpu.label}: {evidence}"
    return Judgement(case.verdict, case.cause, evidence, case.steps), subject


def worst_case(run: Run) -> tuple[Subject, Case]:
    """The GPU with the worst verdict, and its case in the table."""
    present_gpus = [gpu for gpu in run.at_work if gpu.lost_at is None] or run.at_work
    judged: list[tuple[Subject, Case]] = []
    for gpu in present_gpus:
        work = considered(gpu)
        if work is not None:
            subject = Subject(run, gpu, work)
            judged.append((subject, case_of(subject)))
    return min(judged, key=lambda pair: severity(pair[1]))


def severity(case: Case) -> int:
    """The order of the verdicts; memory that ended the run comes before all."""
    return -1 if case.cause == "before-the-end" else ORDER.index(case.verdict)


# --- of the run as a whole ------------------------------------------------------------------------


def lost_gpu(run: Run) -> Judgement | None:
    """A GPU was lost at work; one that the others never needed does not count."""
    lost = [gpu for gpu in run.gpus if gpu.lost_at is not None]
    if not lost or (run.at_work and not any(map(worked, lost))):
        return None
    first = min(lost, key=lambda gpu: gpu.lost_since)
    evidence = f"GPU {first.label} was lost at second {first.lost_since:.0f} of {run.seconds:.0f}"
    if not first.lost_since:
        evidence = f"GPU {first.label} was lost from the beginning"
    verdict: Verdict | None = "uneven" if len(run.gpus) > 1 else None
    return Judgement(verdict, "lost", evidence, ("see-why-it-was-lost",))


def no_gpu(run: Run) -> Judgement | None:
    """No GPU was watched: the command and the machine are judged (`cpu.py`)."""
    if run.gpus:
        return None
    verdict, cause, evidence, steps = judged_without_gpu(run)
    return Judgement(verdict, cause, evidence, steps)


def one_reading(run: Run) -> Judgement | None:
    """What one reading of nvidia-smi shows: how much the GPUs are used, but not why."""
    if not run.is_reading:
        return None
    gpu, picture = min(
        ((gpu, picture_of(gpu)) for gpu in run.gpus), key=lambda pair: USES.index(pair[1].use)
    )
    words = picture.words if len(run.gpus) == 1 else f"GPU {gpu.label}: {picture.words}"
    if picture.use == "unknown":
        return Judgement(None, "", words, ("ask-the-driver",))
    if picture.use == "idle":
        return Judgement(
            "idle", "one-reading", f"{words}: nothing ran at that moment", ("watch-the-command",)
        )
    if (gpu.memory.p95 or 0.0) >= marks.MEMORY_TIGHT:
        return Judgement("memory-tight", "margin", words, ("leave-a-margin",))
    if picture.use == "good":
        return Judgement("good", "", f"{words}: nothing slows it down")
    evidence = f"{words}: one reading shows how much it works, not why"
    return Judgement("bursty", "one-reading", evidence, ("watch-the-training",))


USES: tuple[Use, ...] = ("low", "fair", "good", "idle", "unknown")
"""Of several GPUs the first in this order is judged: others may be there for somebody else."""


def picture_of(gpu: Gpu) -> GpuUse:
    """How well a GPU is used, by its last sample."""
    latest = gpu.latest
    return gpu_use(
        latest.utilization_percent,
        latest.memory_used_bytes,
        latest.memory_total_bytes,
        gpu.has_process,
    )


def nothing_to_judge(run: Run) -> Judgement | None:
    readings = max(gpu.parts.whole.samples if gpu.parts.whole else 0 for gpu in run.gpus)
    if readings >= marks.LEAST_SAMPLES:
        return None
    evidence = f"{readings} of {run.samples} samples tell a utilisation: too few to judge"
    steps = ("ask-the-driver",) if readings < run.samples else ()
    return Judgement(None, "", evidence, steps)


def idle(run: Run) -> Judgement | None:
    """No GPU ever worked."""
    if run.at_work:
        return None
    utilization = max(gpu.utilization or 0.0 for gpu in run.gpus)
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
    rates = [gpu.parts.whole.network_rate or 0 for gpu in run.gpus if gpu.parts.whole]
    is_fetching = below(cpu, marks.CORE_FULL) and max(rates, default=0) >= marks.NETWORK_RATE
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
    has_context = max((gpu.memory_rose for gpu in run.gpus), default=0) >= marks.CUDA_CONTEXT
    return run.seconds < (marks.START_UP_SECONDS if has_context else marks.YOUNG_SECONDS)


def uneven_work(run: Run) -> Judgement | None:
    """Of the GPUs that belong to one job, some work much less than others; if all are always busy,
    their power tells which of them wait in a collective."""
    job_gpus = [gpu for gpu in run.gpus if gpu.lost_at is None and run.belongs(gpu)]
    works = {gpu.label: considered(gpu) if worked(gpu) else None for gpu in job_gpus}
    shares = {label: work.utilization if work else 0.0 for label, work in works.items()}
    power = {label: work.power_share for label, work in works.items() if work and work.power_share}
    mark, phrase = marks.USE_DIFFERENCE, "worked {:.0f} % of the time"
    if min(shares.values(), default=0.0) >= marks.BUSY and len(power) == len(shares):
        shares, mark, phrase = power, marks.POWER_DIFFERENCE, "drew {:.0f} % of its power limit"
    labels = sorted(shares, key=lambda label: shares[label])
    if not labels or shares[labels[-1]] - shares[labels[0]] < mark:
        return None
    ends = (labels[0], labels[-1])
    evidence = ", ".join(f"GPU {label} {phrase.format(shares[label])}" for label in ends)
    step = "balance-the-work" if run.launched else "one-process-each"
    return Judgement("uneven", "less" if shares[labels[0]] else "none", evidence, (step,))


def hang_in_collective(run: Run) -> Judgement | None:
    """Ranks that spin to the end after they worked, in a run that did not end well."""
    working = [gpu for gpu in run.at_work if gpu.lost_at is None]
    # If it is not known how the run ended, one rank may do something while the others wait.
    is_sure = run.exit is not None or all(spins_to_the_end(g, marks.HANG_SECONDS) for g in working)
    seconds = marks.HANG_SECONDS if is_sure else marks.HANG_SECONDS_UNENDED
    spinning = [gpu for gpu in working if spins_to_the_end(gpu, seconds)]
    if run.exit == 0 or not spinning or len(spinning) * 2 < len(working):
        return None
    of_a_job = run.launched or run.nodes > 1
    if len(working) < 2 and not (of_a_job and run.exit):
        return None
    first = min((gpu.tail for gpu in spinning if gpu.tail), key=lambda tail: tail.since)
    evidence = no_progress_since(first.since, run)
    evidence += f" {len(spinning)} GPU{'s' if len(spinning) > 1 else ''} looked busy"
    resting = [gpu.label for gpu in working if gpu not in spinning and gpu.parts.rest]
    if resting:
        evidence += f", GPU {', '.join(resting)} did nothing"
    evidence += ", and nothing moved: a rank waits in a collective for another rank"
    return Judgement("communication-bound", "hang", evidence, ("see-where-it-waits",))


def no_progress_since(second: float, run: Run) -> str:
    return f"the job has not moved since second {second:.0f} of {run.seconds:.0f}:"


def spins_to_the_end(gpu: Gpu, seconds: float) -> bool:
    """Whether it looked busy for so long at the end, moved nothing and drew less than before."""
    tail = gpu.tail
    if tail is None or tail.seconds < seconds or not nothing_moves(tail.work):
        return False
    watts_before = tail.before.power_watts if tail.before else None
    return (watts_before or 0.0) >= (tail.work.power_watts or math.inf) * marks.POWER_DROP


def nothing_moves(work: Work) -> bool:
    rates = (
        (work.link_rate, marks.NVLINK_RATE),
        (work.pcie_rate, marks.PCIE_RATE),
        (work.network_rate, marks.NETWORK_RATE),
        (work.read_rate, marks.READ_RATE),
        (work.write_rate, marks.WRITE_RATE),
    )
    return all((rate or 0.0) < mark for rate, mark in rates)


def standstill(run: Run) -> Judgement | None:
    """Every GPU quiet and the processes at rest, until somebody ended the run, or long enough."""
    if run.exit == 0 or not run.at_work or run.kind in ("server", "notebook"):
        return None
    if not all(rests_to_the_end(gpu, run) for gpu in run.at_work):
        return None
    since = max(gpu.tally.quiet_since or 0.0 for gpu in run.at_work)
    rested = "its GPUs did nothing, its processes rested, and nothing was read"
    evidence = f"{no_progress_since(since, run)} {rested}"
    return Judgement("bursty", "hang", evidence, ("see-where-it-waits",))


def rests_to_the_end(gpu: Gpu, run: Run) -> bool:
    """Whether GPU and processes did nothing for long enough at the end."""
    rest, since = gpu.parts.rest, gpu.tally.quiet_since
    seconds = marks.HANG_SECONDS_UNENDED if run.exit is None else marks.HANG_SECONDS
    if rest is None or since is None or run.seconds - since < seconds:
        return False
    return rest.cpu is not None and rest.cpu < marks.RESTING_CPU and nothing_moves(rest)


RUN_VERDICTS: tuple[Callable[[Run], Judgement | None], ...] = (
    lost_gpu,
    no_gpu,
    one_reading,
    nothing_to_judge,
    idle,
    hang_in_collective,
    standstill,
)
"""Asked in this order; the first that judges is the verdict. What was before a run stopped to make
progress says nothing about it."""
