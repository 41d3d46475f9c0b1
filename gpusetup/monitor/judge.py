"""Finds the verdict on a run and its next steps. Pure functions.

If there are several GPUs, each is judged separately by the table in `verdicts.py`, and the run gets
the worst of these verdicts, along with the GPU that it is about. This module also judges the run as
a whole: whether it ever worked, and how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import NamedTuple

from gpusetup.model.documents import Verdict
from gpusetup.model.units import GIB
from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.run import Subject, WatchedRun
from gpusetup.monitor.signs import Sign
from gpusetup.monitor.verdicts import ORDER, VerdictCase, case_of
from gpusetup.monitor.words import filled, labels, reasons_that_cost_little
from gpusetup.monitor.work import (
    Work,
    at_least,
    below,
    is_quiet,
    or_zero,
    percent,
    percentile,
    work_of,
)
from gpusetup.readings.gpu_use import GpuUse, Use, gpu_use


class Judgement(NamedTuple):
    verdict: Verdict | None
    cause: str
    evidence: str
    steps: tuple[str, ...] = ()
    """Ids of next steps (`steps.STEPS`), with the best first."""
    subject: Subject | None = None
    """The GPU that the verdict is about; None for the whole run."""


def of_case(case: VerdictCase, subject: Subject) -> Judgement:
    evidence = filled(case.sentence, subject)
    return Judgement(case.verdict, case.cause, evidence, case.steps, subject)


def judge(run: WatchedRun) -> Judgement:
    """The verdict on a run. It takes into account whether the command failed, and with which
    error."""
    judgement = judgement_of(run)
    if not run.exit:
        return judgement
    # If the command ended with an error, say so first; such a run is never "good".
    reason = f": {run.error}" if run.error else ""
    ended = f"the command ended with exit {run.exit}{reason}; before, {judgement.evidence}"
    if judgement.verdict == "good":
        return Judgement(None, "failed", ended, ("read-how-it-ended",), judgement.subject)
    # Full memory, a lost GPU or a hang may be why it failed; what made it slow is not.
    explains_it = judgement.verdict in ("memory-tight", "faulty") or judgement.cause == "hang"
    first = ("read-how-it-ended",) if run.error and not explains_it else ()
    return judgement._replace(evidence=ended, steps=(*first, *judgement.steps))


def judgement_of(run: WatchedRun) -> Judgement:
    """The verdict on a run, regardless of the command's exit code."""
    for question in RUN_VERDICTS:
        judgement = question(run)
        if judgement:
            return judgement
    # The working GPU with the worst verdict. If several are equally bad, the first is named.
    judged = [(subject, case_of(subject)) for subject in run.subjects]
    subject, case = min(judged, key=lambda pair: rank_of(pair[1]))
    # One throttled card makes the others wait, and a hang looks uneven too.
    explains_it = case.verdict == "throttled" or case.cause == "hang"
    unevenness = None if explains_it else uneven_work(run)
    if unevenness:
        return unevenness
    if case.verdict == "good":
        return good_or_to_act_on(run, subject, case)
    judgement = of_case(case, subject)
    # Some sentences of the table name the GPU themselves.
    if len(run.gpus) == 1 or judgement.evidence.startswith("GPU "):
        return judgement
    return judgement._replace(evidence=f"GPU {subject.gpu.label}: {judgement.evidence}")


def rank_of(case: VerdictCase) -> tuple[bool, int]:
    """A sort key that puts the worst verdict first, and memory that ended the run before all."""
    return (case.cause not in ("before-the-end", "leak"), ORDER.index(case.verdict))


