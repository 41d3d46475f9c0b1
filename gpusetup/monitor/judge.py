"""Finds the verdict on a run and its next steps. Pure functions.

If there are several GPUs, each is judged separately by the table in `verdicts.py`, and the run gets
the worst of these verdicts, along with the GPU that it is about. This module also judges the run as
a whole: whether it ever worked, and how it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusetup.model.documents import Verdict
from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.notes import gpu_notes
from gpusetup.monitor.run import Subject, WatchedRun
from gpusetup.monitor.verdicts import HANG, ORDER, VerdictCase, case_of
from gpusetup.monitor.words import filled, labels, with_gpu_names
from gpusetup.monitor.work import Work, is_quiet, or_zero


class Judgement(NamedTuple):
    verdict: Verdict | None
    cause: str
    evidence: str
    steps: tuple[str, ...] = ()
    """Ids of next steps (`steps.STEPS`), with the best first."""
    subject: Subject | None = None
    """The GPU that the verdict is about; None for the whole run."""


def judgement_of_case(case: VerdictCase, subject: Subject) -> Judgement:
    """The judgement for a row of the tables, with this subject's figures in its sentence."""
    evidence = filled(case.sentence, subject)
    return Judgement(case.verdict, case.cause, evidence, case.steps, subject)


def judge(run: WatchedRun) -> Judgement:
    """The verdict on a run, with regard to whether the command failed, and with which error."""
    judgement = judgement_before_exit(run)
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


def judgement_before_exit(run: WatchedRun) -> Judgement:
    """The verdict on a run, regardless of the command's exit code."""
    for question in RUN_VERDICTS:
        judgement = question(run)
        if judgement:
            return judgement
    # The working GPU with the worst verdict. If several are equally bad, the first is named.
    cases = {subject: case_of(subject) for subject in run.subjects}
    subject = min(cases, key=lambda subject: rank_of(cases[subject]))
    case = cases[subject]
    # One throttled card makes the others wait.
    unevenness = None if case.verdict == "throttled" else uneven_work(run)
    if unevenness:
        return unevenness
    if case.verdict == "good":
        return good_judgement(run, subject, case)
    judgement = judgement_of_case(case, subject)
    return judgement._replace(evidence=with_gpu_if_several(run, subject, judgement.evidence))


def with_gpu_if_several(run: WatchedRun, subject: Subject, words: str) -> str:
    """The words, after the name of the GPU if the run has several."""
    return words if len(run.gpus) == 1 else with_gpu_names((subject.gpu,), words)


def rank_of(case: VerdictCase) -> tuple[bool, int]:
    """A sort key that puts the worst verdict first, and memory that ended the run before all."""
    # False sorts before True.
    return (case.cause not in ("before-the-end", "leak"), ORDER.index(case.verdict))


def good_judgement(run: WatchedRun, subject: Subject, case: VerdictCase) -> Judgement:
    """The verdict on a run whose GPUs are used well. If a note asks for a step, such as GPUs that
    did nothing, the verdict has the first such note in its sentence and its step as the next."""
    for note in gpu_notes(run):
        if note.step:
            evidence = f"{filled('{well_used}', note.subject)} while it worked, but {note.words}"
            evidence = with_gpu_if_several(run, note.subject, evidence)
            return Judgement("good", case.cause, evidence, (note.step,), note.subject)
    return judgement_of_case(case, subject)


# --- verdicts on the whole run --------------------------------------------------------------------


def lost_gpu(run: WatchedRun) -> Judgement | None:
    """The verdict on a run in which a GPU was lost; None if no GPU was lost."""
    seconds = {gpu: gpu.lost_since.seconds for gpu in run.gpus if gpu.lost_since}
    if not seconds:
        return None
    since = min(seconds.values())
    first = [gpu for gpu in seconds if seconds[gpu] == since]
    time = f"at second {since:.0f} of {run.seconds:.0f}" if since else "from the beginning"
    verb = "was" if len(first) == 1 else "were"
    problem = first[0].rows[-1].gpu.problem or "the driver cannot read its values"
    evidence = f"GPU {labels(first)} {verb} lost {time}: {problem}"
    return Judgement("faulty", "lost", evidence, ("see-why-it-was-lost",))


def faulty_memory(run: WatchedRun) -> Judgement | None:
    """The verdict on a run with a GPU whose driver reports faulty memory, however well it works."""
    faulty = [gpu for gpu in run.gpus if gpu.latest.fault]
    if not faulty:
        return None
    faults = "; ".join(f"GPU {gpu.label}: {gpu.latest.fault}" for gpu in faulty)
    return Judgement("faulty", "memory-errors", faults, ("reset-the-gpu",))


