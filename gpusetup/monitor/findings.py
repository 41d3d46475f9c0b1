"""Finds what the user should act on even if the working GPUs are used well: leaking memory, work
that ended, unused GPUs. Pure functions.

If the verdict is `good`, it names the first finding and suggests that finding's next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpusetup.monitor import command_signs as c
from gpusetup.monitor import course_signs as k
from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.evidence import times, whole
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.holders import named_with_size
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.work import at_least

MOST_PAUSED = 10.0
"""The share of the time, in percent, from which pauses matter. In most trainings, pauses for
checkpoints take less."""
LONG_REST_SECONDS = 60.0
"""A GPU that rests this long at the end of a recording, with memory still in use, has perhaps
finished."""


class Finding(NamedTuple):
    """Something to act on, with a sentence about it and the id of its next step."""

    is_seen: Sign
    words: Callable[[Subject], str]
    step: str


# --- signs ----------------------------------------------------------------------------------------


@Sign
def work_ended(subject: Subject) -> bool:
    """Whether the process ended long before the recording did, with an unknown exit code."""
    is_told = subject.run.exit is not None
    rest = subject.gpu.seconds_after_work
    return not is_told and subject.gpu.ended_at is not None and rest >= marks.PAUSE_SECONDS


@Sign
def rests_at_the_end(subject: Subject) -> bool:
    """Whether the GPU did nothing for long at the end of the recording, while its memory is still
    in use."""
    gpu = subject.gpu
    is_told = subject.run.exit is not None
    rest = gpu.seconds_after_work
    # Require a rest longer than twice the longest pause, because a pause like the earlier ones will
    # probably end.
    is_longer_than_pauses = rest > 2 * gpu.parts.longest_pause
    is_held = subject.run.held(gpu)
    return is_held and not is_told and rest >= LONG_REST_SECONDS and is_longer_than_pauses


@Sign
def leaves_others_unused(subject: Subject) -> bool:
    """Whether GPUs of the same model are unused, although the working ones may all belong to one
    job."""
    run = subject.run
    if not c.leaves_gpus_unused(subject):
        return False
    # If the working GPUs differ, they belong to several jobs, and the unused GPUs may be reserved
    # for someone else.
    is_one_job = run.command is not None or len(run.at_work) == 1 or run.alike(run.at_work)
    # Require the same model, because a card of another model may only drive the display.
    models = {gpu.name for gpu in run.unused_gpus}
    return is_one_job and subject.gpu.name in models


@Sign
def pauses_cost(subject: Subject) -> bool:
    """Whether pauses take a tenth of the time or more."""
    return at_least(subject.gpu.parts.pause_share, MOST_PAUSED)


@Sign
def has_only_begun(subject: Subject) -> bool:
    """Whether the recording mostly shows a program's start, and only some seconds of work."""
    parts = subject.gpu.parts
    body = parts.body
    if body is None or subject.run.exit is not None:
        return False
    seconds = body.rows[-1].seconds - body.rows[0].seconds
    return seconds < marks.YOUNG_SECONDS and parts.start_up > seconds


# --- sentences ------------------------------------------------------------------------------------


def end_of_work(subject: Subject) -> str:
    """A sentence on when the work ended, and how full the memory was if that may be the reason."""
    gpu = subject.gpu
    words = (
        f"its work ended at second {whole(gpu.ended_at)} of {whole(subject.run.seconds)}, and its "
        "memory was freed: the process ended"
    )
    peak = gpu.process_ends[-1].peak if gpu.process_ends else None
    if at_least(peak, marks.MEMORY_TIGHT):
        return f"{words} when its memory was {whole(peak)} % full"
    return words


def rest_at_the_end(subject: Subject) -> str:
    """A sentence on how long the GPU has been idle at the end with its memory still in use."""
    seconds = whole(subject.gpu.seconds_after_work)
    return f"nothing ran in the last {seconds} s, while its memory was still in use"


def several_processes(subject: Subject) -> str:
    """A sentence that lists the processes which use much of the GPU's memory."""
    holders = subject.gpu.big_holders
    return f"{len(holders)} processes hold its memory: {', '.join(map(named_with_size, holders))}"


def sharing_processes(subject: Subject) -> str:
    """A sentence that lists the processes which share the GPU, and says what sharing costs."""
    return f"{words_for_sharers(subject.gpu)}; each may get only a part of its time"


def words_for_sharers(gpu: GpuRun) -> str:
    """A sentence that lists the processes which share a GPU, with their PIDs and memory."""
    names = ", ".join(map(named_with_size, gpu.sharers))
    return f"{len(gpu.sharers)} processes share GPU {gpu.label}: {names}"


def unused(subject: Subject) -> str:
    """A sentence that lists the GPUs that did nothing."""
    labels = ", ".join(gpu.label for gpu in subject.run.unused_gpus)
    return f"GPU {labels} did nothing"


def pauses_and_mean(subject: Subject) -> str:
    """A sentence on how much of the time pauses took, with the mean utilisation including the
    pauses."""
    parts = subject.gpu.parts
    mean = whole(parts.body.utilization if parts.body else None)
    return (
        f"it paused {times(parts.times)}, {whole(parts.pause_share)} % of its time "
        f"(mean utilisation with the pauses: {mean} %)"
    )


def beginning(subject: Subject) -> str:
    """A sentence on how long the start took, and how little work was left to judge."""
    parts = subject.gpu.parts
    rows = parts.body.rows if parts.body else ()
    seconds = whole(rows[-1].seconds - rows[0].seconds) if rows else "0"
    return (
        f"the first {whole(parts.start_up)} s were the start (loading, compilation), and "
        f"{seconds} s of work are too short to judge"
    )


FINDINGS: tuple[Finding, ...] = (
    Finding(s.memory_grew & ~c.server, k.leak_words, "find-the-leak"),
    Finding(k.restarted & ~c.server, k.ended_and_started, "read-the-log"),
    Finding(work_ended, end_of_work, "see-how-it-ended"),
    Finding(rests_at_the_end & ~(c.server | c.notebook), rest_at_the_end, "see-how-it-ended"),
    Finding(s.shared_by_programs, sharing_processes, "see-whose-they-are"),
    Finding(has_only_begun, beginning, "record-longer"),
    Finding(pauses_cost & ~(c.watched | c.no_training), pauses_and_mean, "shorter-pauses"),
    Finding(leaves_others_unused, unused, "use-the-other-gpus"),
)
"""All kinds of findings, with the most urgent first."""


def findings_on(subject: Subject) -> Iterator[Finding]:
    """Yields the findings that apply to this GPU, with the most urgent first."""
    for finding in FINDINGS:
        if finding.is_seen(subject):
            yield finding


# --- figures that no source reported --------------------------------------------------------------


def unreported(subject: Subject) -> list[str]:
    """The names of missing figures without which we cannot say that nothing slows the GPU down."""
    work = subject.work
    latest = subject.gpu.latest
    # Either figure is enough: throttle reasons and clocks near their maximum both show that nothing
    # throttles the GPU.
    shows_throttling = latest.throttle_reasons is not None or work.clock_most is not None
    known = {
        "power": work.power_watts is not None,
        "temperature": subject.gpu.heat is not None,
        "throttling": shows_throttling,
    }
    return [name for name, is_known in known.items() if not is_known]
