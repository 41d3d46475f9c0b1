"""Finds the verdict on a run and its next steps. Pure functions.

If there are several GPUs, each is judged separately by the table in `verdicts.py`, and the run gets
the worst of these verdicts, along with the GPU that it is about. This module also judges the run as
a whole: whether it ever worked, and how it ended.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.monitor import marks
from gpusetup.monitor.cpu import judged_without_gpu
from gpusetup.monitor.evidence import well_used
from gpusetup.monitor.findings import findings_on, unreported, words_for_sharers
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.hangs import hang_in_collective, standstill
from gpusetup.monitor.health import faulty_memory
from gpusetup.monitor.idle import idle
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.losses import reason_of
from gpusetup.monitor.peers import equally_judged, subjects_of
from gpusetup.monitor.run import WatchedRun, considered, worked
from gpusetup.monitor.subject import Subject
from gpusetup.monitor.verdicts import ORDER, VerdictCase, case_of
from gpusetup.monitor.work import at_least, or_zero
from gpusetup.readings.gpu_use import GpuUse, Use, gpu_use


def judge(run: WatchedRun, error: str | None = None) -> tuple[Judgement, Subject | None]:
    """The verdict on a run, and the GPU that it is about (None for the whole run). It takes into
    account whether the command failed, and with which error."""
    judgement, subject = judgement_of(run)
    if not run.exit:
        return judgement, subject
    # If the command ended with an error, say so first; such a run is never "good".
    before = judgement.evidence
    reason = f": {error}" if error else ""
    evidence = f"the command ended with exit {run.exit}{reason}; before, {before}"
    if judgement.verdict != "good":
        return judgement._replace(evidence=evidence), subject
    failure = Judgement(None, "failed", evidence, ("read-how-it-ended",))
    return failure, subject


def judgement_of(run: WatchedRun) -> tuple[Judgement, Subject | None]:
    """The verdict on a run, and the GPU that it is about (None for the whole run), regardless of
    the command's exit code."""
    for question in RUN_VERDICTS:
        judgement = question(run)
        if judgement:
            return judgement, None
    subject, case = worst_case(run)
    # Check these first, because one throttled card makes the others wait, and because a hang looks
    # uneven too.
    explains_unevenness = case.verdict == "throttled" or case.cause == "hang"
    unevenness = None if explains_unevenness else uneven_work(run)
    if unevenness:
        return unevenness, None
    if case.verdict == "good":
        gap = left_out(run)
        if gap:
            return gap, None
        return good_or_to_act_on(run, subject, case)
    evidence = case.sentence(subject)
    has_several_gpus = len(run.gpus) > 1
    names_its_gpu = evidence.startswith("GPU ")
    if has_several_gpus and not names_its_gpu:
        evidence = with_its_gpus(subject, case)
    judgement = Judgement(case.verdict, case.cause, evidence, case.steps)
    return judgement, subject


def with_its_gpus(subject: Subject, case: VerdictCase) -> str:
    """The verdict's sentence for this GPU, preceded by GPU labels: for throttled clocks, all GPUs
    that need the same fix; otherwise only this GPU."""
    sentence = case.sentence(subject)
    if case.verdict != "throttled":
        return f"GPU {subject.gpu.label}: {sentence}"
    equals = equally_judged(subject)
    labels = ", ".join(equal.gpu.label for equal in equals)
    sentences = {case.sentence(equal) for equal in equals}
    # The GPUs' sentences differ in their figures, so say whose figures are shown.
    whose = "" if len(sentences) == 1 else f" (figures of GPU {subject.gpu.label})"
    return f"GPU {labels}: {sentence}{whose}"


def good_or_to_act_on(
    run: WatchedRun, subject: Subject, case: VerdictCase
) -> tuple[Judgement, Subject]:
    """The verdict on a run whose GPUs are used well. If one of them has a finding, the first one is
    mentioned and provides the next step."""
    for each_subject in subjects_of(run):
        for finding in findings_on(each_subject):
            words = finding.words(each_subject)
            names_its_gpu = len(run.gpus) == 1 or "GPU " in words
            place = "" if names_its_gpu else f"GPU {each_subject.gpu.label}: "
            figures = well_used(each_subject)
            evidence = f"{place}{figures} while it worked, but {words}"
            return Judgement("good", case.cause, evidence, (finding.step,)), each_subject
    evidence = case.sentence(subject)
    missing = unreported(subject)
    if missing:
        evidence += f", as far as is reported (not reported: {', '.join(missing)})"
    return Judgement("good", case.cause, evidence, case.steps), subject


