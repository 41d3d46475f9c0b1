"""Recognises runs that stopped making progress: ranks that hang in a collective, or a job in which
everything is idle. Pure functions."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.run import WatchedRun
from gpusetup.monitor.work import Work, or_zero


def hang_in_collective(run: WatchedRun) -> Judgement | None:
    """The verdict on a hang in a collective: in a run that did not end well, GPUs look busy until
    the end without moving data. None if there is no such hang."""
    working = [gpu for gpu in run.at_work if gpu.lost_at is None]
    spinning = spinning_gpus(working, run)
    most_spin = len(spinning) * 2 >= len(working)
    if run.exit == 0 or not spinning or not most_spin:
        return None
    is_one_of_several = run.launched or run.nodes > 1
    # If the job ended with an error, one spinning GPU here may have waited for ranks on other
    # machines.
    waits_elsewhere = is_one_of_several and bool(run.exit)
    if len(working) < 2 and not waits_elsewhere:
        return None
    # The hang begins when the first GPU spins, because the others may still have had work in their
    # queues.
    tails = [gpu.tail for gpu in spinning if gpu.tail]
    since = min(tail.since for tail in tails)
    noun = "GPUs" if len(spinning) > 1 else "GPU"
    evidence = f"{no_progress_since(since, run)} {len(spinning)} {noun} looked busy"
    others = [gpu for gpu in working if gpu not in spinning]
    resting = [gpu.label for gpu in others if gpu.parts.rest]
    if resting:
        labels = ", ".join(resting)
        evidence += f", GPU {labels} did nothing"
    evidence += ", and nothing moved: a rank waits in a collective for another rank"
    return Judgement("communication-bound", "hang", evidence, ("see-where-it-waits",))


def spinning_gpus(working: list[GpuRun], run: WatchedRun) -> list[GpuRun]:
    """The GPUs that look busy until the end without moving data, for long enough to call it a
    hang."""
    spinning_soon = []
    spinning_long = []
    for gpu in working:
        if spins_to_the_end(gpu, marks.HANG_SECONDS):
            spinning_soon.append(gpu)
        if spins_to_the_end(gpu, marks.HANG_SECONDS_UNENDED):
            spinning_long.append(gpu)
    all_spin = len(spinning_soon) == len(working)
    # If it is unknown how the run ended, require a longer time, because one rank may be working
    # while the others wait for it.
    is_sure = run.exit is not None or all_spin
    return spinning_soon if is_sure else spinning_long


def no_progress_since(second: float, run: WatchedRun) -> str:
    """The beginning of the evidence for a hang, with the second of the last progress."""
    last_second = run.seconds
    return f"the job has not moved since second {second:.0f} of {last_second:.0f}:"


def spins_to_the_end(gpu: GpuRun, seconds: float) -> bool:
    """Whether the GPU looked busy for at least this many seconds at the end, but moved no data and
    drew much less power than before."""
    tail = gpu.tail
    if tail is None or tail.seconds < seconds:
        return False
    watts_now = tail.work.power_watts
    if watts_now is None or not nothing_moves(tail.work):
        return False
    work_before = tail.before
    watts_before = or_zero(work_before.power_watts if work_before else None)
    # Kernels that poll need far less power than kernels that compute.
    least_before = watts_now * marks.POWER_DROP
    return watts_before >= least_before


def nothing_moves(work: Work) -> bool:
    """Whether NVLink, PCIe, network and disk transfer less than real work needs; an unknown rate
    counts as 0."""
    # Disk and network count too, because it is not a hang if one rank saves or loads while the
    # others wait.
    rates = (
        (work.link_rate, marks.NVLINK_RATE),
        (work.pcie_rate, marks.PCIE_RATE),
        (work.network_rate, marks.NETWORK_RATE),
        (work.read_rate, marks.READ_RATE),
        (work.write_rate, marks.WRITE_RATE),
    )
    return all(or_zero(rate) < rate_of_work for rate, rate_of_work in rates)


def standstill(run: WatchedRun) -> Judgement | None:
    """The verdict on a job whose GPUs and processes were all idle until it was ended, or for very
    long; None if they were not."""
    # Leave out servers and notebooks, which rest until a user sends a request.
    waits_for_people = run.kind in ("server", "notebook")
    if run.exit == 0 or not run.at_work or waits_for_people:
        return None
    for gpu in run.at_work:
        if not rests_to_the_end(gpu, run):
            return None
    # The standstill begins when the last GPU stops working, because the job makes progress until
    # then.
    quiet_times = [or_zero(gpu.tally.quiet_since) for gpu in run.at_work]
    since = max(quiet_times)
    rested = "its GPUs did nothing, its processes rested, and nothing was read"
    evidence = f"{no_progress_since(since, run)} {rested}"
    return Judgement("bursty", "hang", evidence, ("see-where-it-waits",))


def rests_to_the_end(gpu: GpuRun, run: WatchedRun) -> bool:
    """Whether the GPU, the processes and all transfers rested at the end for long enough to call it
    a hang."""
    after_work = gpu.parts.rest
    since = gpu.tally.quiet_since
    # If the command's processes were not watched, it is unknown whether they rested.
    if after_work is None or since is None or after_work.cpu is None:
        return False
    is_still_running = run.exit is None
    # Require a longer time if the job is still running, because it may only be in a long pause.
    least_seconds = marks.HANG_SECONDS_UNENDED if is_still_running else marks.HANG_SECONDS
    quiet_seconds = run.seconds - since
    processes_rest = after_work.cpu < marks.RESTING_CPU
    lasts_long = quiet_seconds >= least_seconds
    return lasts_long and processes_rest and nothing_moves(after_work)
