"""The verdict on a run without a watched GPU, based on what the command and the machine did. Pure
functions.

On a machine without a GPU, the training runs on the CPU. With a GPU from another maker, gpusetup
may be unable to read how busy it is. So these verdicts are only about the CPU, the loader, the disk
and the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.command_signs import (
    NO_CPU_LEFT,
    OTHERS_USE_MUCH,
    SOME,
    WORKER_FULL,
    comes_over_the_network,
    lacks_cpu_most,
    waits_for_a_core,
    workers_wait,
)
from gpusetup.monitor.documents import Verdict
from gpusetup.monitor.evidence import loaders_and_their_cpu, megabytes, whole
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.run import WatchedRun
from gpusetup.monitor.work import Work, at_least, below, or_zero, percent


class CpuCase(NamedTuple):
    verdict: Verdict
    cause: str
    proof: Callable[[WatchedRun, Work], bool]
    sentence: Callable[[WatchedRun, Work], str]
    steps: tuple[str, ...]


def main_waits(work: Work) -> bool:
    """Whether the command's busiest process often waits; False if unknown."""
    # Python code runs on one core, so a process that never waits fills one core.
    busiest_cpu = work.busiest_cpu
    return below(busiest_cpu, marks.CORE_FULL)


def memory_full(run: WatchedRun, work: Work) -> bool:
    """Whether memory was so full that the next allocation could make the machine swap or kill a
    process."""
    # Use the run's highest value, because memory needs to be full only once for this.
    memory_share = run.host_memory
    return at_least(memory_share, marks.MEMORY_TIGHT)


COMPUTES = 10.0
"""The least CPU use, in percent of a core, of a command that needs the CPU. A command that uses
less does not lack what other programs use."""


def others_use_the_cpu(run: WatchedRun, work: Work) -> bool:
    """Whether the CPU is full, other programs use a large part of it, and the command needs it.

    On a full machine the command may still wait for something else, such as a disk. In that case
    the other programs do not slow it down.
    """
    machine_cpu = or_zero(work.host_cpu)
    own_cpu = or_zero(work.cpu)
    others_cpu = machine_cpu - own_cpu
    others_share = others_cpu / run.host_cores if run.host_cores else None
    computes = at_least(work.cpu, COMPUTES)
    # These are the same limits as in the verdicts on a run with a GPU.
    no_cpu_is_left = at_least(work.host_share, NO_CPU_LEFT)
    others_use_much = at_least(others_share, OTHERS_USE_MUCH)
    needs_more_cpu = waits_for_a_core(work)
    # Older recordings do not contain the time spent waiting for a core. In that case a busy disk or
    # waiting workers are the more likely cause.
    if needs_more_cpu is None:
        needs_more_cpu = not (waits_for_a_disk(run, work) or workers_wait(work))
    return computes and no_cpu_is_left and others_use_much and needs_more_cpu


def waits_for_resting_workers(run: WatchedRun, work: Work) -> bool:
    """Whether the process waits for loader workers that hardly compute, because they wait for
    storage or the network themselves."""
    # Workers that get no core hardly compute either, but then a different verdict applies.
    return main_waits(work) and workers_wait(work) and not lacks_cpu_most(work)


def workers_are_behind(run: WatchedRun, work: Work) -> bool:
    """Whether the process waits for loader workers that compute without pause."""
    worker_cpu = work.worker_cpu
    workers_are_full = at_least(worker_cpu, WORKER_FULL)
    return main_waits(work) and workers_are_full


def waits_for_a_disk(run: WatchedRun, work: Work) -> bool:
    """Whether the process waits for a disk: it reads a lot from one, or some of the command's
    processes are blocked by one."""
    reads = at_least(work.read_rate, marks.READ_RATE)
    # Processes that wait for a network file system are in state D ("blocked") too.
    is_blocked = at_least(work.blocked, SOME)
    uses_a_disk = (is_blocked or reads) and not comes_over_the_network(work)
    return main_waits(work) and uses_a_disk and not lacks_cpu_most(work)


def waits_for_the_network(run: WatchedRun, work: Work) -> bool:
    """Whether the process waits for its own data from the network."""
    return main_waits(work) and comes_over_the_network(work)