def good_or_to_act_on(run: WatchedRun, subject: Subject, case: VerdictCase) -> Judgement:
    """The verdict on a run whose GPUs are used well. If one of them has a finding, the first one is
    mentioned and provides the next step."""
    for one in run.subjects:
        for is_seen, words, step in FINDINGS:
            if is_seen(one):
                finding = filled(words, one)
                evidence = f"{filled('{well_used}', one)} while it worked, but {finding}"
                if len(run.gpus) > 1 and "GPU " not in finding:
                    evidence = f"GPU {one.gpu.label}: {evidence}"
                return Judgement("good", case.cause, evidence, (step,), one)
    return of_case(case, subject)


END_OF_WORK = (
    "its work ended at second {gpu.ended_at} of {run.seconds}, and its memory ({most_memory}) was "
    "freed: the process ended"
)
FINDINGS: tuple[tuple[Sign, str, str], ...] = (
    (s.memory_grew & ~s.server, "{memory_growth}; a leak?", "find-the-leak"),
    (s.work_ended, END_OF_WORK, "see-how-it-ended"),
    (s.shared_by_programs,
     "GPU {gpu.label} is shared by {others}; each may get only a part of its time",
     "see-whose-they-are"),
    (s.leaves_others_unused, "GPU {unused} did nothing", "use-the-other-gpus"),
)  # fmt: skip
"""What the user should act on even if the working GPUs are used well, with the most urgent first:
the sign, a sentence, and the next step."""

# --- verdicts on the whole run --------------------------------------------------------------------


def lost_gpu(run: WatchedRun) -> Judgement | None:
    """The verdict on a run in which a GPU was lost; None if no GPU was lost, or if the command's
    other GPUs kept working and never needed it."""
    lost = [gpu for gpu in run.gpus if gpu.lost_at is not None]
    others_suffice = run.command is not None and run.at_work
    if not lost or (others_suffice and not any(gpu.worked for gpu in lost)):
        return None
    since = min(gpu.lost_since for gpu in lost)
    first = [gpu for gpu in lost if gpu.lost_since == since]
    time = f"at second {since:.0f} of {run.seconds:.0f}" if since else "from the beginning"
    evidence = f"GPU {labels(first)} {'was' if len(first) == 1 else 'were'} lost {time}"
    problem = first[0].rows[-1].gpu.problem or "the driver cannot read its values"
    evidence += f": {problem}"
    return Judgement("faulty", "lost", evidence, ("see-why-it-was-lost",))


def faulty_memory(run: WatchedRun) -> Judgement | None:
    """The verdict on a run with a GPU whose driver reports faulty memory, however well it works."""
    faulty = [gpu for gpu in run.gpus if gpu.latest.fault]
    if not faulty:
        return None
    told = "; ".join(f"GPU {gpu.label}: {gpu.latest.fault}" for gpu in faulty)
    work = faulty[0].judged
    subject = Subject(run, faulty[0], work) if work else None
    return Judgement("faulty", "memory-errors", told, ("reset-the-gpu",), subject)


def no_gpu(run: WatchedRun) -> Judgement | None:
    """The verdict on the command if no GPU was watched: the machine may have only a CPU, a GPU from
    another maker, or no driver."""
    if run.gpus:
        return None
    rows = [row for row in run.rows if row.tree is not None]
    if len(rows) >= marks.LEAST_TREES:
        subject = Subject(run, run.machine, Work(rows))
        judgement = of_case(case_of(subject), subject)
        return judgement._replace(evidence=f"{judgement.evidence} (no GPU was watched)")
    # If a command ended at once, a single sample says nothing about it.
    reason = "the command ended too soon to be judged" if rows else "no command"
    return Judgement(None, "", f"no GPU was watched, and {reason}", ("see-why-no-gpu",))


USES: tuple[Use, ...] = ("low", "fair", "good", "idle", "unknown")
"""Among several GPUs, the first in this order is judged, because others may be reserved for
somebody else."""


BARE_CONTEXT = 600 << 20
"""Bytes: a CUDA context without any data takes at most this much, on an H100."""


