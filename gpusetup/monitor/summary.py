"""Builds the summary of a run: verdict, figures and notes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from gpusetup.model.frozen import Frozen, fields, replace
from gpusetup.monitor import marks
from gpusetup.monitor.documents import (
    EpochTimes,
    GpuSummary,
    HostSummary,
    Sample,
    Spread,
    Summary,
    TreeSummary,
)
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.judge import judge
from gpusetup.monitor.notes import advice, notes
from gpusetup.monitor.run import Subject, WatchedRun, worked
from gpusetup.monitor.steps import next_step
from gpusetup.monitor.tally import RunTally
from gpusetup.monitor.work import Work, percentile


class Story(Frozen):
    """What is known about a run apart from its samples."""

    source: str | None = None
    not_watched: str | None = None
    """Why a better source was not used."""
    command: tuple[str, ...] | None = None
    exit_code: int | None = None
    error: str | None = None
    """The last error line that the command printed."""
    epochs: EpochTimes | None = None
    has_utilization: bool = True
    """False for a log that has no column for utilisation."""


READINGS = ("nvidia-smi table", "nvidia-smi -q", "nvidia-smi csv", "nvidia-smi dmon")
"""Sources that may consist of a single reading, which is then judged as such."""


def summarise(tally: RunTally, story: Story | None = None) -> Summary:
    """Summarise a run: the verdict with its evidence and next step, notes, and figures."""
    story = story or Story()
    if not tally.samples:
        return Summary(verdict=None, evidence="nothing was watched")
    run = WatchedRun(
        tally,
        story.command,
        story.exit_code,
        is_reading=story.source in READINGS and tally.samples < marks.LEAST_SAMPLES,
        has_utilization=story.has_utilization,
    )
    judgement = judge(run, story.error)
    # A verdict on the whole run has figures of the command and the machine only.
    subject = judgement.subject or Subject(run, run.machine, Work(run.rows))
    return Summary(
        verdict=judgement.verdict,
        cause=judgement.cause,
        evidence=judgement.evidence,
        next=next_step(judgement.steps, subject),
        advice=advice(run, judgement),
        notes=tuple(notes(run, judgement)),
        source=story.source,
        not_watched=story.not_watched,
        seconds=tally.seconds,
        samples=tally.samples,
        epochs=story.epochs,
        gpus=tuple(map(gpu_summary, run.gpus)),
        tree=tree_summary(tally),
        host=host_summary(tally),
        command=story.command,
        exit=story.exit_code,
        error=story.error,
    )


def gpu_summary(gpu: GpuRun) -> GpuSummary:
    work = gpu.parts.work
    return GpuSummary(
        index=gpu.first.index,
        name=gpu.name,
        uuid=gpu.first.uuid,
        samples=gpu.tally.moments.count,
        memory_total_bytes=gpu.latest.memory_total_bytes or gpu.first.memory_total_bytes,
        throttled={
            name: round(share / 100, 4) for name, share in (work.reasons if work else {}).items()
        },
        working_share=round((work.samples if work else 0) / len(gpu.rows), 4),
        lost_at=gpu.lost_at,
        **spreads(GpuSummary, gpu.counted_samples(has_worked=worked(gpu))),
    )


def tree_summary(tally: RunTally) -> TreeSummary | None:
    """The figures of the command over the run; None if no command was watched."""
    trees = [row.tree for row in tally.machine.moments.all() if row.tree is not None]
    if not trees:
        return None
    return TreeSummary(samples=len(trees), cores=trees[-1].cores, **spreads(TreeSummary, trees))


def host_summary(tally: RunTally) -> HostSummary | None:
    """The figures of the machine over the run; None if no sample contains any."""
    hosts = [row.host for row in tally.machine.moments.all() if row.host is not None]
    if not hosts:
        return None
    return HostSummary(
        samples=len(hosts),
        cores=hosts[-1].cores,
        memory_total_bytes=hosts[-1].memory_total_bytes,
        **spreads(HostSummary, hosts),
    )


def spreads(kind: type, samples: Sequence[object]) -> dict[str, Any]:
    """The spread of each figure that a summary of this kind has spreads of."""
    names = [field.name for field in fields(kind) if field.type == Spread | None]
    return {name: spread(getattr(sample, name) for sample in samples) for name in names}


def spread(values: Iterable[float | None]) -> Spread | None:
    """The mean, 5th and 95th percentile and peak of these values; None if all are unknown."""
    figures = [float(value) for value in values if value is not None]
    if not figures:
        return None
    return Spread(
        mean=round(fmean(figures), 2),
        p5=percentile(figures, 5),
        p95=percentile(figures, 95),
        peak=max(figures),
    )


def replayed(documents: Iterable[Sample | Summary], *, exit_code: int | None = None) -> Summary:
    """The summary of a recording. The command, its exit code and its epochs come from the summary
    that the recording contains.

    `exit_code`: overrides the recorded exit code if the caller knows how the command ended.
    """
    tally = RunTally()
    recorded: Summary | None = None
    for document in documents:
        if isinstance(document, Sample):
            tally.add(document)
        else:
            recorded = document
    story = story_of(recorded)
    if exit_code is not None:
        story = replace(story, exit_code=exit_code)
    return summarise(tally, story)


def story_of(recorded: Summary | None) -> Story:
    """The facts in the summary at the end of a recording that the samples do not contain; an empty
    `Story` if there is no summary."""
    if recorded is None:
        return Story()
    return Story(
        source=recorded.source,
        not_watched=recorded.not_watched,
        command=recorded.command,
        exit_code=recorded.exit,
        error=recorded.error,
        epochs=recorded.epochs,
    )
