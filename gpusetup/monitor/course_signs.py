"""Signs about the course of a GPU's run, and the sentences that explain them with figures. Pure
functions."""

from __future__ import annotations

from gpusetup.model.units import GIB
from gpusetup.monitor import marks
from gpusetup.monitor.evidence import (
    UNKNOWN,
    duration,
    memory_will_be_full,
    one_digit,
    times,
    whole,
    worked,
)
from gpusetup.monitor.run import WatchedRun
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.tally import stray_use
from gpusetup.monitor.work import at_least, or_zero

# --- signs ----------------------------------------------------------------------------------------


@Sign
def restarted(subject: Subject) -> bool:
    """Whether a process on the GPU ended and another one took its place."""
    ends = subject.gpu.process_ends
    return any(end.back_after is not None for end in ends)


@Sign
def ended_when_full(subject: Subject) -> bool:
    """Whether the GPU's memory was full each time before a process on it ended."""
    ends = subject.gpu.process_ends
    # A user may have stopped one of the runs at any memory level, so it is enough if most of them
    # ended full.
    full_ends = [end for end in ends if at_least(end.peak, marks.MEMORY_TIGHT)]
    return len(full_ends) * 2 > len(ends)


@Sign
def fills_soon(subject: Subject) -> bool:
    """Whether memory grows so fast that it will be full before the run's length has doubled."""
    memory = subject.gpu.memory
    if memory.full_in is None:
        return False
    return memory.grew and memory.full_in <= subject.run.seconds


@Sign
def power_limit_fell(subject: Subject) -> bool:
    """Whether the GPU's power limit fell during the run and slowed it down from then on."""
    return subject.gpu.power_limit_fall is not None


def host_memory_fills(run: WatchedRun) -> bool:
    """Whether the machine's memory grew all the time, and is nearly full or will be full before the
    run's length has doubled."""
    growth = run.host_memory_growth
    if growth is None:
        return False
    return growth.last_share >= marks.MEMORY_HIGH or growth.full_in <= run.seconds


@Sign
def fills_the_host(subject: Subject) -> bool:
    """Whether the run fills the machine's memory."""
    return host_memory_fills(subject.run)


@Sign
def slows_down_regularly(subject: Subject) -> bool:
    """Whether long phases of much less work recur regularly and take a tenth of the time or
    more."""
    phases = subject.gpu.slow_phases
    # In most trainings, evaluation and checkpoints cost less than this.
    return phases is not None and phases.share >= marks.SLOW_PHASES_SHARE


@Sign
def works_in_slow_phases(subject: Subject) -> bool:
    """Whether the GPU really works in its slow phases, rather than only running stray kernels."""
    phases = subject.gpu.slow_phases
    if phases is None:
        return False
    return phases.utilization > stray_use(phases.full_utilization)


@Sign
def works_in_turns(subject: Subject) -> bool:
    """Whether work and rest alternate steadily, in cycles of some seconds, while memory stays the
    same."""
    return subject.gpu.rhythm is not None


MOST_OF_THE_MOMENTS = 80.0
"""The least share of samples with exactly one working GPU, in percent. It is below 100, because
GPUs that pass a batch on to each other overlap now and then."""


@Sign
def takes_turns_with_others(subject: Subject) -> bool:
    """Whether nearly always exactly one of the GPUs works, and each of them works part of the
    time."""
    team = subject.run.team(subject.gpu)
    if len(team) < 2:
        return False
    least_share = 100 / len(team) / 2
    if any(or_zero(gpu.utilization) < least_share for gpu in team):
        return False
    workers_at: dict[float, int] = {}
    for gpu in team:
        for row in gpu.rows:
            is_working = or_zero(row.gpu.utilization_percent) >= marks.LOW
            workers_at[row.seconds] = workers_at.get(row.seconds, 0) + is_working
    alone = [second for second, count in workers_at.items() if count == 1]
    return len(alone) / len(workers_at) * 100 >= MOST_OF_THE_MOMENTS


# --- sentences ------------------------------------------------------------------------------------


def ended_with_full_memory(subject: Subject) -> str:
    """A sentence for a process that ran out of memory and was started again."""
    ends = subject.gpu.process_ends
    peaks = [or_zero(end.peak) for end in ends]
    return (
        f"memory rose to {max(peaks):.0f} % and fell to nothing {times(len(ends))} "
        f"({seconds_of_ends(subject)}): the process ran out of memory, ended and started again"
    )


