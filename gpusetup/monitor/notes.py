"""What else is beyond a mark in a run, beside its verdict. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.monitor import command_signs as c
from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.evidence import megabytes, memory_grew, whole
from gpusetup.monitor.run import Run, considered, worked
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.throttling import clocks_are_low
from gpusetup.monitor.work import below


@Sign
def has_room(subject: Subject) -> bool:
    """Its memory leaves room for a larger batch."""
    return below(subject.gpu.memory.p95, marks.MEMORY_LOW)


@Sign
def hot(subject: Subject) -> bool:
    return (subject.gpu.heat or 0.0) > marks.HOT


@Sign
def warmed_up(subject: Subject) -> bool:
    """It worked less in the beginning."""
    return subject.gpu.parts.warm > 0


@Sign
def started_late(subject: Subject) -> bool:
    """It did nothing at first: the program started, or loaded its model and its data."""
    return subject.gpu.parts.start_up >= marks.START_UP_NOTE


@Sign
def paused(subject: Subject) -> bool:
    return len(subject.gpu.parts.pauses) > 0


@Sign
def only_draws(subject: Subject) -> bool:
    return subject.gpu.only_draws


@Sign
def has_low_clocks(subject: Subject) -> bool:
    return clocks_are_low(subject.work)


def times_and_lengths(subject: Subject) -> str:
    """How often it paused, and for how long."""
    parts = subject.gpu.parts
    return (
        f"paused {parts.times} times, {whole(parts.pause_share)} % of its time, "
        f"{whole(parts.longest_pause)} s at most"
    )


def memory_p95(subject: Subject) -> str:
    return f"memory {whole(subject.gpu.memory.p95)} % full"


def high_memory(subject: Subject) -> str:
    return f"{memory_p95(subject)}, more than {marks.MEMORY_HIGH:.0f} %"


def heat(subject: Subject) -> str:
    return f"{whole(subject.gpu.heat)} °C, more than {marks.HOT:.0f} °C"


def start_up(subject: Subject) -> str:
    seconds = whole(subject.gpu.parts.start_up)
    return f"the first {seconds} s, before the GPU was used, are not counted"


def warm_up(subject: Subject) -> str:
    seconds = whole(subject.gpu.parts.warm)
    return f"the figures leave out a warm-up of {seconds} s (perhaps compilation, or cold caches)"


def link(subject: Subject) -> str:
    rate = megabytes(subject.gpu.link_limit)
    return f"its PCIe link carries {rate} in one direction: check the slot and the riser"


def locked_clocks(subject: Subject) -> str:
    return (
        f"SM clock at {whole(subject.work.clock_share)} % of its maximum, and the driver gives no "
        "reason; `nvidia-smi -q -d CLOCK` shows locked clocks (-lgc)"
    )


NOTES: tuple[tuple[Sign, Callable[[Subject], str]], ...] = (
    (s.memory_grew, lambda subject: f"{memory_grew(subject)}: perhaps a leak"),
    (s.memory_high & ~(s.memory_grew | c.server), high_memory),
    (has_room & c.training, lambda subject: f"{memory_p95(subject)}: 70 to 90 % is usual"),
    (hot, heat),
    (started_late, start_up),
    (warmed_up, warm_up),
    (paused, times_and_lengths),
    (only_draws, lambda subject: "only programs that draw on the screen use this GPU"),
    (s.slow_link, link),
    (s.busy & has_low_clocks & s.unexplained, locked_clocks),
)
"""What is said of a GPU that works, if it is so."""


def notes(run: Run) -> Iterator[str]:
    if marks.LEAST_SAMPLES <= run.samples < marks.FEW_SAMPLES:
        words = f"a short record, {run.samples} samples in {run.seconds:.0f} s"
        yield f"{words}: a minute of them says more"
    for gpu in run.gpus:
        work = considered(gpu) if worked(gpu) else None
        if gpu.lost_at is not None:
            since = f" since {gpu.lost_at}" if gpu.lost_at else ""
            yield f"GPU {gpu.label} is lost{since}; `gpusetup doctor` says more"
        elif work is not None:
            subject = Subject(run, gpu, work)
            for is_seen, sentence in NOTES:
                if is_seen(subject):
                    yield f"GPU {gpu.label}: {sentence(subject)}"
    resting = [gpu for gpu in run.gpus if not worked(gpu)] if run.at_work else []
    for words, *state in (
        ("its memory is held and it did nothing", True, False),
        ("only a display draws on", False, True),
        ("not used", False, False),
    ):
        if labels := [gpu.label for gpu in resting if [run.held(gpu), gpu.only_draws] == state]:
            yield f"{words}: GPU {', '.join(labels)}"
    if run.host_memory is not None and run.host_memory >= marks.MEMORY_TIGHT:
        yield f"the machine's memory is {run.host_memory:.0f} % full"
