"""Signs about the course of a GPU's run, and the sentences that explain them with figures. Pure
functions."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.evidence import memory_will_be_full, times, whole
from gpusetup.monitor.subject import Sign, Subject
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


def leak_words(subject: Subject) -> str:
    """How fast the GPU's memory grows, with the suspicion of a leak."""
    return f"{memory_will_be_full(subject)}; a leak?"
