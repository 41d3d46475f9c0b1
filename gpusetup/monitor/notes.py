"""What else of a run is beyond a mark, or was left out of the judgement. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from gpusetup.monitor import marks
from gpusetup.monitor.brakes import below_clocks
from gpusetup.monitor.run import Run, considered, worked
from gpusetup.monitor.tally import Gpu
from gpusetup.monitor.work import Work


def notes(run: Run, verdict: str | None = None) -> Iterator[str]:
    if marks.SHORT <= run.samples < marks.BRIEF:
        told = f"a short record, {run.samples} samples in {run.seconds:.0f} s"
        yield f"{told}: a minute of them says more"
    for gpu in run.gpus:
        who = f"GPU {gpu.label}"
        if gpu.lost_at is not None:
            yield f"{who} is lost since {gpu.lost_at}; `gpusetup doctor` says more"
            continue
        work = considered(gpu) if worked(gpu) else None
        of_work = card_notes(gpu, work, verdict) if work else ()
        for note in chain(always(gpu, run, verdict), of_work):
            yield f"{who}: {note}"
    unused = [gpu for gpu in run.gpus if not run.belongs(gpu)] if run.at_work else []
    for told, draws in (("only a display draws on", True), ("not used", False)):
        if rest := [gpu.label for gpu in unused if gpu.holders.only_draws == draws]:
            yield f"{told}: GPU {', '.join(rest)}"
    if run.host_memory is not None and run.host_memory >= marks.MEMORY_TIGHT:
        yield f"the machine's memory is {run.host_memory:.0f} % full"


def always(gpu: Gpu, run: Run, verdict: str | None) -> Iterator[str]:
    """Its memory, heat and pauses, its errors, and who draws on it."""
    share, heat, parts = gpu.memory.p95, gpu.heat, gpu.parts
    if share is not None and worked(gpu):
        yield from memory_notes(gpu, run, share, helps=verdict in ("good", "launch-bound"))
    if heat is not None and heat > marks.HOT:
        yield f"{heat:.0f} °C, above the mark of {marks.HOT:.0f} °C"
    if parts.warm:
        yield f"a warm-up of {parts.warm:.0f} s is left out (compilation, caches?)"
    if pauses := len(parts.pauses):
        kind, few = run.kind_on(gpu), parts.pause_share <= marks.WAITS
        why = " (evaluation, checkpoints?)" if kind == "training" or (not kind and few) else ""
        told = f"paused {'once' if pauses == 1 else f'{pauses} times'}, {parts.pause_share:.0f} %"
        yield f"{told} of its time, {parts.longest_pause:.0f} s at most{why}"
    if errors := max((row.gpu.ecc_uncorrected or 0 for row in gpu.rows), default=0):
        told = f"{errors} errors of its memory that could not be corrected"
        yield f"{told}; `nvidia-smi -q -d ECC,ROW_REMAPPER`, then a reset or a replacement"
    if gpu.holders.only_draws and worked(gpu):
        names = ", ".join(gpu.holders.drawing[:3])
        yield f"only programs that draw use it: {names or 'no name was told'}"


def memory_notes(gpu: Gpu, run: Run, share: float, *, helps: bool) -> Iterator[str]:
    if gpu.memory.grew:
        yield f"memory grew all the time, to {gpu.memory.peak:.0f} %: a leak?"
    elif share > marks.MEMORY_HIGH and run.kind_on(gpu) != "server":
        yield f"memory {share:.0f} %, above the mark of {marks.MEMORY_HIGH:.0f} %"
    elif share < marks.MEMORY_LOW and run.kind in ("training", ""):
        told = "the mark is 70 to 90 %"
        yield f"memory {share:.0f} %: " + (f"a larger batch would fit ({told})" if helps else told)


def card_notes(gpu: Gpu, work: Work, verdict: str | None) -> Iterator[str]:
    """Who else is on it, its link, and its clocks."""
    names = gpu.holders.pids
    many = [(pid, use) for pid, use in gpu.holders.shares.items() if use >= marks.SHARED]
    if len(many) > 1:
        each = (f"{names[pid] or 'a process'} ({pid}) with {use:.0f} %" for pid, use in many[:4])
        told = ", ".join(each)
        yield f"{len(many)} processes share its multiprocessors: {told}"
    if 0 < gpu.link_limit < marks.SLOW_LINK:
        told = f"its PCIe link carries {gpu.link_limit / 1e9:.1f} GB/s one way"
        yield f"{told}, as one to four lanes do: the slot, a riser?"
    low = below_clocks(work) and work.utilization >= marks.BUSY
    if low and verdict == "good" and not set(work.reasons) - {"gpu_idle"}:
        told = f"SM clock at {work.clock_share:.0f} % of its maximum, and no reason was told"
        yield f"{told}; `nvidia-smi -q -d CLOCK` shows clocks that were locked (-lgc)"
