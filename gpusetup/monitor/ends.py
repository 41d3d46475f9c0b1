"""How a run ended: with a GPU lost, in a hang, or with nothing happening any more. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.monitor import marks
from gpusetup.monitor.facts import GpuFacts, RunFacts, Work
from gpusetup.monitor.programs import is_launched, kind_of, nodes_of
from gpusetup.monitor.team import at_work, worked


def lost(facts: RunFacts) -> str:
    """What a GPU that was lost at work did to the run; `""` where none was, or others never
    needed it."""
    gone = [gpu for gpu in facts.gpus if gpu.lost_at is not None]
    if not any(map(worked, gone)) and at_work(facts):
        return ""
    if not gone:
        return ""
    first = min(gone, key=lambda gpu: gpu.lost_since)
    told = f"GPU {first.label} was lost at second {first.lost_since:.0f} of {facts.seconds:.0f}"
    waiting = [gpu for gpu in facts.gpus if gpu.lost_at is None and _waits_since(gpu, first)]
    if waiting:
        told += f"; {len(waiting)} others look busy since then and do no work"
    return told


def _waits_since(gpu: GpuFacts, gone: GpuFacts) -> bool:
    return gpu.tail_seconds > 0 and gpu.tail_since >= gone.lost_since - marks.PAUSE.value


def hung(facts: RunFacts) -> str:
    """Ranks that spin to the end after they worked, in a run that did not end well."""
    working = [gpu for gpu in at_work(facts) if gpu.lost_at is None]
    least = _least(working, facts)
    spinning = [gpu for gpu in working if _stopped(gpu, least)]
    if facts.exit == 0 or not spinning or len(spinning) * 2 < len(working):
        return ""
    if len(working) < 2 and not (_of_a_job(facts) and facts.exit):
        return ""
    first = min(spinning, key=lambda gpu: gpu.tail_since)
    told = f"the job stood still since second {first.tail_since:.0f} of {facts.seconds:.0f}:"
    told += f" {len(spinning)} GPU{'s' if len(spinning) > 1 else ''} looked busy{_at(first.tail)}"
    resting = [gpu.label for gpu in working if gpu not in spinning and gpu.rest is not None]
    if resting:
        told += f", GPU {', '.join(resting)} did nothing"
    return f"{told}, and nothing moved: a rank waits in a collective that another never reached"


def _at(work: Work | None) -> str:
    if work is None or work.power_watts is None:
        return ""
    share = "" if work.power_share is None else f" ({work.power_share:.0f} % of the power limit)"
    return f" at {work.power_watts:.0f} W{share}"


def _of_a_job(facts: RunFacts) -> bool:
    launched = is_launched(facts.command) or nodes_of(facts.command) > 1
    return bool(facts.collective_threads) or launched


def _least(working: Sequence[GpuFacts], facts: RunFacts) -> marks.Mark:
    """How long it must last. Where nobody told how the run ended, one rank may do something while
    the others wait; where all spin and none touches its memory, none does."""
    if facts.exit is not None:
        return marks.HUNG
    none_works = len(working) > 1 and all(
        gpu.tail is not None and (gpu.tail.memory_busy or 0.0) <= marks.QUIET.value
        and (gpu.traffic_before_tail or 0.0) > marks.QUIET.value * 2 for gpu in working
    )  # fmt: skip
    return marks.HUNG if none_works else marks.HUNG_UNTOLD


def _stopped(gpu: GpuFacts, least: marks.Mark) -> bool:
    tail = gpu.tail
    if tail is None or gpu.tail_seconds < least.value or not _nothing_moves(tail):
        return False
    if gpu.watts_before_tail is None or tail.power_watts is None:
        return (gpu.traffic_before_tail or 0.0) > (tail.memory_busy or 0.0) + marks.BLIP.value
    return gpu.watts_before_tail >= tail.power_watts * marks.FELL.value


def _nothing_moves(work: Work) -> bool:
    told = (
        (work.link_rate, marks.LINK),
        (work.pcie_rate, marks.PCIE),
        (work.network_rate, marks.NETWORK),
        (work.read_rate, marks.READS),
        (work.write_rate, marks.WRITES),
    )
    return all(rate is None or rate < mark.value for rate, mark in told)


def stood_still(facts: RunFacts) -> str:
    """Every GPU quiet and the processes at rest, until somebody ended the run, or long enough."""
    working = at_work(facts)
    if facts.exit == 0 or not working or kind_of(facts.command) in ("server", "notebook"):
        return ""
    if not all(_rests(gpu, facts) for gpu in working):
        return ""
    since = max(gpu.rest_since or 0.0 for gpu in working)
    told = f"the job stood still since second {since:.0f} of {facts.seconds:.0f}: its GPUs did"
    return f"{told} nothing, its processes rested, and nothing was read"


def _rests(gpu: GpuFacts, facts: RunFacts) -> bool:
    rest, since = gpu.rest, gpu.rest_since
    least = marks.HUNG_UNTOLD if facts.exit is None else marks.HUNG
    if rest is None or since is None or facts.seconds - since < least.value:
        return False
    return rest.cpu is not None and rest.cpu < marks.RESTS.value and _nothing_moves(rest)