def worst_case(run: WatchedRun) -> tuple[Subject, VerdictCase]:
    """The working GPU with the worst verdict, and the row of the verdict table that applies to
    it."""
    judged = [(subject, case_of(subject)) for subject in subjects_of(run)]

    def badness(pair: tuple[Subject, VerdictCase]) -> int:
        _, case = pair
        # If several are equally bad, the first is named.
        return severity(case)

    return min(judged, key=badness)


def severity(case: VerdictCase) -> int:
    """A number for sorting verdicts, where lower is worse. Memory that ended the run comes first,
    with -1."""
    ended_the_run = case.cause in ("before-the-end", "leak", "out-of-memory")
    if ended_the_run and case.verdict == "memory-tight":
        return -1
    return ORDER.index(case.verdict)


# --- verdicts on the whole run --------------------------------------------------------------------


def lost_gpu(run: WatchedRun) -> Judgement | None:
    """The verdict on a run in which a GPU was lost; None if no GPU was lost, or if the others kept
    working and never needed it."""
    lost = [gpu for gpu in run.gpus if gpu.lost_at is not None]
    # The others never needed the lost GPU if it never worked while they did.
    was_needed = not run.at_work or any(map(worked, lost))
    if not lost or not was_needed:
        return None
    since = min(gpu.lost_since for gpu in lost)
    first_lost = [gpu for gpu in lost if gpu.lost_since == since]
    labels = ", ".join(gpu.label for gpu in first_lost)
    time = f"at second {since:.0f} of {run.seconds:.0f}" if since else "from the beginning"
    reason = reason_of(first_lost[0].rows[-1].gpu)
    if reason and len(first_lost) > 1:
        # The log shows all GPUs as lost, because one lost GPU prevents nvidia-smi from reading the
        # others.
        evidence = f"a GPU was lost {time}: {reason}, and so none of GPU {labels}"
    else:
        verb = "was" if len(first_lost) == 1 else "were"
        evidence = f"GPU {labels} {verb} lost {time}"
        evidence += f": {reason}" if reason else ""
    return Judgement("faulty", "lost", evidence, ("see-why-it-was-lost",))


def no_gpu(run: WatchedRun) -> Judgement | None:
    """The verdict on the command and the machine if no GPU was watched; None if one was watched."""
    # The machine may have only a CPU, a GPU from another maker, or no driver.
    if run.gpus:
        return None
    return judged_without_gpu(run)


def one_reading(run: WatchedRun) -> Judgement | None:
    """The verdict on a single output of nvidia-smi, which shows how much the GPUs are used but not
    why; None for a longer run."""
    if not run.is_reading or throttled_now(run):
        return None
    pictures = [(gpu, picture_of(gpu)) for gpu in run.gpus]
    gpu, picture = min(pictures, key=lambda pair: USES.index(pair[1].use))
    words = picture.words
    if len(run.gpus) > 1:
        words = f"GPU {gpu.label}: {words}"
    if picture.use == "unknown":
        return Judgement(None, "", words, ("ask-the-driver",))
    if picture.use == "idle":
        evidence = f"{words}: nothing ran at that moment"
        return Judgement("idle", "one-reading", evidence, ("watch-the-command",))
    # Report nearly full memory at any utilisation, because the next allocation may fail.
    if at_least(gpu.memory.p95, marks.MEMORY_TIGHT):
        return Judgement("memory-tight", "margin", words, ("leave-a-margin",))
    shared = [shared_gpu for shared_gpu in run.gpus if len(shared_gpu.sharers) > 1]
    if picture.use == "good" and shared and run.command is None:
        evidence = f"{words}, but {words_for_sharers(shared[0])}"
        return Judgement("good", "", evidence, ("see-whose-they-are",))
    if picture.use == "good":
        return Judgement("good", "", f"{words}: nothing slows it down")
    evidence = f"{words}: one reading shows how much it works, not why"
    return Judgement("bursty", "one-reading", evidence, ("watch-the-training",))


def throttled_now(run: WatchedRun) -> bool:
    """Whether a single reading shows a working GPU whose clocks are throttled. It gets the verdict
    of a longer run, because the figures show the reason."""
    return any(case_of(subject).verdict == "throttled" for subject in subjects_of(run))


USES: tuple[Use, ...] = ("low", "fair", "good", "idle", "unknown")
"""Among several GPUs, the first in this order is judged, because others may be reserved for
somebody else."""


def picture_of(gpu: GpuRun) -> GpuUse:
    """How well a GPU is used, according to its last sample."""
    latest = gpu.latest
    return gpu_use(
        latest.utilization_percent,
        latest.memory_used_bytes,
        latest.memory_total_bytes,
        gpu.has_process,
    )