def picture_of(gpu: GpuRun) -> GpuUse:
    """How well a GPU is used, according to its last sample."""
    last = gpu.latest
    memory = (last.memory_used_bytes, last.memory_total_bytes)
    return gpu_use(last.utilization_percent, *memory, gpu.has_process)


def is_throttled(run: WatchedRun) -> bool:
    return any(case_of(one).verdict == "throttled" for one in run.subjects)


def slowed_by_heat(run: WatchedRun) -> Judgement | None:
    """The verdict on a recording without utilisation whose driver reports a thermal slowdown, which
    only a working GPU has; None for any other."""
    for gpu in run.gpus:
        subject = Subject(run, gpu, Work(gpu.rows))
        if gpu.utilization is None and subject.throttle and subject.throttle.cause == "heat":
            words = "GPU {gpu.label}: {slowed}, at {gpu.heat} °C (no utilisation in this recording)"
            return Judgement("throttled", "heat", filled(words, subject), ("cool",), subject)
    return None


def one_reading(run: WatchedRun) -> Judgement | None:
    """The verdict on a single output of nvidia-smi, which shows how much the GPUs are used but not
    why; None for a longer run, and for throttled clocks, whose reason the figures show.

    The order matters: full memory is the most urgent, and a shared GPU explains its use.
    """
    if not run.is_reading or is_throttled(run):
        return None
    pictures = [(gpu, picture_of(gpu)) for gpu in run.gpus]
    gpu, picture = min(pictures, key=lambda pair: USES.index(pair[1].use))
    words = picture.words if len(run.gpus) == 1 else f"GPU {gpu.label}: {picture.words}"
    if picture.use == "idle":
        idle_gpus = [one for one, its_picture in pictures if its_picture.use == "idle"]
        return idle_reading(idle_gpus, words)
    if picture.use == "unknown":
        return Judgement(None, "", words, ("ask-the-driver",))
    # Report nearly full memory at any utilisation, because the next allocation may fail. A
    # percentile of one reading is the reading itself.
    if at_least(gpu.memory.p95, marks.MEMORY_TIGHT):
        return Judgement("memory-tight", "margin", words, ("leave-a-margin",))
    # A GPU that is not fully used for an unknown reason is "bursty", as in a run.
    subject = next((one for one in run.subjects if one.gpu is gpu), None)
    if subject and s.shared_by_programs(subject) and run.unused_gpus:
        shared = filled("shared by {others}, while GPU {unused} is free", subject)
        evidence = f"{words}: it is {shared}; each may get only a part of its time"
        return Judgement("bursty", "one-reading", evidence, ("see-whose-they-are",), subject)
    if picture.use != "good":
        evidence = f"{words}: one reading shows how much it works, not why"
        return Judgement("bursty", "one-reading", evidence, ("watch-the-command",), subject)
    end = reasons_that_cost_little(run) or ": nothing slows it down"
    return Judgement("good", "", f"{words}{end}")


def idle_reading(idle_gpus: Sequence[GpuRun], words: str) -> Judgement:
    """The verdict on a single output of nvidia-smi in which these GPUs do nothing; `words` are the
    figures of the first."""
    first = idle_gpus[0]
    if len(idle_gpus) > 1:
        # Each has its own figures in the table; one sentence is for all of them.
        used = sum(or_zero(one.latest.memory_used_bytes) for one in idle_gpus) / GIB
        words = f"GPU {labels(idle_gpus)}: utilisation below 5 %, {used:.1f} GiB of memory in use"
    # A process that holds less than a small model on the GPU may compute elsewhere.
    is_bare = first.holders and or_zero(first.latest.memory_used_bytes) < BARE_CONTEXT
    step = "see-whether-torch-can" if is_bare or first.only_draws else "watch-the-command"
    evidence = f"{words}: nothing ran at that moment"
    return Judgement("idle", "one-reading", evidence, (step,))


