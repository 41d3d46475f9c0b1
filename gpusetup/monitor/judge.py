"""The verdict on a run, with its next step, the ordered advice and the notes. Pure.

With several GPUs each is judged by itself by the table of `verdicts.py`, and the worst verdict is
the run's, with the GPU it is about. What concerns the run as a whole is asked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.advice import sentence
from gpusetup.monitor.documents import Verdict
from gpusetup.monitor.ends import hung, lost, stood_still
from gpusetup.monitor.programs import kind_of
from gpusetup.monitor.run import Run, considered, worked
from gpusetup.monitor.signs import Seen, below
from gpusetup.monitor.verdicts import ORDER, Case, case_of


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
    if case.verdict != "throttled" and (apart := uneven(run)):
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
    if any(gpu.utilization is not None for gpu in run.gpus):
        few = run.samples < marks.SHORT
        return Judged(None, "", f"{run.samples} samples are too few to judge") if few else None
    told = "no GPU told its utilisation: some cards do not, and with MIG none does"
    return Judged(None, "", told, ("ask-the-driver",))


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
