"""The verdict on a run, with its next steps. Pure.

With several GPUs each is judged by itself by the table of `verdicts.py`, and the worst verdict is
the run's, with the GPU it is about. What concerns the run as a whole is asked here: whether it ever
worked, and how it ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.advice import sentence
from gpusetup.monitor.documents import Verdict
from gpusetup.monitor.programs import kind_of
from gpusetup.monitor.run import Run, considered, worked
from gpusetup.monitor.signs import Seen, below
from gpusetup.monitor.tally import Gpu
from gpusetup.monitor.verdicts import ORDER, Case, case_of
from gpusetup.monitor.work import Work


class Judged(NamedTuple):
    verdict: Verdict | None
    cause: str
    evidence: str
    steps: tuple[str, ...] = ()
    """Of the table, the best first."""


def judge(run: Run) -> tuple[Judged, Seen | None]:
    """The verdict with its evidence, and the GPU that it is about; None where it is the run."""
    judged, seen = _verdict(run)
    if not run.exit:
        return judged, seen
    # A run that ended with an error: that comes first, and nothing of it is good.
    said = f"the command ended with exit {run.exit}; before, {judged.evidence}"
    if judged.verdict == "good":
        return Judged(None, "failed", said, ("read-how-it-ended",)), seen
    return judged._replace(evidence=said), seen


def _verdict(run: Run) -> tuple[Judged, Seen | None]:
    for question in WHOLE:
        if judged := question(run):
            return judged, None
    there = [gpu for gpu in run.at_work if gpu.lost_at is None] or run.at_work
    each = [Seen(run, gpu, work) for gpu in there if (work := considered(gpu))]
    seen, case = min(((one, case_of(one)) for one in each), key=lambda pair: _rank(pair[1]))
    if case.verdict != "throttled" and case.cause != "hang" and (apart := uneven(run)):
        return apart, None
    said = sentence(case.says, run, seen)
    if len(run.gpus) > 1 and case.verdict != "good" and not said.startswith("GPU "):
        said = f"GPU {seen.gpu.label}: {said}"
    return Judged(case.verdict, case.cause, said, case.steps), seen


def _rank(case: Case) -> int:
    return -1 if case.cause == "before-the-end" else ORDER.index(case.verdict)


# --- of the run as a whole ------------------------------------------------------------------------


def one_was_lost(run: Run) -> Judged | None:
    verdict: Verdict | None = "uneven" if len(run.gpus) > 1 else None
    said = lost(run)
    return Judged(verdict, "lost", said, ("see-why-it-was-lost",)) if said else None


def too_little(run: Run) -> Judged | None:
    if not run.gpus:
        return Judged(None, "", "no GPU was watched", ("see-why-no-gpu",))
    told = max(gpu.parts.whole.samples if gpu.parts.whole else 0 for gpu in run.gpus)
    if told >= marks.SHORT:
        return None
    said = f"{told} of {run.samples} samples tell a utilisation: too few to judge"
    return Judged(None, "", said, ("ask-the-driver",) if told < run.samples else ())


def idle(run: Run) -> Judged | None:
    """No GPU ever worked."""
    if run.at_work:
        return None
    used = max(gpu.utilization or 0.0 for gpu in run.gpus)
    said = f"utilisation {used:.0f} % over {run.samples} samples"
    if run.cpu is not None:
        said += f" while the command used {run.cpu:.0f} % of a core"
    cause, step = _why_idle(run)
    return Judged("idle", cause, said, (step,))


def _why_idle(run: Run) -> tuple[str, str]:
    """Its cause, and the step that follows."""
    held = any(map(run.held, run.gpus))
    cpu, running = run.busiest_cpu, run.exit is None
    if run.command and run.exit and run.exit not in ENDED_BY_SOMEBODY:
        return "failed", "read-its-error"
    kind = kind_of(run.command, [name for gpu in run.gpus for name in gpu.programs])
    rates = [gpu.parts.whole.network_rate or 0 for gpu in run.gpus if gpu.parts.whole]
    fetches = below(cpu, marks.CORE_FULL) and max(rates, default=0) >= marks.NETWORK
    if running and (_begins(run) or fetches):
        return "starting", "watch-longer"
    if held and kind in WAITS_FOR_SOMEBODY:
        return WAITS_FOR_SOMEBODY[kind]
    if cpu is None:
        return ("held", "see-where-it-waits") if held else ("unused", "watch-the-command")
    if held and cpu >= marks.MANY:
        return "computes", "move-to-the-gpu"
    alone = run.cpu and run.cpu >= marks.HELPERS + cpu and cpu < marks.MANY
    if (cpu >= marks.CORE_FULL) if held else alone:
        return "prepares", "prepare-once"
    return ("held", "see-where-it-waits") if held else ("unused", "see-whether-torch-can")


ENDED_BY_SOMEBODY = (129, 130, 137, 143, -1, -2, -9, -15)
"""Exit codes of a command that got SIGHUP, SIGINT, SIGKILL or SIGTERM."""
WAITS_FOR_SOMEBODY = {
    "server": ("requests", "send-more-requests"),
    "notebook": ("cells", "release-between-cells"),
}


def _begins(run: Run) -> bool:
    """Too young to be judged, or still loading."""
    rose = max((gpu.memory_rose for gpu in run.gpus), default=0) >= marks.CONTEXT
    return run.seconds < (marks.STARTS if rose else marks.BEGINS)


def stopped(run: Run) -> Judged | None:
    """A run that made no progress at its end: what was before says nothing about it."""
    steps = ("see-where-it-waits",)
    if said := hung(run):
        return Judged("communication-bound", "hang", said, steps)
    return Judged("bursty", "hang", said, steps) if (said := stood_still(run)) else None


WHOLE: tuple[Callable[[Run], Judged | None], ...] = (*(one_was_lost, too_little, idle, stopped),)


def uneven(run: Run) -> Judged | None:
    """Of the GPUs that belong to one job, some work much less than others; if all are always busy,
    their power tells which of them wait in a collective."""
    mine = [gpu for gpu in run.gpus if gpu.lost_at is None and run.belongs(gpu)]
    works = {gpu.label: considered(gpu) if worked(gpu) else None for gpu in mine}
    use = {label: work.utilization if work else 0.0 for label, work in works.items()}
    watts = {label: work.power_share for label, work in works.items() if work and work.power_share}
    levels, mark, told = use, marks.APART, "worked {:.0f} % of the time"
    if min(use.values(), default=0.0) >= marks.BUSY and len(watts) == len(use):
        levels, mark, told = watts, marks.APART_POWER, "drew {:.0f} % of its power limit"
    order = sorted(levels, key=lambda label: levels[label])
    if not order or levels[order[-1]] - levels[order[0]] < mark:
        return None
    ends = (order[0], order[-1])
    said = ", ".join(f"GPU {label} {told.format(levels[label])}" for label in ends)
    step = "balance-the-work" if run.launched else "one-process-each"
    return Judged("uneven", "less" if levels[order[0]] else "none", said, (step,))


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
    return f"{told}, and nothing moved: a rank waits in a collective for another rank"


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
