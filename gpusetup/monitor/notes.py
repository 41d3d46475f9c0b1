"""Notes on a run, added to its verdict, and the acceleration guide's advice. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.judge import END_OF_WORK, Judgement, picture_of
from gpusetup.monitor.run import WatchedRun
from gpusetup.monitor.signs import Sign
from gpusetup.monitor.steps import WORKERS_HELP
from gpusetup.monitor.words import filled, labels
from gpusetup.monitor.work import or_zero
from gpusetup.readings.gpu_use import LARGER_BATCH, MIXED_PRECISION, MORE_WORKERS

NOTES: tuple[tuple[Sign, str], ...] = (
    (s.memory_grew & ~s.fills_soon, "{memory_growth}; a leak?"),
    (s.work_ended, END_OF_WORK),
    (s.memory_high & ~(s.memory_grew | s.server), "memory {gpu.memory.p95} % full, more than 90 %"),
    (s.memory_has_room & s.training, "memory {gpu.memory.p95} % full: 70 to 90 % is usual"),
    (s.hot, "{gpu.heat} °C, more than 85 °C"),
    (Sign(lambda subject: subject.gpu.parts.start >= marks.START_UP_NOTE),
     "the first {gpu.parts.start} s, with less work than later, are not counted"),
    (Sign(lambda subject: len(subject.gpu.parts.pauses) > 0), "{paused}"),
)  # fmt: skip
"""Notes on a GPU that worked, each with the condition under which it is shown. The acceleration
guide's ranges are 70 to 90 % of the memory, and up to 85 °C."""


def notes(run: WatchedRun, judgement: Judgement) -> Iterator[str]:
    """Yields the notes on a run whose words are not already in the evidence: about a short
    recording, each GPU that worked, and the machine's memory."""
    if run.samples < marks.FEW_SAMPLES and judgement.cause != "too-short":
        noun = "sample" if run.samples == 1 else "samples"
        words = f"this recording is short ({run.samples} {noun} in {run.seconds:.0f} s)"
        yield f"{words}: `gpusetup monitor 60` watches a minute"
    # GPUs with the same note share one line.
    noted: dict[str, list[GpuRun]] = {}
    for subject in run.subjects:
        for is_seen, sentence in NOTES:
            if is_seen(subject):
                noted.setdefault(filled(sentence, subject), []).append(subject.gpu)
    for words, gpus in noted.items():
        if words not in judgement.evidence:
            yield f"GPU {labels(gpus)}: {words}"
    if or_zero(run.host_memory) >= marks.MEMORY_TIGHT and run.gpus:
        yield f"the machine's memory is {run.host_memory:.0f} % full"


# --- the acceleration guide's advice --------------------------------------------------------------

STARVED = ("workers", "by-itself", "each-step")
"""Causes of an input-starved run against which more loader workers help."""
has_room = Sign(
    # Unknown memory counts as empty.
    lambda subject: all(or_zero(gpu.memory.p95) < marks.MEMORY_HIGH for gpu in subject.run.gpus)
)


def advice(run: WatchedRun, judgement: Judgement) -> tuple[str, ...]:
    """The acceleration guide's three pieces of advice for a training whose GPU works less than half
    of the time, without what does not help here or is done already; for a single reading, the steps
    for each GPU."""
    if judgement.verdict in ("uneven", "faulty"):
        return ()
    if run.is_reading:
        return tuple(dict.fromkeys(step for gpu in run.gpus for step in picture_of(gpu).steps))
    subject, verdict, cause = judgement.subject, judgement.verdict, judgement.cause
    lowest = min((one.work.utilization for one in run.subjects), default=100.0)
    if subject is None or run.kind not in ("training", "") or lowest >= marks.LOW:
        return ()
    # With short pieces of unknown cause, any of the three may help.
    is_unknown = cause == "short-pieces"
    launches = verdict == "launch-bound" or is_unknown
    loads = (verdict == "input-starved" and cause in STARVED) or is_unknown
    rows = (
        (LARGER_BATCH, launches and has_room(subject)),
        (MORE_WORKERS, loads and WORKERS_HELP(subject)),
        (MIXED_PRECISION, launches),
    )
    return tuple(text.format(workers=run.useful_workers) for text, fits in rows if fits)
