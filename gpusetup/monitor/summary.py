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
