"""The verdict on one GPU that worked: pure rules over its facts, by the marks of `marks.py`.

Each rule looks at one question and answers with a `Judged`, or None; the first that answers names
the verdict.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.model.frozen import Frozen
from gpusetup.monitor import marks
from gpusetup.monitor.facts import GpuFacts, Work
from gpusetup.monitor.values import NextStep, Verdict


class Judged(Frozen):
    verdict: Verdict | None
    evidence: str
    next: NextStep | None = None
    advice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cause: str = ""
    """Which way out of the verdict fits, as `steps.py` names them."""


# --- throttle reasons -----------------------------------------------------------------------------


class Brake(Frozen):
    """A throttle reason that costs speed. `held_down`: only where clocks are below the mark."""

    reason: str
    words: str
    mark: marks.Mark
    held_down: bool
    cause: str


BRAKES = (
    Brake(
        reason="hw_thermal_slowdown",
        words="heat (hardware)",
        mark=marks.SLOWED,
        held_down=False,
        cause="heat",
    ),
    Brake(
        reason="sw_thermal_slowdown",
        words="heat (driver)",
        mark=marks.SLOWED,
        held_down=False,
        cause="heat",
    ),
    Brake(
        reason="hw_power_brake_slowdown",
        words="the power supply's brake",
        mark=marks.SLOWED,
        held_down=False,
        cause="supply",
    ),
    Brake(
        reason="hw_slowdown",
        words="the hardware's brake",
        mark=marks.SLOWED,
        held_down=False,
        cause="supply",
    ),
    Brake(
        reason="sw_power_cap",
        words="the power limit",
        mark=marks.CAPPED,
        held_down=True,
        cause="power",
    ),
    Brake(
        reason="applications_clocks_setting",
        words="clocks that somebody set",
        mark=marks.CAPPED,
        held_down=True,
        cause="clocks",
    ),
)
"""In the order in which they are named. Meaning: nvml.h, nvmlClocksEventReason*."""


def active_brake(work: Work) -> Brake | None:
    for brake in BRAKES:
        on = work.reasons.get(brake.reason, 0.0) >= brake.mark.value
        slow = work.clock_share is not None and work.clock_share < marks.CLOCKS.value
        if on and (slow or not brake.held_down):
            return brake
    return None


# --- one GPU --------------------------------------------------------------------------------------

Rule = Callable[[GpuFacts, Work], "Judged | None"]


def throttled(gpu: GpuFacts, work: Work) -> Judged | None:
    """A brake is on; unless the GPU mostly waits, which costs more."""
    brake = active_brake(work)
    if brake is None:
        return None
    share = work.reasons[brake.reason]
    if work.utilization < marks.LOW.value and share < marks.CAPPED.value:
        return None
    evidence = f"{brake.words} held the clocks down in {share:.0f} % of the working samples"
    if gpu.temperature_p95 is not None and brake.cause == "heat":
        evidence += f", at {gpu.temperature_p95:.0f} °C"
    if work.clock_share is not None:
        evidence += f"; SM clock at {work.clock_share:.0f} % of its maximum"
    return Judged(verdict="throttled", evidence=f"{evidence} ({brake.reason})", cause=brake.cause)


def input_starved(gpu: GpuFacts, work: Work) -> Judged | None:
    """The GPU waits, and what feeds it is slow."""
    if work.utilization >= marks.BUSY.value:
        return None
    told = f"GPU {gpu.label} worked {work.utilization:.0f} % of the time"
    for question in (workers_full, main_loads, main_waits, stutters):
        cause = question(work)
        if cause is not None:
            reason, way = cause
            return Judged(verdict="input-starved", evidence=f"{told} {reason}", cause=way)
    return None


def launch_bound(gpu: GpuFacts, work: Work) -> Judged | None:
    """Kernels too small: a full CPU core starts them, or they leave the GPU's power unused."""
    full = work.busiest_cpu is not None and work.busiest_cpu >= marks.CORE_FULL.value
    weak = work.power_share is not None and work.power_share < marks.WEAK.value
    calm = work.memory_busy is None or work.memory_busy < marks.MEMORY_BUS.value
    if work.utilization < marks.BUSY.value:
        told = f"GPU {gpu.label} worked {work.utilization:.0f} % of the time"
        if full:
            evidence = f"{told} while one process filled a core ({work.busiest_cpu:.0f} %)"
            return Judged(verdict="launch-bound", evidence=f"{evidence} and no loader was behind")
        if work.busiest_cpu is None:
            return Judged(verdict="launch-bound", evidence=f"{told}, evenly, without gaps")
        return None
    if weak and calm:
        evidence = f"kernels ran {work.utilization:.0f} % of the time but drew only"
        evidence += f" {work.power_share:.0f} % of the power limit: they are too small"
        return Judged(verdict="launch-bound", evidence=evidence)
    return None


