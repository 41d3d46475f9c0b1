"""How a run ended: with a GPU lost, in a hang, or with nothing happening any more. Pure."""

from __future__ import annotations

import math

from gpusetup.monitor import marks
from gpusetup.monitor.run import Run, worked
from gpusetup.monitor.tally import Gpu
from gpusetup.monitor.work import Work


def lost(run: Run) -> str:
    """What a GPU that was lost at work did to the run; `""` where none was, or others never
    needed it."""
    gone = [gpu for gpu in run.gpus if gpu.lost_at is not None]
    if not gone or (run.at_work and not any(map(worked, gone))):
        return ""
    first = min(gone, key=lambda gpu: gpu.lost_since)
    return f"GPU {first.label} was lost at second {first.lost_since:.0f} of {run.seconds:.0f}"


def hung(run: Run) -> str:
    """Ranks that spin to the end after they worked, in a run that did not end well."""
    working = [gpu for gpu in run.at_work if gpu.lost_at is None]
    # Where nobody told how it ended, one rank may do something while the others wait.
    sure = run.exit is not None or all(_stopped(gpu, marks.HUNG) for gpu in working)
    least = marks.HUNG if sure else marks.HUNG_UNTOLD
    spinning = [gpu for gpu in working if _stopped(gpu, least)]
    if run.exit == 0 or not spinning or len(spinning) * 2 < len(working):
        return ""
    of_a_job = run.launched or run.nodes > 1
    if len(working) < 2 and not (of_a_job and run.exit):
        return ""
    first = min((gpu.tail for gpu in spinning if gpu.tail), key=lambda tail: tail.since)
    told = _stood_still(first.since, run)
    told += f" {len(spinning)} GPU{'s' if len(spinning) > 1 else ''} looked busy"
    resting = [gpu.label for gpu in working if gpu not in spinning and gpu.parts.rest]
    if resting:
        told += f", GPU {', '.join(resting)} did nothing"
    return f"{told}, and nothing moved: a rank waits in a collective that another never reached"


def _stood_still(since: float, run: Run) -> str:
    return f"the job has not moved since second {since:.0f} of {run.seconds:.0f}:"


def _stopped(gpu: Gpu, least: float) -> bool:
    tail = gpu.tail
    if tail is None or tail.seconds < least or not nothing_moves(tail.work):
        return False
    work, watts = tail.work, tail.before.power_watts if tail.before else None
    return (watts or 0.0) >= (work.power_watts or math.inf) * marks.FELL


def nothing_moves(work: Work) -> bool:
    rates = (
        (work.link_rate, marks.LINK),
        (work.pcie_rate, marks.PCIE),
        (work.network_rate, marks.NETWORK),
        (work.read_rate, marks.READS),
        (work.write_rate, marks.WRITES),
    )
    return all((rate or 0.0) < mark for rate, mark in rates)


def stood_still(run: Run) -> str:
    """Every GPU quiet and the processes at rest, until somebody ended the run, or long enough."""
    if run.exit == 0 or not run.at_work or run.kind in ("server", "notebook"):
        return ""
    if not all(_rests(gpu, run) for gpu in run.at_work):
        return ""
    since = max(gpu.tally.quiet_since or 0.0 for gpu in run.at_work)
    told = f"{_stood_still(since, run)} its GPUs did nothing, its processes rested, and nothing"
    return f"{told} was read"


def _rests(gpu: Gpu, run: Run) -> bool:
    rest, since = gpu.parts.rest, gpu.tally.quiet_since
    least = marks.HUNG_UNTOLD if run.exit is None else marks.HUNG
    if rest is None or since is None or run.seconds - since < least:
        return False
    return rest.cpu is not None and rest.cpu < marks.RESTS and nothing_moves(rest)
