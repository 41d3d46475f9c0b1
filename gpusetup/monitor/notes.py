"""Notes on a run, added to its verdict: everything else that is worth knowing. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.monitor import command_signs as c
from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.course_signs import fills_soon, leak_words, restarted
from gpusetup.monitor.evidence import lanes, megabytes, times, whole
from gpusetup.monitor.findings import end_of_work, several_processes, work_ended
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.health import earlier_errors
from gpusetup.monitor.holders import named_with_size
from gpusetup.monitor.losses import reason_of
from gpusetup.monitor.run import WatchedRun, considered, worked
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.throttling import clocks_are_low
from gpusetup.monitor.work import below


@Sign
def has_room(subject: Subject) -> bool:
    """Whether the GPU's memory is less than 70 % full, so that a larger batch may fit."""
    # The acceleration guide's range for memory begins at 70 %.
    memory_share = subject.gpu.memory.p95
    return below(memory_share, marks.MEMORY_LOW)


@Sign
def hot(subject: Subject) -> bool:
    """Whether the GPU is hotter than the guide recommends (85 °C); false if its temperature is
    unknown."""
    # Some cards report no temperature.
    heat = subject.gpu.heat or 0.0
    return heat > marks.HOT


@Sign
def warmed_up(subject: Subject) -> bool:
    """Whether the GPU worked less at the beginning of its work, for example during compilation."""
    # The reason may be compilation or cold caches. The figures exclude this time.
    warm_seconds = subject.gpu.parts.warm
    return warm_seconds > 0


@Sign
def started_late(subject: Subject) -> bool:
    """Whether the GPU did nothing in the first seconds, while the program started or loaded its
    model and data."""
    # Ignore a short start-up, because Python's imports alone take about two seconds.
    start_seconds = subject.gpu.parts.start_up
    return start_seconds >= marks.START_UP_NOTE


@Sign
def paused(subject: Subject) -> bool:
    """Whether the GPU paused between its first and its last work, for at least five seconds."""
    # A stretch without work counts as a pause if it lasts at least five seconds.
    pauses = subject.gpu.parts.pauses
    return len(pauses) > 0


@Sign
def only_draws(subject: Subject) -> bool:
    return subject.gpu.only_draws


@Sign
def has_low_clocks(subject: Subject) -> bool:
    return clocks_are_low(subject.work)


def times_and_lengths(subject: Subject) -> str:
    """A phrase on how often the GPU paused, for what share of the time, and for how long at
    most."""
    parts = subject.gpu.parts
    return (
        f"paused {times(parts.times)}, {whole(parts.pause_share)} % of its time, "
        f"{whole(parts.longest_pause)} s at most"
    )


def memory_p95(subject: Subject) -> str:
    """A phrase on how full the GPU's memory was (95th percentile)."""
    memory_share = subject.gpu.memory.p95
    full = whole(memory_share)
    return f"memory {full} % full"


def high_memory(subject: Subject) -> str:
    """A phrase on how full the GPU's memory was, with the threshold that it exceeds."""
    sentence = memory_p95(subject)
    mark = f"{marks.MEMORY_HIGH:.0f}"
    return f"{sentence}, more than {mark} %"


def foreign_memory(subject: Subject) -> str:
    """A phrase that names the programs outside the job which use much of the GPU's memory."""
    holders = subject.run.foreign_holders(subject.gpu)
    return f"memory that is not the job's: {', '.join(map(named_with_size, holders))}"


def heat(subject: Subject) -> str:
    """A phrase with the GPU's temperature and the threshold that it exceeds."""
    degrees = whole(subject.gpu.heat)
    mark = f"{marks.HOT:.0f}"
    return f"{degrees} °C, more than {mark} °C"


def start_up(subject: Subject) -> str:
    """A phrase on how many seconds passed before the program first used the GPU."""
    parts = subject.gpu.parts
    seconds = whole(parts.start_up)
    return f"the first {seconds} s, before the GPU was used, are not counted"


def warm_up(subject: Subject) -> str:
    """A phrase on the length of the GPU's warm-up in seconds."""
    parts = subject.gpu.parts
    seconds = whole(parts.warm)
    return f"the figures leave out a warm-up of {seconds} s (perhaps compilation, or cold caches)"


def link(subject: Subject) -> str:
    """A phrase on how much the GPU's slow PCIe link can carry in one direction."""
    limit = subject.gpu.link_limit
    rate = megabytes(limit)
    return f"its PCIe link carries {rate} in one direction: check the slot and the riser"


def few_lanes(subject: Subject) -> str:
    """A phrase on how many lanes the GPU's PCIe link uses, and what to check."""
    return f"{lanes(subject)}: check the slot and the riser (two cards may share the lanes)"


