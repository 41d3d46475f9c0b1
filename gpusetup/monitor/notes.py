"""Notes on a run, added to its verdict, and the acceleration guide's advice. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.run import Subject, WatchedRun
from gpusetup.monitor.signs import Sign
from gpusetup.monitor.words import filled, with_gpu_names
from gpusetup.monitor.work import or_zero

if TYPE_CHECKING:
    from gpusetup.monitor.judge import Judgement

NOTES: tuple[tuple[Sign, str, str], ...] = (
    (s.memory_grew & ~s.server, "{memory_growth}", "find-the-leak"),
    (s.work_ended,
     "its work ended {gpu.seconds_after_work} s before the recording did, and its memory was "
     "freed, so the process ended", "see-how-it-ended"),
    (s.shared_by_programs,
     "GPU {gpu.label} is shared by {others}; each may get only a part of its time",
     "see-whose-they-are"),
    (s.leaves_others_unused, "GPU {unused} did nothing", "use-the-other-gpus"),
    (s.memory_high & ~(s.memory_grew | s.server),
     "memory {gpu.memory.p95} % full (more than 90 %): a little more would end the run. Use a "
     "smaller batch with more accumulation; `gpusetup tune --batch-size` finds the largest", ""),
    (s.memory_has_room & s.training & (s.busy | ~s.watched),
     "memory {gpu.memory.p95} % full (70 to 90 % is usual): a larger batch fits and may be faster; "
     "`gpusetup tune --batch-size` finds the largest", ""),
    # The verdict on clocks that are lowered for heat says so itself.
    (s.hot & ~s.lowers_the_clocks("heat"),
     "{gpu.heat} °C is more than 85 °C: improve the cooling", ""),
    (Sign(lambda subject: subject.gpu.parts.start_seconds >= marks.START_UP_NOTE),
     "the first {gpu.parts.start_seconds} s, without work, are not counted", ""),
    (Sign(lambda subject: len(subject.gpu.parts.pauses) > 0), "{paused}", ""),
)  # fmt: skip
"""Notes on a GPU that worked: the condition, the sentence, and the id of the next step if the user
should act on it even in a good run (the most urgent comes first). The acceleration guide's ranges
are 70 to 90 % of the memory, and up to 85 °C."""


class GpuNote(NamedTuple):
    """A note on a GPU that worked."""

    subject: Subject
    words: str
    step: str
    """The id of its next step; "" if it has none."""


def gpu_notes(run: WatchedRun) -> Iterator[GpuNote]:
    """Yields the notes on each GPU that worked."""
    for subject in run.subjects:
        for is_seen, sentence, step in NOTES:
            if is_seen(subject):
                yield GpuNote(subject, filled(sentence, subject), step)


def notes(run: WatchedRun, judgement: Judgement) -> Iterator[str]:
    """Yields the notes on a run whose words are not already in the evidence: about a short
    recording, each GPU that worked, and the machine's memory."""
    if run.samples < marks.FEW_SAMPLES:
        noun = "sample" if run.samples == 1 else "samples"
        words = f"this recording is short ({run.samples} {noun} in {run.seconds:.0f} s)"
        yield f"{words}: `gpusetup monitor 60` watches a minute"
    # GPUs with the same note share one line.
    gpus_with: dict[str, list[GpuRun]] = {}
    for note in gpu_notes(run):
        gpus_with.setdefault(note.words, []).append(note.subject.gpu)
    for words, gpus in gpus_with.items():
        # The verdict `memory-tight` is about full memory already.
        is_about_memory = judgement.verdict == "memory-tight" and words.startswith("memory ")
        if words not in judgement.evidence and not is_about_memory:
            yield with_gpu_names(gpus, words)
    # Without a GPU, full memory is the verdict itself.
    if or_zero(run.host_memory) >= marks.MEMORY_TIGHT and run.gpus:
        yield f"the machine's memory is {run.host_memory:.0f} % full: use fewer loader workers"


# --- the acceleration guide's advice --------------------------------------------------------------

LARGER_BATCH = "larger batch with less accumulation (the same effective batch)"
MORE_WORKERS = "DataLoader with num_workers={workers}, pin_memory, persistent_workers"
MIXED_PRECISION = (
    "mixed precision: torch.amp.autocast in bfloat16 from compute capability 8.0 on, "
    "else float16 with a GradScaler"
)
UNKNOWN_CAUSES = ("short-pieces", "one-reading")
"""Causes of a verdict that only say how much the GPU works, so that any of the advice may help."""


def advice(run: WatchedRun, judgement: Judgement) -> tuple[str, ...]:
    """The acceleration guide's three pieces of advice for a training whose GPU works less than half
    of the time for an unknown reason; a known reason has its own next step."""
    # An unrecognised program counts as a training; one in an output of nvidia-smi has no kind.
    if judgement.cause not in UNKNOWN_CAUSES or run.kind not in ("training", ""):
        return ()
    # If no GPU worked, there is nothing to improve, as with full utilisation.
    lowest = min((subject.work.utilization for subject in run.subjects), default=100.0)
    if lowest >= marks.LOW:
        return ()
    always = (MORE_WORKERS.format(workers=run.useful_workers), MIXED_PRECISION)
    # Unknown memory counts as empty.
    has_room = all(or_zero(gpu.memory.p95) < marks.MEMORY_HIGH for gpu in run.gpus)
    return (LARGER_BATCH, *always) if has_room else always
