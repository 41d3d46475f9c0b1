"""Runs that stopped to make progress: a hang in a collective, or everything at rest. Pure."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.gpu import Gpu
from gpusetup.monitor.judgement import Judgement
from gpusetup.monitor.run import Run
from gpusetup.monitor.work import Work, or_zero


def hang_in_collective(run: Run) -> Judgement | None:
    """Ranks that spin to the end after they worked, in a run that did not end well."""
    working = [gpu for gpu in run.at_work if gpu.lost_at is None]
    spinning = spinning_gpus(working, run)
    most_spin = len(spinning) * 2 >= len(working)
    if run.exit == 0 or not spinning or not most_spin:
        return None
    is_one_of_several = run.launched or run.nodes > 1
    # One GPU that spins here may wait for ranks elsewhere, if the job ended with an error.
    waits_elsewhere = is_one_of_several and bool(run.exit)
    if len(working) < 2 and not waits_elsewhere:
        return None
    since = min(gpu.tail.since for gpu in spinning if gpu.tail)
    plural = "s" if len(spinning) > 1 else ""
    evidence = f"{no_progress_since(since, run)} {len(spinning)} GPU{plural} looked busy"
    resting = [gpu.label for gpu in working if gpu not in spinning and gpu.parts.rest]
    if resting:
        evidence += f", GPU {', '.join(resting)} did nothing"
    evidence += ", and nothing moved: a rank waits in a collective for another rank"
    return Judgement("communication-bound", "hang", evidence, ("see-where-it-waits",))


def spinning_gpus(working: list[Gpu], run: Run) -> list[Gpu]:
    """The GPUs that spin to the end, for long enough to be sure."""
    soon = [gpu for gpu in working if spins_to_the_end(gpu, marks.HANG_SECONDS)]
    # If it is not known how the run ended, one rank may do something while the others wait.
    if run.exit is not None or len(soon) == len(working):
        return soon
    return [gpu for gpu in working if spins_to_the_end(gpu, marks.HANG_SECONDS_UNENDED)]


def no_progress_since(second: float, run: Run) -> str:
    """How the evidence of a hang begins."""
    return f"the job has not moved since second {second:.0f} of {run.seconds:.0f}:"


def spins_to_the_end(gpu: Gpu, seconds: float) -> bool:
    """Whether it looked busy for so long at the end, moved nothing and drew less than before."""
    tail = gpu.tail
    if tail is None or tail.seconds < seconds or not nothing_moves(tail.work):
        return False
    watts_before = or_zero(tail.before.power_watts if tail.before else None)
    watts_now = tail.work.power_watts
    if watts_now is None:
        return False
    return watts_before >= watts_now * marks.POWER_DROP


def nothing_moves(work: Work) -> bool:
    """Whether links, network and disk carry less than work needs."""
    return (
        or_zero(work.link_rate) < marks.NVLINK_RATE
        and or_zero(work.pcie_rate) < marks.PCIE_RATE
        and or_zero(work.network_rate) < marks.NETWORK_RATE
        and or_zero(work.read_rate) < marks.READ_RATE
        and or_zero(work.write_rate) < marks.WRITE_RATE
    )


def standstill(run: Run) -> Judgement | None:
    """Every GPU quiet and the processes at rest, until somebody ended the run, or long enough."""
    # A server and a notebook rest until somebody asks them.
    if run.exit == 0 or not run.at_work or run.kind in ("server", "notebook"):
        return None
    if not all(rests_to_the_end(gpu, run) for gpu in run.at_work):
        return None
    since = max(or_zero(gpu.tally.quiet_since) for gpu in run.at_work)
    rested = "its GPUs did nothing, its processes rested, and nothing was read"
    evidence = f"{no_progress_since(since, run)} {rested}"
    return Judgement("bursty", "hang", evidence, ("see-where-it-waits",))


def rests_to_the_end(gpu: Gpu, run: Run) -> bool:
    """Whether GPU and processes did nothing for long enough at the end."""
    after_work = gpu.parts.rest
    since = gpu.tally.quiet_since
    if after_work is None or since is None or after_work.cpu is None:
        return False
    least_seconds = marks.HANG_SECONDS_UNENDED if run.exit is None else marks.HANG_SECONDS
    lasts_long = run.seconds - since >= least_seconds
    processes_rest = after_work.cpu < marks.RESTING_CPU
    return lasts_long and processes_rest and nothing_moves(after_work)