def nothing_to_judge(run: WatchedRun) -> Judgement | None:
    """A result without a verdict if too few samples report utilisation; None if there are
    enough."""
    readings = 0
    for gpu in run.gpus:
        measured = gpu.parts.whole
        if measured:
            readings = max(readings, measured.samples)
    if readings >= marks.LEAST_SAMPLES or run.is_reading:
        return None
    if not run.has_utilization:
        evidence = "the recording has no column with the GPU's utilisation"
        return Judgement(None, "", evidence, ("log-the-utilisation",))
    evidence = f"{readings} of {run.samples} samples tell a utilisation: too few to judge"
    # With MIG and on old cards, the driver reports no utilisation, so watching longer does not
    # help.
    tells_none = readings < run.samples
    steps = ("ask-the-driver",) if tells_none else ()
    return Judgement(None, "", evidence, steps)


def uneven_work(run: WatchedRun) -> Judgement | None:
    """The verdict on a job in which one GPU works much less than another; None if they work about
    equally.

    If all of them are always busy, their power shows which of them wait in a collective.
    """
    present_gpus = [gpu for gpu in run.gpus if gpu.lost_at is None]
    uses: dict[str, float] = {}
    power: dict[str, float] = {}
    for gpu in filter(run.belongs, present_gpus):
        # A rank that never computed counts as 0 %.
        work = considered(gpu) if worked(gpu) else None
        uses[gpu.label] = work.utilization if work else 0.0
        if work and work.power_share:
            power[gpu.label] = work.power_share
    if not uses:
        return None
    shares = uses
    mark = marks.USE_DIFFERENCE
    phrase = "worked {:.0f} % of the time"
    all_are_busy = min(uses.values()) >= marks.BUSY
    all_tell_power = len(power) == len(uses)
    if all_are_busy and all_tell_power:
        shares = power
        mark = marks.POWER_DIFFERENCE
        phrase = "drew {:.0f} % of its power limit"
    least = min(shares, key=shares.__getitem__)
    most = max(shares, key=shares.__getitem__)
    difference = shares[most] - shares[least]
    if difference < mark:
        return None
    least_words = f"GPU {least} {phrase.format(shares[least])}"
    most_words = f"GPU {most} {phrase.format(shares[most])}"
    evidence = f"{least_words}, {most_words}"
    cause = "less" if shares[least] else "none"
    # If a GPU does nothing and no launcher started ranks, one process drives all GPUs.
    all_work = min(uses.values()) >= marks.IDLE
    has_ranks = run.launched or (all_work and not is_led_by_first(run))
    step = "balance-the-work" if has_ranks else "one-process-each"
    return Judgement("uneven", cause, evidence, (step,))


GATHERED = 1.25
"""The first GPU must use this many times the memory of the others, because the outputs that
DataParallel gathers there take at least a quarter of a replica's memory."""


def is_led_by_first(run: WatchedRun) -> bool:
    """Whether the first GPU works the most and uses more memory than any other.

    This is typical of DataParallel, where one process gathers all outputs on the first GPU.
    """
    first, *others = [gpu for gpu in run.at_work if gpu.lost_at is None]
    memory_of_others = max((or_zero(gpu.memory.p95) for gpu in others), default=0.0)
    use_of_others = max((or_zero(gpu.utilization) for gpu in others), default=0.0)
    holds_more = or_zero(first.memory.p95) >= memory_of_others * GATHERED
    return holds_more and or_zero(first.utilization) >= use_of_others


def left_out(run: WatchedRun) -> Judgement | None:
    """The verdict on a machine where a few GPUs are unused, while most GPUs of the same model work
    alike, as if on one job; None otherwise."""
    unused = run.unused_gpus
    working = run.at_work
    names = {gpu.name for gpu in (*unused, *working)}
    is_minority = 0 < len(unused) < len(working)
    # If most GPUs do nothing, the job was never meant to use all of them.
    if not is_minority or len(names) > 1 or not run.alike(working):
        return None
    unused_labels = ", ".join(gpu.label for gpu in unused)
    working_labels = ", ".join(gpu.label for gpu in working)
    evidence = (
        f"GPU {unused_labels} did nothing, while GPU {working_labels} worked alike, as on one job"
    )
    return Judgement("uneven", "unused", evidence, ("use-the-other-gpus",))


RUN_VERDICTS: tuple[Callable[[WatchedRun], Judgement | None], ...] = (
    lost_gpu,
    faulty_memory,
    no_gpu,
    one_reading,
    nothing_to_judge,
    idle,
    hang_in_collective,
    standstill,
)
"""Functions that are called in this order; the first verdict that is not None counts. The last two
recognise runs that stopped making progress, for which means over the whole run say little."""
