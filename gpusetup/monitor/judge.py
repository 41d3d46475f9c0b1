"""The verdict on a run, with its next step, the ordered advice and the notes. Pure.

With several GPUs each is judged by itself by the table of `cases.py`, and the worst verdict is the
run's, with the GPU it is about. What concerns the run as a whole is asked here.
"""

from __future__ import annotations

import re

from gpusetup.model.frozen import Frozen, replace
from gpusetup.monitor import marks
from gpusetup.monitor.cases import CASES, ORDER, WAITING_COSTS_MORE, Case
from gpusetup.monitor.ends import hung, lost, stood_still
from gpusetup.monitor.evidence import workers_in_words
from gpusetup.monitor.facts import GpuFacts, RunFacts, Work
from gpusetup.monitor.notes import notes
from gpusetup.monitor.programs import is_launched, kind_of
from gpusetup.monitor.signs import Seen, shows, shows_any
from gpusetup.monitor.steps import memory_rose, next_step, ordered_advice
from gpusetup.monitor.team import at_work, belongs, considered, drawn, team, worked
from gpusetup.monitor.values import NextStep, Verdict

__all__ = ["Judged", "judge", "worked"]


class Judged(Frozen):
    verdict: Verdict | None
    evidence: str
    cause: str = ""
    next: NextStep | None = None
    advice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """Of the table, the best first."""


def judge(facts: RunFacts) -> Judged:
    """The verdict with its evidence, one next step, the ordered advice, and the notes."""
    judged, seen = _verdict(facts)
    if facts.exit:
        judged = _failed(judged, facts.exit)
    low = _lowest(facts) < marks.LOW.value
    return replace(
        judged,
        next=next_step(judged.steps, seen, facts),
        advice=ordered_advice(facts, judged.verdict, judged.cause) if low else (),
        notes=tuple(notes(facts, judged.verdict)),
    )


def _failed(judged: Judged, code: int) -> Judged:
    """A run that ended with an error: that comes first, and nothing of it is good."""
    said = f"the command ended with exit {code}; before, {judged.evidence}"
    if judged.verdict != "good":
        return replace(judged, evidence=said)
    return Judged(verdict=None, cause="failed", evidence=said, steps=("read-how-it-ended",))


def _verdict(facts: RunFacts) -> tuple[Judged, Seen | None]:
    for question in (_lost, too_little, engines, graphics, starving, idle, _stopped):
        judged = question(facts)
        if judged is not None:
            return judged, None
    found = [(seen, case_of(seen)) for seen in _seen(facts)]
    seen, worst = min(found, key=lambda pair: _rank(pair[1]))
    if worst.verdict != "throttled":
        apart = uneven(facts)
        if apart is not None:
            return apart, None
    return _judged(seen, worst, facts), seen


def _lost(facts: RunFacts) -> Judged | None:
    said = lost(facts)
    if not said:
        return None
    verdict: Verdict | None = "uneven" if len(facts.gpus) > 1 else None
    return Judged(verdict=verdict, cause="lost", evidence=said, steps=("see-why-it-was-lost",))


def _stopped(facts: RunFacts) -> Judged | None:
    """A run that made no progress at its end: what was before says nothing about it."""
    for verdict, question in (("communication-bound", hung), ("bursty", stood_still)):
        if said := question(facts):
            return Judged(verdict=verdict, cause="hang", evidence=said,  # type: ignore[arg-type]
                          steps=("see-where-it-waits",))  # fmt: skip
    return None


def _rank(case: Case) -> int:
    return -1 if case.cause == "before-the-end" else ORDER.index(case.verdict)


def _judged(seen: Seen, case: Case, facts: RunFacts) -> Judged:
    said = case.says(seen)
    if len(facts.gpus) > 1 and case.verdict != "good" and not said.startswith("GPU "):
        said = f"GPU {seen.gpu.label}: {said}"
    return Judged(verdict=case.verdict, cause=case.cause, evidence=said, steps=case.steps)


def _seen(facts: RunFacts) -> list[Seen]:
    """The GPUs that work, each in its run; those that were lost only where no other is left."""
    working = at_work(facts)
    there = [gpu for gpu in working if gpu.lost_at is None] or list(working)
    works = [(gpu, considered(gpu)) for gpu in there]
    return [Seen(facts, gpu, work, together=len(team(gpu, facts))) for gpu, work in works if work]


def case_of(seen: Seen) -> Case:
    """The first case that holds; the last always does."""
    return next(case for case in CASES if holds(case, seen))