def ended_and_started(subject: Subject) -> str:
    """A sentence for processes that ended and started again for an unknown reason."""
    ends = subject.gpu.process_ends
    return (
        f"the process on GPU {subject.gpu.label} ended and freed its memory {times(len(ends))} "
        f"({seconds_of_ends(subject)}), and another one started: it failed and was started again, "
        "or several programs ran one after the other"
    )


MOST_ENDS_NAMED = 4
"""How many ends of processes one sentence lists."""


def seconds_of_ends(subject: Subject) -> str:
    """When the processes on a GPU ended, for example `at second 80, 180`."""
    seconds = [whole(end.second) for end in subject.gpu.process_ends]
    more = ", …" if len(seconds) > MOST_ENDS_NAMED else ""
    return f"at second {', '.join(seconds[:MOST_ENDS_NAMED])}{more}"


def slower_phases(subject: Subject) -> str:
    """A sentence on how often the slow phases come, how long they last, and how little the GPU
    works in them; a question mark if it has none."""
    phases = subject.gpu.slow_phases
    body = subject.gpu.parts.body
    if phases is None or body is None:
        return "?"
    stops = phases.utilization <= marks.QUIET
    what_happens = "it stopped" if stops else f"it fell to {phases.utilization:.0f} %"
    guess = "an evaluation" if works_in_slow_phases(subject) else "an evaluation or a checkpoint"
    return (
        f"GPU {subject.gpu.label} worked at {phases.full_utilization:.0f} %, but about every "
        f"{phases.period:.0f} s {what_happens} for {phases.seconds:.0f} s, "
        f"{phases.share:.0f} % of the time (mean {body.utilization:.0f} %): most likely {guess}"
    )


def in_turns(subject: Subject) -> str:
    """A sentence for a GPU that alternates between work and rest in cycles of some seconds."""
    cycle = or_zero(subject.gpu.rhythm)
    whole_run = subject.gpu.parts.body
    use = whole(whole_run.utilization if whole_run else None)
    return (
        f"GPU {subject.gpu.label} worked {use} % of the time, in turns of work and rest of about "
        f"{cycle:.0f} s with the same memory: most likely it waits for its next batch of data"
    )


def one_after_the_other(subject: Subject) -> str:
    """A sentence for GPUs that work one at a time while the others wait."""
    labels = ", ".join(gpu.label for gpu in subject.run.team(subject.gpu))
    use = whole(subject.work.utilization)
    return (
        f"GPU {labels} work one after the other ({use} % of the time each): most likely the model "
        "is split over them, and each waits for the one before"
    )


def host_is_behind(subject: Subject) -> str:
    """A sentence for a GPU that is busy for a steady part of the time, in pieces shorter than a
    sample."""
    work = subject.work
    return (
        f"{worked(subject)}, evenly (p5 {whole(work.utilization_p5)} %, "
        f"p95 {whole(work.utilization_p95)} %): the host does not keep up, with data or with "
        "launching kernels"
    )


def fall_of_the_limit(subject: Subject) -> str:
    """A sentence on when the power limit fell, with watts and clocks before and after."""
    fall = subject.gpu.power_limit_fall
    if fall is None:
        return UNKNOWN
    sentence = (
        f"the power limit fell from {whole(fall.before_watts)} W to {whole(fall.after_watts)} W at "
        f"second {whole(fall.second)}"
    )
    if fall.before_mhz is None or fall.after_mhz is None:
        return f"{sentence}, and the GPU is at this limit"
    clocks = f"from {whole(fall.before_mhz)} MHz to {whole(fall.after_mhz)} MHz"
    return f"{sentence}, and the SM clock with it ({clocks})"


def host_memory_words(run: WatchedRun) -> str:
    """A sentence on how fast the machine's memory grows and when it will be full, with the
    suspicion of a leak; a question mark if it does not grow."""
    growth = run.host_memory_growth
    if growth is None:
        return UNKNOWN
    sentence = (
        "the machine's memory grew all the time, "
        f"from {whole(growth.first_share)} % to {whole(growth.last_share)} %"
    )
    first_bytes, last_bytes = growth.first_command_bytes, growth.last_command_bytes
    if first_bytes is not None and last_bytes is not None:
        sizes = f"from {one_digit(first_bytes / GIB)} GiB to {one_digit(last_bytes / GIB)} GiB"
        sentence += f" (the command's, {sizes})"
    return f"{sentence}: at this rate it is full in {duration(growth.full_in)}; a leak?"


def host_memory_will_be_full(subject: Subject) -> str:
    """`host_memory_words` for the run that this GPU belongs to."""
    return host_memory_words(subject.run)


def leak_words(subject: Subject) -> str:
    """How fast the GPU's memory grows, with the suspicion of a leak."""
    return f"{memory_will_be_full(subject)}; a leak?"
