"""The summary of a run, from its tally. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.monitor.advice import next_step, ordered_advice
from gpusetup.monitor.documents import Sample, Summary
from gpusetup.monitor.judge import judge
from gpusetup.monitor.marks import LOW
from gpusetup.monitor.notes import notes
from gpusetup.monitor.run import Run
from gpusetup.monitor.tally import Tally


def summarise(
    tally: Tally,
    *,
    source: str | None = None,
    command: tuple[str, ...] | None = None,
    exit_code: int | None = None,
) -> Summary:
    run = Run(tally, command, exit_code)
    judged, seen = judge(run)
    low = min((work.utilization for work in run.works), default=0.0) < LOW
    return Summary(
        verdict=judged.verdict,
        cause=judged.cause,
        evidence=judged.evidence,
        next=next_step(judged.steps, seen, run),
        advice=ordered_advice(seen, judged.verdict, judged.cause) if low else (),
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
    tally, told = Tally(), None
    for document in documents:
        if isinstance(document, Sample):
            tally.add(document)
        else:
            told = document
    if told is None:
        return summarise(tally, exit_code=exit_code)
    ended = told.exit if exit_code is None else exit_code
    return summarise(tally, source=told.source, command=told.command, exit_code=ended)