def holds(case: Case, seen: Seen) -> bool:
    if case.verdict == "throttled" and shows(seen, WAITING_COSTS_MORE):
        return False
    return shows(seen, case.proves) and not shows_any(seen, case.excludes)


# --- of the run as a whole ------------------------------------------------------------------------


def too_little(facts: RunFacts) -> Judged | None:
    if not facts.gpus:
        return Judged(verdict=None, evidence="no GPU was watched", steps=("see-why-no-gpu",))
    if all(gpu.utilization is None for gpu in facts.gpus):
        return _without_utilization(facts)
    if facts.samples < marks.SHORT.value:
        return Judged(verdict=None, evidence=f"{facts.samples} samples are too few to judge")
    return None


def _without_utilization(facts: RunFacts) -> Judged:
    for gpu in facts.gpus:
        if (gpu.memory_p95_share or 0) >= marks.MEMORY_TIGHT.value:
            said = f"GPU {gpu.label}: memory {gpu.memory_p95_share:.0f} % (p95)"
            return Judged(
                verdict="memory-tight", cause="margin", evidence=said, steps=("leave-a-margin",)
            )
    if all(gpu.name and NEVER_DIVIDED.search(gpu.name) for gpu in facts.gpus):
        said = "no GPU told its utilisation: not every card and driver does"
        return Judged(verdict=None, evidence=said, steps=("ask-the-driver",))
    said = "no GPU told its utilisation (with MIG the driver does not)"
    return Judged(verdict=None, evidence=said, steps=("ask-dcgm",))


NEVER_DIVIDED = re.compile(r"\b(?:GeForce|GTX?|NVS|Quadro|TITAN|Tesla [KMPTV]\d)")
"""Names of cards that have no MIG."""


def engines(facts: RunFacts) -> Judged | None:
    """A GPU that encodes or decodes video all the time does its work there."""
    for gpu in facts.gpus:
        whole = gpu.whole
        if whole is None or whole.utilization >= marks.BUSY.value:
            continue
        engine, share = max(
            (("encoder", whole.encoder or 0.0), ("decoder", whole.decoder or 0.0)),
            key=lambda pair: pair[1],
        )
        if share >= marks.ENGINE.value:
            told = f"GPU {gpu.label}: its video {engine} worked {share:.0f} % of the time, kernels"
            said = f"{told} {whole.utilization:.0f} %"
            return Judged(
                verdict="good", cause=engine, evidence=said, steps=("spread-the-streams",)
            )
    return None


def graphics(facts: RunFacts) -> Judged | None:
    """Programs that draw, such as games, work as fast as they show pictures."""
    working = at_work(facts)
    if not working or facts.command or not all(gpu.only_display for gpu in working):
        return None
    gpu = max(working, key=lambda one: one.utilization or 0.0)
    said = f"GPU {gpu.label} worked {gpu.utilization or 0.0:.0f} % of the time for programs that"
    return Judged(verdict="good", cause="graphics", evidence=f"{said} draw, and for no other")


def starving(facts: RunFacts) -> Judged | None:
    """A GPU that hardly works because its process waits for loader workers is not idle."""
    if at_work(facts):
        return None
    for gpu in facts.gpus:
        whole = gpu.whole
        if whole is None or not whole.utilization or whole.workers < 0.5:
            continue
        if (whole.worker_cpu or 0) >= marks.WORKER_FULL.value:
            told = f"GPU {gpu.label} worked {whole.utilization:.1f} % of the time while"
            said = f"{told} {workers_in_words(whole.workers)} computed without rest"
            steps = ("more-workers", "cheaper-items")
            return Judged(verdict="input-starved", cause="workers", evidence=said, steps=steps)
    return None


def idle(facts: RunFacts) -> Judged | None:
    """No GPU ever worked."""
    if at_work(facts):
        return None
    used = max(gpu.utilization or 0.0 for gpu in facts.gpus)
    evidence = f"utilisation {used:.0f} % over {facts.samples} samples"
    if facts.cpu is not None:
        evidence += f" while the command used {facts.cpu:.0f} % of a core"
    if used and all(drawn(gpu) for gpu in facts.gpus if gpu.utilization):
        evidence += ", as a desktop draws"
    cause, step = _why_idle(facts)
    return Judged(verdict="idle", evidence=evidence, cause=cause, steps=(step,))