def uneven_reading(run: WatchedRun) -> Judgement | None:
    """The verdict on a single reading in which a GPU works much less than one of its model with the
    same programs, as a rank whose others wait for it, or beside the first GPU of DataParallel; None
    if none does."""
    if not run.is_reading:
        return None
    for less, more in permutations(filter(run.held, run.gpus), 2):
        difference = or_zero(more.utilization) - or_zero(less.utilization)
        # The uses first: a file may name hundreds of GPUs, and comparing their programs is slow.
        if difference < marks.USE_DIFFERENCE:
            continue
        if (less.name, less.programs) != (more.name, more.programs):
            continue
        more_memory = or_zero(more.memory.p95) - or_zero(less.memory.p95)
        subject = Subject(run, less, Work(less.rows))
        rests = below(less.utilization, marks.IDLE) and at_least(more.utilization, marks.BUSY)
        if rests and abs(more_memory) <= marks.ALIKE:
            words = (
                f"GPU {less.label} did nothing, with as much memory in use as GPU {more.label}, "
                "which looked busy: look again; if it stays so, the others wait for its rank"
            )
            return Judgement("uneven", "one-reading", words, ("see-where-it-waits",), subject)
        # With the same memory, different uses at one moment may be chance.
        if not rests and more_memory >= marks.USE_DIFFERENCE:
            words = " and ".join(
                f"GPU {gpu.label} worked {gpu.utilization:.0f} % with {gpu.memory.p95:.0f} % of "
                "its memory in use"
                for gpu in (more, less)
            )
            return Judgement("uneven", "one-reading", words, ("balance-the-work",), subject)
    return None


def nothing_to_judge(run: WatchedRun) -> Judgement | None:
    """A result without a verdict if too few samples report utilisation; None if there are
    enough."""
    told = [
        [row for row in gpu.rows if row.gpu.utilization_percent is not None] for gpu in run.gpus
    ]
    readings = max(map(len, told), default=0)
    if run.is_reading:
        return None
    if readings >= marks.LEAST_SAMPLES:
        is_short = run.samples < marks.FEW_SAMPLES and run.seconds < marks.SHORT_SECONDS
        # A throttled clock shows in any sample, and an idle GPU is said to be one.
        if not (is_short and run.is_log and run.at_work) or is_throttled(run):
            return None
        evidence = f"{run.samples} samples in {run.seconds:.0f} s are too few to judge"
        return Judgement(None, "too-short", evidence, ("record-longer",))
    evidence = f"{readings} of {run.samples} samples tell a utilisation: too few to judge"
    # With MIG, on old cards and in a log without the column, watching longer does not help.
    return Judgement(None, "", evidence, ("ask-the-driver",) if readings < run.samples else ())


