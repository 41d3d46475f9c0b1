"""The summary of a run, from its tally. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.monitor.judge import judge
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.values import Sample, Summary


def summarise(
    tally: Tally,
    *,
    source: str | None = None,
    command: tuple[str, ...] | None = None,
    exit_code: int | None = None,
) -> Summary:
    judged = judge(tally.facts(command, exit_code))
    return Summary(
        verdict=judged.verdict,
        cause=judged.cause,
        evidence=judged.evidence,
        next=judged.next,
        advice=judged.advice,
        notes=judged.notes,
        source=source,
        seconds=tally.seconds,
        samples=tally.samples,
        gpus=tuple(gpu.summary() for gpu in tally.gpus.values()),
        tree=tally.tree_summary(),
        command=command,
        exit=exit_code,
    )


def tallied(samples: Iterable[Sample]) -> Tally:
    tally = Tally()
    for sample in samples:
        tally.add(sample)
    return tally