def _why_idle(facts: RunFacts) -> tuple[str, str]:
    """Its cause, and the step that follows."""
    held = any(_held(gpu, facts) for gpu in facts.gpus)
    cpu = facts.busiest_cpu
    names = tuple(name for gpu in facts.gpus for name in gpu.names)
    if facts.command and facts.exit and facts.exit not in ENDED_BY_SOMEBODY:
        return "failed", "read-its-error"
    if held and (kind := kind_of(facts.command, names)) in WAITS_FOR_SOMEBODY:
        return WAITS_FOR_SOMEBODY[kind]
    if facts.exit is None and _begins(facts):
        return "starting", "watch-longer"
    if cpu is None:
        return ("held", "see-where-it-waits") if held else ("unused", "watch-the-command")
    if held:
        if cpu >= marks.MANY.value:
            return "computes", "move-to-the-gpu"
        busy = cpu >= marks.CORE_FULL.value
        return ("prepares", "prepare-once") if busy else ("held", "see-where-it-waits")
    if facts.cpu and facts.cpu >= marks.HELPERS.value + cpu and cpu < marks.MANY.value:
        return "prepares", "prepare-once"
    if facts.exit is None and _downloads(facts):
        return "starting", "watch-longer"
    return "unused", "see-whether-torch-can"


def _downloads(facts: RunFacts) -> bool:
    """Data come over the network while the command computes less than a core."""
    rates = [gpu.whole.network_rate or 0 for gpu in facts.gpus if gpu.whole]
    computes = (facts.busiest_cpu or 0) >= marks.CORE_FULL.value
    return not computes and max(rates, default=0) >= marks.NETWORK.value


ENDED_BY_SOMEBODY = (129, 130, 137, 143, -1, -2, -9, -15)
"""Exit codes of a command that got SIGHUP, SIGINT, SIGKILL or SIGTERM."""
WAITS_FOR_SOMEBODY = {
    "server": ("requests", "send-more-requests"),
    "notebook": ("cells", "release-between-cells"),
}


def _begins(facts: RunFacts) -> bool:
    """Too young to be judged, or still loading."""
    if facts.command is None and facts.busiest_cpu is None:
        return False
    rose = max(map(memory_rose, facts.gpus), default=0) >= marks.CONTEXT.value
    return facts.seconds < (marks.STARTS if rose else marks.BEGINS).value


def _held(gpu: GpuFacts, facts: RunFacts) -> bool:
    """A process that computes sits on it: told, or else by its memory."""
    if gpu.has_process is not None:
        return gpu.has_process
    share, used = gpu.memory_p95_share or 0.0, gpu.memory_used_bytes or 0
    if facts.busiest_cpu is None:
        return share >= marks.FAINT_MEMORY.value
    known = bool(facts.ranks) or share > marks.HELD.value
    return used >= marks.CONTEXT.value and (known or memory_rose(gpu) >= marks.CONTEXT.value)


def uneven(facts: RunFacts) -> Judged | None:
    """Of the GPUs that belong to one job, some work much less than others."""
    mine = [gpu for gpu in facts.gpus if gpu.lost_at is None and belongs(gpu, facts)]
    for level, mark, told in (
        (_utilization, marks.APART, "worked {:.0f} % of the time"),
        (_power, marks.APART_POWER, "drew {:.0f} % of its power limit"),
    ):
        levels = {gpu.label: level(gpu, facts) for gpu in mine}
        known = {label: value for label, value in levels.items() if value is not None}
        if len(known) < 2 or len(known) < len(mine):
            continue
        least, most = (pick(known, key=known.__getitem__) for pick in (min, max))
        if known[most] - known[least] >= mark.value:
            said = f"GPU {least} {told.format(known[least])}, GPU {most} {told.format(known[most])}"
            return _uneven(facts, said, unused=not known[least])
    return None


def _uneven(facts: RunFacts, said: str, *, unused: bool) -> Judged:
    launched = is_launched(facts.command) or (facts.ranks or 0) > 1
    step = "balance-the-work" if launched else "one-process-each"
    cause = "none" if unused else "less"
    return Judged(verdict="uneven", evidence=said, cause=cause, steps=(step,))


def _utilization(gpu: GpuFacts, facts: RunFacts) -> float | None:
    work = considered(gpu) if worked(gpu) else None
    return work.utilization if work else 0.0


def _power(gpu: GpuFacts, facts: RunFacts) -> float | None:
    """Of a GPU that is always busy: its power tells whether it works or waits in a collective."""
    work = considered(gpu) if worked(gpu) else None
    if work is None or work.utilization < marks.BUSY.value or len(team(gpu, facts)) < 2:
        return None
    return work.power_share


def _lowest(facts: RunFacts) -> float:
    works: list[Work] = [w for gpu in at_work(facts) if (w := considered(gpu))]
    return min((work.utilization for work in works), default=0.0)