def idle(run: WatchedRun) -> Judgement | None:
    """The verdict on a run in which no GPU worked; None if at least one did."""
    if run.at_work:
        return None
    gpu = next(filter(run.held, run.gpus), run.gpus[0])
    # In the first half, the program may still start.
    subject = Subject(run, gpu, Work(run.rows[len(run.rows) // 2 :]))
    return of_case(case_of(subject), subject)


def hang(run: WatchedRun) -> Judgement | None:
    """The verdict on a job that did not end well and whose GPUs look busy at the end without moving
    data, because ranks wait in a collective; None for any other."""
    working = [gpu for gpu in run.at_work if gpu.lost_at is None]
    if run.exit == 0 or not working:
        return None
    spinning = [gpu for gpu in working if spins_to_the_end(gpu, marks.HANG_SECONDS)]
    # A GPU that still works may only save a checkpoint while the others wait for it.
    if len(spinning) < len(working) and run.exit is None:
        spinning = [gpu for gpu in spinning if spins_to_the_end(gpu, marks.HANG_SECONDS_UNENDED)]
    held = [gpu for gpu in run.gpus if gpu.worked or run.held(gpu)]
    # One spinning GPU of a job that failed may have waited for ranks on other machines.
    waits_for_others = len(held) > 1 or (run.launched and bool(run.exit))
    if not waits_for_others or not spinning or len(spinning) * 2 < len(working):
        return None
    words = (
        f"the job has made no progress for {marks.HANG_SECONDS:.0f} s or more: GPU "
        f"{labels(spinning)} looked busy, and no data moved: a rank waits in a collective "
        "for another rank"
    )
    return Judgement("communication-bound", "hang", words, ("see-where-it-waits",))


def spins_to_the_end(gpu: GpuRun, seconds: float) -> bool:
    """Whether the GPU looked busy in the last `seconds` of its work, but moved no data and drew
    much less power than before, as a GPU whose kernels poll for another rank's data."""
    rows = [row for row in gpu.rows if not is_quiet(row.gpu) and row.gpu.utilization_percent]
    # The last two samples may show work, because a process that is killed may still run kernels.
    working = rows[:-2]
    since = working[-1].seconds - seconds if working else 0.0
    tail = work_of([row for row in working if row.seconds > since])
    # The work itself, because a hang may have lasted for much longer than it.
    watts = [or_zero(row.gpu.power_watts) for row in working if row.seconds <= since]
    if tail is None or not watts:
        return False
    is_busy = tail.utilization_p5 >= marks.SPINNING_USE
    is_light = below(tail.power_share, marks.IDLE_POWER + marks.LIGHT_POWER)
    if tail.power_share is None:
        # A log of dmon has no limit; then the memory has to be idle as well.
        is_light = below(tail.memory_busy, marks.QUIET)
    drops = at_least(percent(percentile(watts, 95), tail.power_watts), marks.POWER_DROP * 100)
    return is_busy and is_light and drops and nothing_moves(tail)


def nothing_moves(work: Work) -> bool:
    """Whether NVLink, PCIe, network and disk transfer less than real work needs; an unknown rate
    counts as 0. It is not a hang if one rank saves or loads while the others wait."""
    rates = (
        (work.link_rate, marks.NVLINK_RATE),
        (work.pcie_rate, marks.PCIE_RATE),
        (work.network_rate, marks.NETWORK_RATE),
        (work.read_rate, marks.READ_RATE),
        (work.write_rate, marks.WRITE_RATE),
    )
    return all(or_zero(rate) < rate_of_work for rate, rate_of_work in rates)


RUN_VERDICTS: tuple[Callable[[WatchedRun], Judgement | None], ...] = (
    *(lost_gpu, faulty_memory, no_gpu, slowed_by_heat, uneven_reading, one_reading),
    *(nothing_to_judge, idle, hang),
)
"""Functions that are called in this order; the first verdict that is not None counts."""

# --- several GPUs ---------------------------------------------------------------------------------


def uneven_work(run: WatchedRun) -> Judgement | None:
    """The verdict on a job in which one GPU works much less than another; None if they work about
    equally.

    If all of them are always busy, their power shows which of them wait in a collective.
    """
    present = [gpu for gpu in run.gpus if gpu.lost_at is None and (gpu.worked or run.held(gpu))]
    works = {gpu.label: gpu.judged if gpu.worked else None for gpu in present}
    # A rank that never computed counts as 0 %.
    uses = {label: work.utilization if work else 0.0 for label, work in works.items()}
    power = {label: work.power_share for label, work in works.items() if work and work.power_share}
    if not uses:
        return None
    shares, mark, phrase = uses, marks.USE_DIFFERENCE, "worked {:.0f} % of the time"
    if min(uses.values()) >= marks.BUSY and len(power) == len(uses):
        shares, mark, phrase = power, marks.POWER_DIFFERENCE, "drew {:.0f} % of its power limit"
    least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    if shares[most] - shares[least] < mark:
        return None
    words = ", ".join(f"GPU {label} {phrase.format(shares[label])}" for label in (least, most))
    return Judgement("uneven", "less", words, ("balance-the-work",))