def memory_tight(gpu: GpuFacts, work: Work) -> Judged | None:
    share = gpu.memory_p95_share
    if share is None or share < marks.MEMORY_TIGHT.value:
        return None
    evidence = f"memory in use: {share:.0f} % (p95), {gpu.memory_peak_share:.0f} % at its peak"
    return Judged(verdict="memory-tight", evidence=evidence)


def memory_bound(gpu: GpuFacts, work: Work) -> Judged | None:
    if work.memory_busy is None or work.memory_busy < marks.MEMORY_BUS.value:
        return None
    evidence = f"the GPU's memory was busy {work.memory_busy:.0f} % of the time"
    return Judged(
        verdict="memory-bound", evidence=f"{evidence} while kernels ran {work.utilization:.0f} %"
    )


def good(gpu: GpuFacts, work: Work) -> Judged | None:
    evidence = f"utilisation {work.utilization:.0f} %"
    if gpu.memory_p95_share is not None:
        evidence += f", memory {gpu.memory_p95_share:.0f} %"
    if gpu.temperature_p95 is not None:
        evidence += f", {gpu.temperature_p95:.0f} °C"
    return Judged(verdict="good", evidence=f"{evidence}: nothing holds it back")


RULES: tuple[Rule, ...] = (
    throttled,
    input_starved,
    launch_bound,
    memory_tight,
    memory_bound,
    good,
)
"""The first that answers is the verdict; the order is also how bad a verdict is."""
ORDER = ("throttled", "input-starved", "launch-bound", "memory-tight", "memory-bound", "good")


# --- why the GPU waits ----------------------------------------------------------------------------

Cause = tuple[str, str]


def workers_full(work: Work) -> Cause | None:
    """The loader's workers compute all the time: there are too few, or each item costs too much."""
    if work.worker_cpu is None or work.worker_cpu < marks.WORKER_FULL.value:
        return None
    told = f"while {workers_in_words(work.workers)} computed"
    return f"{told} at {work.worker_cpu:.0f} % of a core each", "workers"


def workers_in_words(count: float) -> str:
    """
    >>> workers_in_words(1.2), workers_in_words(4)
    ('1 loader worker', '4 loader workers')
    """
    return f"{count:.0f} loader worker{'' if round(count) == 1 else 's'}"


def main_loads(work: Work) -> Cause | None:
    """No workers, a full core, and data read or the GPU quiet in between: it loads by itself."""
    full = work.busiest_cpu is not None and work.busiest_cpu >= marks.CORE_FULL.value
    reads = (work.input_rate or 0.0) >= marks.READS.value
    if not full or work.workers >= 0.5 or not (reads or work.quiet_share >= marks.GAPS.value):
        return None
    told = f"while the process computed on the CPU by itself ({work.busiest_cpu:.0f} % of a core"
    return f"{told}, no loader workers)", "no-workers"


def main_waits(work: Work) -> Cause | None:
    """The process neither computes nor keeps the GPU busy: it waits for data."""
    if work.busiest_cpu is None or work.busiest_cpu >= marks.CORE_FULL.value:
        return None
    told = f"while the process waited ({work.busiest_cpu:.0f} % of a core)"
    disk = work.read_rate or 0.0
    if disk >= marks.READS.value:
        return f"{told} and {disk / 1e6:.0f} MB/s came from the disk", "disk"
    if work.workers:
        return f"{told} for {workers_in_words(work.workers)}", "slow-items"
    return told, "waits"


def stutters(work: Work) -> Cause | None:
    """Without a look at the CPU: quiet again and again, or far apart."""
    if work.busiest_cpu is not None:
        return None
    gaps = work.quiet_share >= marks.GAPS.value
    apart = work.utilization_p95 - work.utilization_p5 >= 2 * marks.APART.value
    if not gaps and not apart:
        return None
    told = f"in bursts (p5 {work.utilization_p5:.0f} %, p95 {work.utilization_p95:.0f} %"
    return f"{told}, nothing in {work.quiet_share:.0f} % of the samples)", "likely"


def judge_gpu(gpu: GpuFacts) -> Judged:
    """One GPU that worked, by itself."""
    work = considered(gpu)
    assert work is not None
    return next(judged for rule in RULES if (judged := rule(gpu, work)) is not None)


def considered(gpu: GpuFacts) -> Work | None:
    """Its work without the pauses, unless the pauses are the problem."""
    return gpu.body if gpu.pause_share > marks.WAITS.value else gpu.work
