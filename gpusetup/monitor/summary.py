"""Builds the summary of a run: verdict, figures and notes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.model.frozen import Frozen, replace
from gpusetup.monitor import marks
from gpusetup.monitor.documents import EpochTimes, HostSummary, Sample, Summary, TreeSummary
from gpusetup.monitor.gpu import spread
from gpusetup.monitor.judge import judge
from gpusetup.monitor.notes import advice, notes
from gpusetup.monitor.run import Subject, WatchedRun, worked
from gpusetup.monitor.steps import next_step
from gpusetup.monitor.tally import RunTally
from gpusetup.monitor.work import Work


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
        gpus=tuple(gpu.summary(has_worked=worked(gpu)) for gpu in run.gpus),
        tree=tree_summary(tally),
        host=host_summary(tally),
        command=story.command,
        exit=story.exit_code,
        error=story.error,
    )


def tree_summary(tally: RunTally) -> TreeSummary | None:
    """The figures of the command over the run; None if no command was watched."""
    trees = [row.tree for row in tally.machine.moments.all() if row.tree is not None]
    if not trees:
        return None
    return TreeSummary(
        samples=len(trees),
        cpu_percent=spread(tree.cpu_percent for tree in trees),
        busiest_cpu_percent=spread(tree.busiest_cpu_percent for tree in trees),
        memory_bytes=spread(tree.memory_bytes for tree in trees),
        loader_workers=spread(tree.loader_workers for tree in trees),
        loader_cpu_percent=spread(tree.loader_cpu_percent for tree in trees),
        cpu_wait_percent=spread(tree.cpu_wait_percent for tree in trees),
        read_bytes_per_second=spread(tree.read_bytes_per_second for tree in trees),
        input_bytes_per_second=spread(tree.input_bytes_per_second for tree in trees),
        write_bytes_per_second=spread(tree.write_bytes_per_second for tree in trees),
        cores=trees[-1].cores,
    )


def host_summary(tally: RunTally) -> HostSummary | None:
    """The figures of the machine over the run; None if no sample contains any."""
    hosts = [row.host for row in tally.machine.moments.all() if row.host is not None]
    if not hosts:
        return None
    return HostSummary(
        samples=len(hosts),
        cpu_percent=spread(host.cpu_percent for host in hosts),
        cores=hosts[-1].cores,
        memory_used_bytes=spread(host.memory_used_bytes for host in hosts),
        memory_total_bytes=hosts[-1].memory_total_bytes,
        disk_read_bytes_per_second=spread(host.disk_read_bytes_per_second for host in hosts),
        disk_write_bytes_per_second=spread(host.disk_write_bytes_per_second for host in hosts),
        network_receive_bytes_per_second=spread(
            host.network_receive_bytes_per_second for host in hosts
        ),
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