def locked_clocks(subject: Subject) -> str:
    return (
        f"SM clock at {whole(subject.work.clock_share)} % of its maximum, and the driver gives no "
        "reason; `nvidia-smi -q -d CLOCK` shows locked clocks (-lgc)"
    )


slow_but_busy = s.busy & s.slow_link
"""The GPU's link is slow, but this costs nothing yet."""
waits_on_half_its_lanes = ~s.busy & ~s.narrow_link
"""The GPU waits, and half of its lanes are missing, which is seldom the cause of the waiting. If
three quarters are missing, there is a verdict about it."""

NOTES: tuple[tuple[Sign, Callable[[Subject], str]], ...] = (
    (s.memory_grew & ~(s.peak_high | fills_soon), leak_words),
    (s.several_holders & ~s.held_by_others, several_processes),
    (work_ended & ~restarted, end_of_work),
    (s.memory_high & ~(s.memory_grew | c.server), high_memory),
    (s.held_by_others, foreign_memory),
    (has_room & c.training, lambda subject: f"{memory_p95(subject)}: 70 to 90 % is usual"),
    (hot, heat),
    (started_late, start_up),
    (warmed_up, warm_up),
    (paused, times_and_lengths),
    (only_draws, lambda subject: "only programs that draw on the screen use this GPU"),
    (s.slow_link & ~s.lacks_lanes, link),
    (s.lacks_lanes & (slow_but_busy | waits_on_half_its_lanes), few_lanes),
    (s.busy & has_low_clocks & s.unexplained, locked_clocks),
)
"""Notes on a GPU that worked, each with the condition under which it is shown."""


def notes(run: WatchedRun) -> Iterator[str]:
    """Yields the notes on a run: about a short recording, each GPU, the GPUs that did nothing, and
    the machine's memory."""
    if run.samples < marks.LEAST_SAMPLES:
        counted = "one sample shows" if run.samples == 1 else f"{run.samples} samples show"
        yield f"{counted} a moment, not the run: `gpusetup monitor 60` watches a minute"
    elif run.samples < marks.FEW_SAMPLES:
        words = f"this recording is short ({run.samples} samples in {run.seconds:.0f} s)"
        yield f"{words}: watch for at least a minute"
    yield from grouped_notes(run)
    # If no GPU worked, the verdict itself describes them.
    if run.at_work:
        yield from what_rested(run)
    memory_share = run.host_memory
    if memory_share is not None and memory_share >= marks.MEMORY_TIGHT:
        yield f"the machine's memory is {memory_share:.0f} % full"


def grouped_notes(run: WatchedRun) -> Iterator[str]:
    """Yields the notes on the GPUs, where GPUs with the same note share one line."""
    labels_of: dict[str, list[str]] = {}
    for gpu in run.gpus:
        if gpu.lost_at is not None:
            # If a working GPU was lost, the verdict already quotes the line at the end of the log.
            if worked(gpu) and reason_of(gpu.rows[-1].gpu):
                continue
            since = f" since {gpu.lost_at}" if gpu.lost_at else ""
            yield f"GPU {gpu.label} is lost{since}; `gpusetup doctor` shows the details"
            continue
        for sentence in notes_of(run, gpu):
            labels_of.setdefault(sentence, []).append(gpu.label)
    for sentence, labels in labels_of.items():
        yield f"GPU {', '.join(labels)}: {sentence}"


def notes_of(run: WatchedRun, gpu: GpuRun) -> Iterator[str]:
    """Yields the notes on one GPU that is not lost. A GPU that did not work only gets a note on
    memory errors."""
    errors = earlier_errors(gpu, is_reading=run.is_reading)
    if errors:
        yield errors
    work = considered(gpu) if worked(gpu) else None
    # A GPU that did nothing has no figures to comment on.
    if work is None:
        return
    subject = Subject(run, gpu, work)
    for is_seen, sentence in NOTES:
        if is_seen(subject):
            yield sentence(subject)


def what_rested(run: WatchedRun) -> Iterator[str]:
    """Yields notes on the GPUs that did nothing while others worked: their memory is in use, only a
    display uses them, or they are unused."""
    held = []
    drawing = []
    unused = []
    for gpu in run.gpus:
        if worked(gpu):
            continue
        is_held = run.held(gpu)
        if is_held and not gpu.only_draws:
            held.append(gpu.label)
        elif gpu.only_draws and not is_held:
            drawing.append(gpu.label)
        elif not is_held:
            unused.append(gpu.label)
    groups = (
        ("its memory is held and it did nothing", held),
        ("only a display draws on", drawing),
        ("not used", unused),
    )
    for words, labels in groups:
        if labels:
            yield f"{words}: GPU {', '.join(labels)}"
