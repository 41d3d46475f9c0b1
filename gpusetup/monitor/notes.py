"""What else of a run is beyond a mark, or was left out of the judgement. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from gpusetup.monitor import marks
from gpusetup.monitor.brakes import active_brake, below_clocks
from gpusetup.monitor.facts import GpuFacts, RunFacts, Work
from gpusetup.monitor.programs import kind_of
from gpusetup.monitor.team import at_work, belongs, considered, worked


def notes(facts: RunFacts, verdict: str | None = None) -> Iterator[str]:
    if marks.SHORT.value <= facts.samples < marks.BRIEF.value:
        told = f"a short record, {facts.samples} samples in {facts.seconds:.0f} s"
        yield f"{told}: a minute of them says more"
    for gpu in facts.gpus:
        who = f"GPU {gpu.label}"
        if gpu.lost_at is not None:
            yield f"{who} is lost since {gpu.lost_at}; `gpusetup doctor` says more"
            continue
        for note in chain(
            memory_notes(gpu, facts, verdict),
            heat_notes(gpu),
            time_notes(gpu, facts),
            card_notes(gpu, verdict),
        ):
            yield f"{who}: {note}"
    count, unused = len(at_work(facts)), [g for g in facts.gpus if not belongs(g, facts)]
    drawing = [gpu.label for gpu in unused if gpu.only_display]
    if count and drawing:
        yield f"only a display draws on: GPU {', '.join(drawing)}"
    if count and (rest := [gpu.label for gpu in unused if not gpu.only_display]):
        yield f"not used: GPU {', '.join(rest)}"
    yield from host_notes(facts)


def memory_notes(gpu: GpuFacts, facts: RunFacts, verdict: str | None) -> Iterator[str]:
    share = gpu.memory_p95_share
    if share is None or not worked(gpu):
        return
    if gpu.memory_grew:
        yield f"memory grew all the time, to {gpu.memory_peak_share or share:.0f} %: a leak?"
    elif share > marks.MEMORY_HIGH.value and kind_of(facts.command, gpu.names) != "server":
        yield f"memory {share:.0f} %, above the mark of {marks.MEMORY_HIGH.value:.0f} %"
    elif share < marks.MEMORY_LOW.value and kind_of(facts.command) in ("training", ""):
        told = "the mark is 70 to 90 %"
        helps = verdict in ("good", "launch-bound")
        yield f"memory {share:.0f} %: " + (f"a larger batch would fit ({told})" if helps else told)


def heat_notes(gpu: GpuFacts) -> Iterator[str]:
    heat = gpu.temperature_p95
    if heat is not None and heat > marks.HOT.value:
        yield f"{heat:.0f} °C, above the mark of {marks.HOT.value:.0f} °C"
    capped = gpu.work.reasons.get("sw_power_cap", 0.0) if gpu.work else 0.0
    if capped >= marks.CAPPED.value and gpu.work and active_brake(gpu.work, gpu) is None:
        unknown = "" if gpu.power_default else "; `nvidia-smi -q -d POWER` tells its default"
        yield f"at its power limit in {capped:.0f} % of the work, as a busy GPU may be{unknown}"


def card_notes(gpu: GpuFacts, verdict: str | None) -> Iterator[str]:
    """Its errors, its link, its clocks, and who else is on it."""
    if gpu.ecc_uncorrected:
        told = f"{gpu.ecc_uncorrected} errors of its memory that could not be corrected"
        yield f"{told}; `nvidia-smi -q -d ECC,ROW_REMAPPER`, then a reset or a replacement"
    if gpu.only_display and worked(gpu):
        yield f"only programs that draw use it: {', '.join(gpu.drawing[:3]) or 'no name was told'}"
    work = considered(gpu) if worked(gpu) else None
    if work is None:
        return
    many = [(who, use) for who, use in gpu.sharing if use >= marks.SHARED.value]
    if len(many) > 1:
        told = ", ".join(f"{who} with {use:.0f} %" for who, use in many[:4])
        yield f"{len(many)} processes share its multiprocessors: {told}"
    yield from _link_notes(gpu, work, verdict)
    low = below_clocks(work) and work.utilization >= marks.BUSY.value
    if low and verdict == "good" and not set(work.reasons) - {"gpu_idle"}:
        told = f"SM clock at {work.clock_share:.0f} % of its maximum, and no reason was told"
        yield f"{told}; `nvidia-smi -q -d CLOCK` shows clocks that were locked (-lgc)"


def _link_notes(gpu: GpuFacts, work: Work, verdict: str | None) -> Iterator[str]:
    if gpu.link_limit is not None and gpu.link_limit < marks.SLOW_LINK.value:
        told = (
            f"its PCIe link carries {gpu.link_limit / 1e9:.1f} GB/s one way, as one to four lanes"
        )
        yield f"{told} do: the slot, a riser?"
    if verdict == "good" and (work.pcie_share or 0.0) >= marks.LOW.value:
        yield f"{(work.pcie_rate or 0.0) / 1e9:.1f} GB/s over PCIe: part of its time goes there"


def time_notes(gpu: GpuFacts, facts: RunFacts) -> Iterator[str]:
    if gpu.warmup_seconds:
        yield f"a warm-up of {gpu.warmup_seconds:.0f} s is left out (compilation, caches?)"
    if gpu.pauses:
        times = "once" if gpu.pauses == 1 else f"{gpu.pauses} times"
        share, longest = f"{gpu.pause_share:.0f} %", f"{gpu.longest_pause_seconds:.0f} s"
        kind = kind_of(facts.command, gpu.names)
        likely = kind == "training" or (not kind and gpu.pause_share <= marks.WAITS.value)
        why = " (evaluation, checkpoints?)" if likely else ""
        yield f"paused {times}, {share} of its time, {longest} at most{why}"


def host_notes(facts: RunFacts) -> Iterator[str]:
    """The CPU that others take, and memory that runs out."""
    share = facts.host_memory_share
    if share is not None and share >= marks.MEMORY_TIGHT.value:
        yield f"the machine's memory is {share:.0f} % full"
    works = [work for gpu in at_work(facts) if (work := considered(gpu))]
    cores = facts.host_cores
    if not works or not cores or works[0].host_cpu is None:
        return
    others = works[0].host_cpu - (works[0].cpu or 0.0)
    if others >= cores * marks.OTHERS.value and facts.cpu is not None:
        yield f"others use {others / 100:.1f} of the machine's {cores} cores"