def rests(run: WatchedRun, work: Work) -> bool:
    """Whether all processes of the command together hardly compute."""
    # Even a training that polls a queue while it waits stays below this limit.
    whole_cpu = work.cpu
    return below(whole_cpu, marks.RESTING_CPU)


def all_cores_compute(run: WatchedRun, work: Work) -> bool:
    """Whether the command uses all cores that it may use; False if their number is unknown."""
    # CPU affinity and the quota limit them; without such limits, all cores of the machine count.
    usable_cores = or_zero(run.usable_cores)
    usable_percent = usable_cores * 100
    share = percent(work.cpu, usable_percent)
    return at_least(share, marks.CPU_USED_UP)


def has_more_cores(run: WatchedRun) -> bool:
    """Whether the machine has more cores than a quota or CPU affinity gives the command."""
    usable_cores = or_zero(run.usable_cores)
    machine_cores = or_zero(run.host_cores)
    return usable_cores < machine_cores


def one_core_computes(run: WatchedRun, work: Work) -> bool:
    """Whether the busiest process computes without waiting."""
    # The process may use several threads; an earlier case in CASES handles threads that fill all
    # cores.
    busiest_cpu = work.busiest_cpu
    return at_least(busiest_cpu, marks.CORE_FULL)


def wait_words(work: Work) -> str:
    """The end of a sentence, saying how long the command's threads waited for a core; empty if that
    is unknown."""
    if work.cpu_wait_share is None:
        return ""
    return f"; its threads waited for a core {whole(work.cpu_wait_share)} % of their time"


def cpu_words(run: WatchedRun, work: Work) -> str:
    """The beginning of most sentences here: how much CPU the command used, in percent of one core.

    The number of cores is left out if it is unknown, as in a recording that lacks the machine's
    figures.
    """
    cpu_used = f"the command used {whole(work.cpu)} % CPU"
    cores = run.usable_cores
    if not cores:
        return cpu_used
    return f"{cpu_used} of {cores:g} cores"


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
        "neighbours",
        others_use_the_cpu,
        lambda run, work: (
            f"{cpu_words(run, work)}, and others used up the rest of the machine's "
            f"CPU ({whole(work.host_share)} % busy){wait_words(work)}"
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
        "network",
        waits_for_the_network,
        lambda run, work: (
            f"the process waited ({whole(work.busiest_cpu)} % of a core) while "
            f"{megabytes(work.network_rate)} came over the network"
        ),
        ("faster-storage",),
    ),
    CpuCase(
        "input-starved",
        "slow-items",
        waits_for_resting_workers,
        lambda run, work: (
            f"the process waited ({whole(work.busiest_cpu)} % of a core) for "
            f"{loaders_and_their_cpu(work)}: they wait for storage or the network themselves"
        ),
        ("fetch-in-advance",),
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
        "quota",
        lambda run, work: all_cores_compute(run, work) and has_more_cores(run),
        lambda run, work: (
            f"{cpu_words(run, work)}, all that it may use (the machine has {run.host_cores})"
        ),
        ("more-cores",),
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
"""The first case whose `proof` returns true gives the verdict."""


def judged_without_gpu(run: WatchedRun) -> Judgement:
    """The verdict on a run without a watched GPU. `verdict` is None if no command was watched, or
    not for long enough."""
    work = run.since_start
    if run.machine is None:
        return Judgement(None, "", "nothing was watched", ("see-why-no-gpu",))
    # There are no figures of the command before its second sample, because rates need two samples.
    if work is None or work.cpu is None:
        was_watched = run.machine.cpu is not None
        command = "the command ended too soon to be judged" if was_watched else "no command"
        evidence = f"no GPU was watched, and {command}"
        if run.machine.host_share is not None:
            busy = whole(run.machine.host_share)
            evidence += f"; the machine's CPU was {busy} % busy"
        return Judgement(None, "", evidence, ("see-why-no-gpu",))
    for case in CASES:
        if case.proof(run, work):
            sentence = case.sentence(run, work)
            evidence = f"{sentence} (no GPU was watched)"
            return Judgement(case.verdict, case.cause, evidence, case.steps)
    raise AssertionError("the last case always holds")
