"""The verdict on a run in which no GPU was watched: what the command and the machine did. Pure.

On a machine without a GPU the training runs on the CPU; with one of another maker nobody told us
how busy that is. So the verdicts speak of the CPU, the loader, the disk and the network alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.documents import Verdict
from gpusetup.monitor.evidence import loaders_and_their_cpu, megabytes, whole
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.run import Run
from gpusetup.monitor.work import Work, at_least, below, or_zero, percent


class CpuCase(NamedTuple):
    verdict: Verdict
    cause: str
    proof: Callable[[Run, Work], bool]
    sentence: Callable[[Run, Work], str]
    steps: tuple[str, ...]


def main_waits(work: Work) -> bool:
    """The process that trains has time to wait."""
    return below(work.busiest_cpu, marks.CORE_FULL)


def memory_full(run: Run, work: Work) -> bool:
    return at_least(run.host_memory, marks.MEMORY_TIGHT)


def others_use_the_cpu(run: Run, work: Work) -> bool:
    """No CPU is left, and others than the command use a good part of it.

    A command that hardly computes does not miss what they use.
    """
    others_cpu = or_zero(work.host_cpu) - or_zero(work.cpu)
    others_share = others_cpu / run.host_cores if run.host_cores else None
    computes = at_least(work.cpu, 10.0)
    no_cpu_is_left = at_least(work.host_share, 90.0)
    others_use_much = at_least(others_share, 30.0)
    return computes and no_cpu_is_left and others_use_much


def workers_are_behind(run: Run, work: Work) -> bool:
    return main_waits(work) and at_least(work.worker_cpu, 75.0)


def waits_for_a_disk(run: Run, work: Work) -> bool:
    reads = at_least(work.read_rate, marks.READ_RATE)
    return main_waits(work) and (at_least(work.blocked, 0.5) or reads)


def waits_for_the_network(run: Run, work: Work) -> bool:
    return main_waits(work) and at_least(work.network_rate, marks.NETWORK_RATE)


def rests(run: Run, work: Work) -> bool:
    return below(work.cpu, marks.RESTING_CPU)


def all_cores_compute(run: Run, work: Work) -> bool:
    share = percent(work.cpu, or_zero(run.usable_cores) * 100)
    return at_least(share, marks.CPU_USED_UP)


def one_core_computes(run: Run, work: Work) -> bool:
    return at_least(work.busiest_cpu, marks.CORE_FULL)


def cpu_words(run: Run, work: Work) -> str:
    cores = or_zero(run.usable_cores)
    return f"the command used {whole(work.cpu)} % CPU of {cores:g} cores"


CASES: tuple[CpuCase, ...] = (
    CpuCase(
        "memory-tight",
        "host-memory",
        memory_full,
        lambda run, work: f"the machine's memory was {whole(run.host_memory)} % full",
        ("use-less-host-memory",),
    ),
    CpuCase(
        "input-starved",
        "neighbours",
        others_use_the_cpu,
        lambda run, work: (
            f"{cpu_words(run, work)}, and others used up the rest of the machine's "
            f"CPU ({whole(work.host_share)} % busy)"
        ),
        ("see-who-uses-the-cpu",),
    ),
    CpuCase(
        "input-starved",
        "workers",
        workers_are_behind,
        lambda run, work: (
            f"the process waited ({whole(work.busiest_cpu)} % of a core) for "
            f"{loaders_and_their_cpu(work)}"
        ),
        ("more-workers",),
    ),
    CpuCase(
        "input-starved",
        "storage",
        waits_for_a_disk,
        lambda run, work: (
            f"the process waited ({whole(work.busiest_cpu)} % of a core) while "
            f"{megabytes(work.read_rate)} were read from a disk"
        ),
        ("faster-storage",),
    ),
    CpuCase(
        "input-starved",
        "network",
        waits_for_the_network,
        lambda run, work: (
            f"the process waited ({whole(work.busiest_cpu)} % of a core) while "
            f"{megabytes(work.network_rate)} came over the network"
        ),
        ("faster-storage",),
    ),
    CpuCase(
        "idle",
        "waits",
        rests,
        lambda run, work: f"{cpu_words(run, work)}: it waited",
        ("see-where-it-waits",),
    ),
    CpuCase(
        "cpu-bound",
        "all-cores",
        all_cores_compute,
        lambda run, work: f"{cpu_words(run, work)}: all of them compute",
        ("use-a-gpu",),
    ),
    CpuCase(
        "cpu-bound",
        "one-process",
        one_core_computes,
        lambda run, work: (
            f"{cpu_words(run, work)}: its busiest process computed at "
            f"{whole(work.busiest_cpu)} % of a core, and no loader, disk or network held it back"
        ),
        ("more-threads",),
    ),
    CpuCase(
        "bursty",
        "waits",
        lambda run, work: True,
        lambda run, work: f"{cpu_words(run, work)}: it computed and waited in turn",
        ("see-where-it-waits",),
    ),
)
"""The first whose proof holds is the verdict."""


def judged_without_gpu(run: Run) -> Judgement:
    """The verdict on the command; None if none was watched."""
    work = run.since_start
    if run.machine is None:
        return Judgement(None, "", "nothing was watched", ("see-why-no-gpu",))
    if work is None or work.cpu is None:
        was_watched = run.machine.cpu is not None
        command = "the command ended too soon to be judged" if was_watched else "no command"
        evidence = f"no GPU was watched, and {command}"
        if run.machine.host_share is not None:
            evidence += f"; the machine's CPU was {whole(run.machine.host_share)} % busy"
        return Judgement(None, "", evidence, ("see-why-no-gpu",))
    for case in CASES:
        if case.proof(run, work):
            evidence = f"{case.sentence(run, work)} (no GPU was watched)"
            return Judgement(case.verdict, case.cause, evidence, case.steps)
    raise AssertionError("the last case always holds")