def no_gpu(run: WatchedRun) -> Judgement | None:
    """The verdict on the command if no GPU was watched: the machine may have only a CPU, a GPU from
    another maker, or no driver."""
    if run.gpus:
        return None
    rows = [row for row in run.rows if row.sample.tree is not None]
    if len(rows) >= marks.LEAST_TREES:
        subject = Subject(run, run.machine, Work(rows))
        judgement = judgement_of_case(case_of(subject), subject)
        return judgement._replace(evidence=f"{judgement.evidence} (no GPU was watched)")
    # The samples of a command that ended at once are too few.
    reason = "the command ended too soon to be judged" if rows else "no command"
    return Judgement(None, "", f"no GPU was watched, and {reason}", ("see-why-no-gpu",))


def nothing_to_judge(run: WatchedRun) -> Judgement | None:
    """A result without a verdict if few samples report utilisation; None if enough do."""
    readings = max(len(gpu.measured_rows) for gpu in run.gpus)
    # One output of nvidia-smi has its own verdicts, even if it is a single sample.
    if readings >= marks.LEAST_SAMPLES or (readings and run.is_one_reading):
        return None
    samples = f"{readings} of {run.samples} samples show" if readings else "no sample shows"
    evidence = f"{samples} the utilisation, which is too little for a verdict"
    # With MIG, on old cards and in a log without the column, watching longer does not help.
    return Judgement(None, "", evidence, ("ask-the-driver",) if readings < run.samples else ())


def idle(run: WatchedRun) -> Judgement | None:
    """The verdict on a run in which no GPU worked; None if at least one did."""
    if run.working_gpus:
        return None
    # The first GPU with a process on it or, if there is none, the first GPU.
    gpu = next((gpu for gpu in run.gpus if gpu.was_occupied), run.gpus[0])
    # In the first half, the program may still start.
    subject = Subject(run, gpu, Work(run.rows[len(run.rows) // 2 :]))
    return judgement_of_case(case_of(subject), subject)


def hang(run: WatchedRun) -> Judgement | None:
    """The verdict on a job that did not end well and whose GPUs only waited for another rank at the
    end, although they worked before; None for any other."""
    present = [gpu for gpu in run.working_gpus if not gpu.lost_since]
    at_the_end = [Subject(run, gpu, last_work(gpu)) for gpu in present]
    # A command that ended with 0 did not hang.
    if run.exit == 0 or not at_the_end or not all(map(s.waits_for_a_rank, at_the_end)):
        return None
    return judgement_of_case(HANG, at_the_end[0])


def last_work(gpu: GpuRun) -> Work:
    """The last `HANG_SECONDS` of a GPU's work."""
    rows = [row for row in gpu.measured_rows if not is_quiet(row.gpu)]
    # The last two samples may show work, because a process that is killed may still run kernels.
    rows = rows[:-2] or rows
    return Work([row for row in rows if row.seconds >= rows[-1].seconds - marks.HANG_SECONDS])


RUN_VERDICTS: tuple[Callable[[WatchedRun], Judgement | None], ...] = (
    *(lost_gpu, faulty_memory, no_gpu, nothing_to_judge, idle, hang),
)
"""Functions that are called in this order; the first verdict that is not None counts."""

# --- several GPUs ---------------------------------------------------------------------------------


def uneven_work(run: WatchedRun) -> Judgement | None:
    """The verdict on a job in which one GPU works much less than another; None if they work about
    equally.

    If all of them are always busy, their power shows which of them wait in a collective, because
    the kernels that wait there count as work.
    """
    # Without the lost GPUs, and those that no process of the job uses.
    present = [gpu for gpu in run.gpus if not gpu.lost_since and (gpu.worked or gpu.was_occupied)]
    if not present:
        return None
    memory = [or_zero(gpu.memory.p95) for gpu in present]
    # The GPUs of one reading may have different jobs; the ranks of one job use similar memory.
    if run.is_one_reading and max(memory) - min(memory) > marks.SIMILAR:
        return None
    works = {gpu.label: gpu.judged_work if gpu.worked else None for gpu in present}
    # A rank that never computed counts as 0 %.
    uses = {label: work.utilization if work else 0.0 for label, work in works.items()}
    power = {label: work.power_share for label, work in works.items() if work and work.power_share}
    if min(uses.values()) < marks.BUSY:
        shares, mark, phrase = uses, marks.USE_DIFFERENCE, "was busy {:.0f} % of the time"
    elif len(power) == len(uses):  # all are busy, and all report their power
        shares, mark, phrase = power, marks.POWER_DIFFERENCE, "drew {:.0f} % of its power limit"
    else:
        return None
    lowest, highest = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    if shares[highest] - shares[lowest] < mark:
        return None
    words = ", ".join(f"GPU {label} {phrase.format(shares[label])}" for label in (lowest, highest))
    return Judgement("uneven", "less", words, ("balance-the-work",))
