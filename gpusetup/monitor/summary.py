"""Builds the summary of a run: verdict, figures and notes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from gpusetup.model.frozen import fields, replace
from gpusetup.monitor.documents import GpuSummary, HostSample, Sample, Spread, Summary
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.judge import judge
from gpusetup.monitor.notes import advice, notes
from gpusetup.monitor.run import RunTally, Subject, WatchedRun
from gpusetup.monitor.steps import next_step
from gpusetup.monitor.work import Work, mean, percentile

MACHINE_FIELDS = [field.name for field in fields(HostSample)]
SPREADS = [field.name for field in fields(GpuSummary) if field.type == Spread | None]
"""The figures of a sample whose spread the summary has, such as `power_watts`."""
UNJUDGED = Summary(verdict=None, evidence="nothing was watched")


def summarise(tally: RunTally, about: Summary = UNJUDGED) -> Summary:
    """Summarise a run: the verdict with its evidence and next step, notes, and figures.

    `about`: a summary with what the samples do not tell: the source, the command, its exit code,
    its last error and its epochs.
    """
    if not tally.samples:
        return UNJUDGED
    run = WatchedRun(tally, about)
    judgement = judge(run)
    # A verdict on the whole run has figures of the command and the machine only.
    subject = judgement.subject or Subject(run, run.machine, Work(run.rows))
    hosts = [row.sample.host for row in run.rows if row.sample.host is not None]
    machine: dict[str, Any] = {}
    for name in MACHINE_FIELDS:
        value = mean(getattr(host, name) for host in hosts)
        machine[name] = None if value is None else round(value)
    return replace(
        about,
        verdict=judgement.verdict,
        cause=judgement.cause,
        evidence=judgement.evidence,
        next=next_step(judgement.steps, subject),
        advice=advice(run, judgement),
        notes=tuple(notes(run, judgement)),
        seconds=tally.seconds,
        samples=tally.samples,
        gpus=tuple(gpu_summary(gpu, run.samples) for gpu in run.gpus),
        machine=HostSample(**machine) if hosts else None,
    )


def gpu_summary(gpu: GpuRun, samples: int) -> GpuSummary:
    """The figures of one GPU. `samples` counts the whole run, whereas the spreads are about the
    time from the first to the last work."""
    work = gpu.parts.work_and_pauses
    # A GPU on which only stray kernels ran has the figures of the whole run.
    rows = work.rows if work and gpu.worked else gpu.rows
    spreads = {name: spread(getattr(row.gpu, name) for row in rows) for name in SPREADS}
    reasons = gpu.parts.work.reasons if gpu.parts.work else {}
    return GpuSummary(
        index=gpu.first.index,
        name=gpu.name,
        uuid=gpu.first.uuid,
        samples=samples,
        # The last sample may lack it, for example if NVML returned an error for it.
        memory_total_bytes=gpu.latest.memory_total_bytes or gpu.first.memory_total_bytes,
        # The document has shares from 0 to 1.
        throttled={name: round(percentage / 100, 4) for name, percentage in reasons.items()},
        lost_at=gpu.lost_since.at if gpu.lost_since else None,
        **spreads,
    )


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


def recorded_samples(documents: Iterable[Sample | Summary]) -> tuple[RunTally, Summary]:
    """The samples of a recording, and the summary at its end, which tells its command (UNJUDGED if
    it was interrupted)."""
    tally, recorded = RunTally(), UNJUDGED
    for document in documents:
        if isinstance(document, Sample):
            tally.add(document)
        else:
            recorded = document
    return tally, recorded
