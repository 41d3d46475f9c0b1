"""The verdicts on one GPU that worked: a table. Pure.

A case holds where its signs are seen; the first that holds is the verdict. `steps` are its next
steps, the best first: the first that fits this run is given (`steps.py`). The order of the rows is
also how bad a verdict is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusetup.monitor import signs as s
from gpusetup.monitor.marks import NETWORK_FULL
from gpusetup.monitor.seen import Seen, Sign
from gpusetup.monitor.values import Verdict

Says = str | Callable[[Seen], str]
"""A sentence about the figures of a run (`figures.py`), or what picks its parts."""


class Case(NamedTuple):
    verdict: Verdict
    cause: str
    proof: Sign
    says: Says
    steps: tuple[str, ...] = ()


# --- what a verdict rests on ----------------------------------------------------------------------


def braked(seen: Seen) -> str:
    brake = seen.brake
    assert brake is not None
    told = "{brake} held the clocks down"
    if brake.reason in seen.work.reasons:
        told += f" in {seen.work.reasons[brake.reason]:.0f} % of the working samples"
    if brake.cause == "heat" and seen.gpu.heat is not None:
        told += ", at {heat:.0f} °C"
    if brake.cause == "withheld power" and seen.work.power_watts is not None:
        told += ", at {power_watts:.0f} W"
        told += " of the {limit:.0f} W that it may" if seen.gpu.latest.power_limit_watts else ""
    if brake.cause == "lowered limit":
        told += ": {limit:.0f} W of the rated {default:.0f} W"
    if seen.work.clock_share is not None:
        told += "; SM clock at {clock_share:.0f} % of its maximum"
    return told + (" ({reason})" if brake.reason else "")


def cores_used_up(seen: Seen) -> str:
    cores = "{its_cores:g} cores" if seen.cores else "its cores"
    told = f"{{worked}} while the command used {{cpu:.0f}} % CPU of {cores}"
    held = seen.work.held_back
    return told + (", held back by its quota {held_back:.0f} % of the time" if held else "")


def storage(seen: Seen) -> str:
    waited = " {blocked:.1f} processes waited for a disk and" if seen.work.blocked else ""
    return "{worked} while" + waited + " {read_rate_mb:.0f} MB/s were read"


def slow_items(seen: Seen) -> str:
    each = "{worker_cpu:.0f} %" if seen.work.worker_cpu is not None else "unknown"
    return f"{WAITED} for {{loaders}} at {each} of a core each"


def core_full(seen: Seen) -> str:
    cpu = seen.work.busiest_cpu or 0.0
    filled = f"a core ({cpu:.0f} %)" if cpu < 150 else f"{cpu / 100:.1f} cores"
    return f"{{worked}} while one process filled {filled} and no loader was behind"


def bursts(seen: Seen) -> str:
    work = seen.work
    if not work.quiet_share and work.utilization_p95 - work.utilization_p5 < 50:
        return "{worked}, in pieces too short to be seen one by one"
    return (
        "{worked}, in bursts (p5 {utilization_p5:.0f} %, p95 {utilization_p95:.0f} %, "
        "nothing in {quiet_share:.0f} % of the samples)"
    )


def pauses(seen: Seen) -> str:
    told, paused = PAUSED, seen.gpu.parts.paused
    if paused is None or paused.busiest_cpu is None:
        return told
    if (paused.write_rate or 0) > 1e6:
        return f"{told}, while {(paused.write_rate or 0) / 1e6:.0f} MB/s were written"
    return f"{told}, while the process used {paused.busiest_cpu:.0f} % of a core"


def links(seen: Seen) -> str:
    work, told = seen.work, RAN
    if work.power_share is not None:
        told += " at {power_share:.0f} % of the power limit"
    far = work.network_rate if (work.network_rate or 0) >= NETWORK_FULL else None
    for rate, name in ((work.link_rate, "NVLink"), (work.pcie_rate, "PCIe"), (far, "the network")):
        told += f", {rate / 1e9:.1f} GB/s over {name}" if rate else ""
    return told


def in_collectives(seen: Seen) -> str:
    where = "{nodes} machines" if seen.run.nodes > 1 else "{together} GPUs"
    return f"{links(seen)}, on {where} of one job: they wait in collectives"


def good(seen: Seen) -> str:
    told = "utilisation {utilization:.0f} %"
    told += ", memory {memory_p95:.0f} %" if seen.gpu.memory.count else ""
    told += ", {heat:.0f} °C" if seen.gpu.heat is not None else ""
    return f"{told}: nothing holds it back"


RAN = "kernels ran {utilization:.0f} % of the time"
WAITED = "{worked} while the process waited ({busiest_cpu:.0f} % of a core)"
PAUSED = "GPU {label} paused for {pause_share:.0f} % of its time, {longest_pause:.0f} s at most"
NETWORK = "{worked} while the process waited and {network_rate_mb:.0f} MB/s came over the network"
BY_ITSELF = (
    "{worked} while the process computed on the CPU by itself "
    "({busiest_cpu:.0f} % of a core, no loader workers)"
)
SMALL = RAN + " but drew only {power_share:.0f} % of the power limit: they are too small"
MEMORY = "memory in use: {memory_p95:.0f} % (p95), {memory_peak:.0f} % at its peak"
GREW = "memory grew all the time, to {memory_peak:.0f} %"

# --- the table ------------------------------------------------------------------------------------

partly = ~s.busy
main_waits = s.watched & ~s.core_full
costs_most = ~(s.mostly_waits & s.only_now_and_then)
"""Where a GPU mostly waits, a brake that is on now and then is not the verdict."""
starved = s.watched & partly & ~s.no_loader
waits = starved & ~s.core_full
alone_with_its_cpu = starved & ~s.workers
small = ("more-in-parallel", "larger-work", "compile-or-graphs")
faster_input = ("load-with-workers", "off-the-loop")
fewer_bytes = ("fewer-bytes-between-gpus",)
the_link = ("look-at-the-link", "stay-on-the-gpu")
shorter = ("overlap-the-pauses", "shorter-pauses")
unseen = ("watch-the-command", "see-where-it-waits")
waits_where = ("see-where-it-waits",)
storages = ("faster-storage",)
margin = ("leave-a-margin",)

CASES: tuple[Case, ...] = (
    # memory that ended the run
    Case("memory-tight", "before-the-end", s.failed & s.full_at_the_end & s.memory_grew,
         GREW, ("find-the-leak",)),
    Case("memory-tight", "before-the-end",
         (s.failed | s.memory_fell) & s.full_at_the_end & ~s.server, MEMORY, margin),
    # held down: unless the GPU mostly waits, which costs more
    *(
        Case("throttled", cause, s.held_down_by(cause) & costs_most, braked, steps)
        for cause, steps in (
            ("heat", ("cool",)),
            ("supply", ("check-the-supply",)),
            ("lowered limit", ("raise-the-power-limit",)),
            ("rated limit", ("draw-less",)),
            ("withheld power", ("plug-it-in", "look-outside")),
            ("set clocks", ("reset-the-clocks",)),
        )
    ),
    Case("throttled", "low clocks", s.busy & s.clocks_far_down,
         "SM clock at {clock_share:.0f} % of its maximum while " + RAN
         + " at {power_share:.0f} % of the power limit; no reason was told",
         ("unlock-the-clocks",)),
    # between GPUs, and between a GPU and its host
    Case("communication-bound", "hang",
         s.several & s.spins & s.light & s.no_memory_traffic & ~s.links_carry,
         "{together} GPUs of one job show {utilization:.0f} % utilisation but touch no memory "
         "and move nothing: they wait in a collective", waits_where),
    Case("communication-bound", "links",
         s.several & s.links_carry & partly & ~(s.workers_full | s.gaps), links, fewer_bytes),
    Case("communication-bound", "links",
         s.several & s.busy & s.links_rule & ~s.memory_bus_full, links, fewer_bytes),
    Case("communication-bound", "collectives",
         s.several & s.spins & s.light & s.collectives & ~s.links_told,
         in_collectives, fewer_bytes),
    Case("communication-bound", "nodes",
         s.several_nodes & s.spins & s.light & s.collectives,
         in_collectives, fewer_bytes),
    Case("communication-bound", "host", s.links_carry & s.light & ~s.several, links, the_link),
    # pauses
    Case("bursty", "requests", s.server & partly & ~s.core_full, bursts, ("send-more-requests",)),
    Case("bursty", "cells", s.notebook & partly, bursts, ("release-between-cells",)),
    Case("bursty", "saves", s.pauses_rule & s.writes_in_pauses, pauses, shorter),
    Case("bursty", "cpu",
         s.pauses_rule & s.computes_in_pauses & ~(s.workers_full | s.helpers), pauses, shorter),
    Case("bursty", "sleeps", s.pauses_rule & s.long_pauses & main_waits
         & ~(s.workers_full | s.helpers | s.blocked | s.reads | s.receives), pauses, waits_where),
    # the input, as the processes show it
    Case("input-starved", "neighbours", starved & s.others_full,
         "{worked} while others used {others:.0f} % CPU of {host_cores} cores, "
         "and the command {cpu:.0f} %", ("free-the-cpu",)),
    Case("input-starved", "quota", starved & s.held_back, cores_used_up, ("more-cores",)),
    Case("input-starved", "workers", starved & s.workers_full,
         "{worked} while {loaders} computed at {worker_cpu:.0f} % of a core each",
         ("more-workers", "cheaper-items")),
    Case("input-starved", "host-memory", waits & s.swaps,
         "{worked} while the machine's memory was {host_memory:.0f} % full and "
         "{disk_read_rate_mb:.0f} MB/s were read and {disk_write_rate_mb:.0f} MB/s written: "
         "it swaps", ("free-host-memory",)),
    Case("input-starved", "network", waits & s.over_the_network, NETWORK, storages),
    Case("input-starved", "storage", waits & (s.blocked | s.reads), storage, storages),
    Case("input-starved", "producers", starved & s.helpers & ~(s.several | s.launched),
         "{worked} while other processes of the command computed at {helpers_cpu:.0f} % of a core "
         "together", ("speed-up-the-producers",)),
    Case("input-starved", "by-itself", alone_with_its_cpu
         & s.core_full & ~s.light,
         BY_ITSELF, faster_input),
    Case("input-starved", "slow-items", waits & s.workers, slow_items,
         ("run-ahead", "see-where-it-waits")),
    Case("input-starved", "machine", partly & s.machine_full & ~(s.watched | s.no_loader),
         "{worked} while the machine's CPU was {host_share:.0f} % busy",
         ("see-who-uses-the-cpu",)),
    # the launches
    Case("launch-bound", "core", s.core_full & partly, core_full, small),
    Case("launch-bound", "kernels", s.busy & s.light, SMALL, small),
    Case("launch-bound", "multiprocessors", s.busy & s.few_multiprocessors & ~s.memory_bus_full,
         RAN + ", but only {sm_active:.0f} % of the multiprocessors had work", small),
    Case("launch-bound", "kernels", partly & s.light & ~(s.gaps | main_waits), SMALL, small),
    # the pattern, where nobody saw a cause
    Case("bursty", "unknown", partly & s.gaps, bursts, unseen),
    Case("bursty", "short-pieces", partly, bursts, unseen),
    # memory
    Case("memory-tight", "margin", s.memory_full & ~s.server, MEMORY, margin),
    Case("memory-bound", "bus", s.memory_bus_full,
         "the GPU's memory was busy {memory_busy:.0f} % of the time while kernels ran "
         "{utilization:.0f} %", ("more-in-parallel", "fewer-bytes")),
    Case("good", "", Sign(lambda seen: True, "anything else"), good),
)  # fmt: skip

ORDER = (
    *("throttled", "communication-bound", "input-starved", "bursty", "launch-bound"),
    *("memory-tight", "memory-bound", "good"),
)
"""How bad a verdict is, where several GPUs have several."""


def case_of(seen: Seen) -> Case:
    """The first that holds; the last always does."""
    return next(case for case in CASES if case.proof(seen))
