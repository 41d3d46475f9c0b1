"""The summary of a run, from its tally, with notes of what else is beyond a mark. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpusetup.monitor import marks
from gpusetup.monitor import signs as s
from gpusetup.monitor.advice import next_step, ordered_advice, sentence
from gpusetup.monitor.documents import Sample, Summary
from gpusetup.monitor.judge import judge
from gpusetup.monitor.marks import LOW
from gpusetup.monitor.run import Run, considered, worked
from gpusetup.monitor.signs import Seen, Sign, below
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.throttling import has_low_clocks

room = Sign(lambda seen: below(seen.gpu.memory.p95, marks.MEMORY_LOW))
hot = Sign(lambda seen: (seen.gpu.heat or 0.0) > marks.HOT)
warmed_up = Sign(lambda seen: seen.gpu.parts.warm)
paused = Sign(lambda seen: seen.gpu.parts.pauses)
only_draws = Sign(lambda seen: seen.gpu.only_draws)
low_clocks = Sign(lambda seen: has_low_clocks(seen.work))
NOTES: tuple[tuple[Sign, str], ...] = (
    (s.memory_grew, "memory grew all the time, to {gpu.memory.peak:.0f} %: perhaps a leak"),
    (s.memory_high & ~(s.memory_grew | s.server),
     f"memory {{gpu.memory.p95:.0f}} % full, more than {marks.MEMORY_HIGH:.0f} %"),
    (room & s.of_kind("training", ""), "memory {gpu.memory.p95:.0f} % full: 70 to 90 % is usual"),
    (hot, f"{{gpu.heat:.0f}} °C, more than {marks.HOT:.0f} °C"),
    (warmed_up, "the figures leave out a warm-up of {gpu.parts.warm:.0f} s (perhaps compilation, "
    "or cold caches)"),
    (paused, "paused {gpu.parts.times} times, {gpu.parts.pause_share:.0f} % of its time, "
     "{gpu.parts.longest_pause:.0f} s at most"),
    (only_draws, "only programs that draw on the screen use this GPU"),
    (s.slow_link, "its PCIe link carries {gpu.link_limit:MB/s} in one direction: check the "
    "slot and the riser"),
    (s.busy & low_clocks & s.unexplained,
     "SM clock at {work.clock_share:.0f} % of its maximum, and the driver gives no reason; "
     "`nvidia-smi -q -d CLOCK` shows locked clocks (-lgc)"),
)  # fmt: skip
"""What is said of a GPU that works, if it is so."""


def notes(run: Run) -> Iterator[str]:
    if marks.LEAST_SAMPLES <= run.samples < marks.FEW_SAMPLES:
        words = f"a short record, {run.samples} samples in {run.seconds:.0f} s"
        yield f"{words}: a minute of them says more"
    for gpu in run.gpus:
        work = considered(gpu) if worked(gpu) else None
        if gpu.lost_at is not None:
            yield f"GPU {gpu.label} is lost since {gpu.lost_at}; `gpusetup doctor` says more"
        elif work is not None:
            seen = Seen(run, gpu, work)
            sentences = (sentence(text, run, seen) for when, text in NOTES if when(seen))
            yield from (f"GPU {gpu.label}: {one}" for one in sentences)
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


def summarise(
    tally: Tally,
    *,
    source: str | None = None,
    command: tuple[str, ...] | None = None,
    exit_code: int | None = None,
) -> Summary:
    run = Run(tally, command, exit_code)
    judgement, seen = judge(run)
    low = min((work.utilization for work in run.works), default=0.0) < LOW
    return Summary(
        verdict=judgement.verdict,
        cause=judgement.cause,
        evidence=judgement.evidence,
        next=next_step(judgement.steps, seen, run),
        advice=ordered_advice(seen, judgement.verdict, judgement.cause) if low else (),
        notes=tuple(notes(run)),
        source=source,
        seconds=tally.seconds,
        samples=tally.samples,
        gpus=tuple(gpu.summary() for gpu in run.gpus),
        command=command,
        exit=exit_code,
    )


def replayed(documents: Iterable[Sample | Summary], exit_code: int | None = None) -> Summary:
    """The summary of a recording; of which command, its own summary tells where it has one.

    `exit_code`: how the command ended, where the caller knows better.
    """
    tally, recorded = Tally(), None
    for document in documents:
        if isinstance(document, Sample):
            tally.add(document)
        else:
            recorded = document
    if recorded is None:
        return summarise(tally, exit_code=exit_code)
    exit = recorded.exit if exit_code is None else exit_code
    return summarise(tally, source=recorded.source, command=recorded.command, exit_code=exit)
