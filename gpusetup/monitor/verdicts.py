"""The verdicts on one GPU that worked: a table. Pure.

A case holds where its signs are seen; the first that holds is the verdict. `steps` are its next
steps, the best first: the first that fits this run is given (`advice.py`). The order of the rows is
also how bad a verdict is.
"""

from __future__ import annotations

from typing import NamedTuple

from gpusetup.monitor import signs as s
from gpusetup.monitor.documents import Verdict
from gpusetup.monitor.signs import Seen, Sign


class Case(NamedTuple):
    verdict: Verdict
    cause: str
    proof: Sign
    says: str
    """About the figures of a run (`advice.py`)."""
    steps: tuple[str, ...] = ()


# --- what a verdict rests on ----------------------------------------------------------------------


WORKED = "GPU {gpu.label} worked {work.utilization:.0f} % of the time"
RAN = "kernels ran {work.utilization:.0f} % of the time"
LINKS = RAN + " at {work.power_share:.0f} % of the power limit{seen.moved}"
IN_COLLECTIVES = LINKS + (
    ": it waits in collectives (GPUs of the job here: {seen.together}, machines: {run.nodes})"
)
GOOD = (
    "utilisation {work.utilization:.0f} %, memory {gpu.memory.p95:.0f} %, {gpu.heat:.0f} °C: "
    "nothing slows it down"
)
THROTTLED = (
    "{seen.throttle.words} ({seen.throttle.reason}) slowed the clocks down in "
    "{seen.throttle_share:.0f} % of the work"
)
CLOCK = "; SM clock at {work.clock_share:.0f} % of its maximum"
BURSTS = (
    WORKED + ", in bursts (p5 {work.utilization_p5:.0f} %, p95 {work.utilization_p95:.0f} %, "
    "nothing in {work.quiet_share:.0f} % of the samples)"
)
WAITED = WORKED + " while the process waited ({work.busiest_cpu:.0f} % of a core)"
PAUSED = (
    "GPU {gpu.label} paused for {gpu.parts.pause_share:.0f} % of the time, "
    "{gpu.parts.longest_pause:.0f} s at most"
)
QUOTA = (
    WORKED
    + " while the command used {work.cpu:.0f} % CPU, all of the {its_cores:g} cores that it may use"
)
STORAGE = (
    WORKED + " while {work.blocked:.1f} processes waited for a disk "
    "and {work.read_rate:MB/s} were read"
)
IN_PAUSES = PAUSED + ", while the process used {gpu.parts.paused.busiest_cpu:.0f} % of a core"
NETWORK = WORKED + " while the process waited and {work.network_rate:MB/s} came over the network"
BY_ITSELF = (
    WORKED + " while the process computed on the CPU by itself "
    "({work.busiest_cpu:.0f} % of a core, no loader workers)"
)
SMALL = RAN + " but drew only {work.power_share:.0f} % of the power limit: they are too small"
MEMORY = "memory in use: {gpu.memory.p95:.0f} % (p95), {gpu.memory.peak:.0f} % at its peak"
GREW = "memory grew all the time, to {gpu.memory.peak:.0f} %"

# --- the table ------------------------------------------------------------------------------------

partly = ~s.busy
main_waits = s.watched & ~s.core_full
costs_most = ~(s.mostly_waits & s.only_now_and_then)
"""Where a GPU mostly waits, a throttle that is on now and then is not the verdict."""
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
margin = ("free-the-card", "leave-a-margin")

CASES: tuple[Case, ...] = (
    # memory that ended the run
    Case("memory-tight", "before-the-end", s.failed & s.full_at_the_end & s.memory_grew,
         GREW, ("find-the-leak",)),
    Case("memory-tight", "before-the-end",
         (s.failed | s.memory_fell) & s.full_at_the_end & ~s.server, MEMORY, margin),
    # held down: unless the GPU mostly waits, which costs more
    *(
        Case("throttled", cause, s.held_down_by(cause) & costs_most, THROTTLED + figures + CLOCK,
             steps)
        for cause, figures, steps in (
            ("heat", ", at {gpu.heat:.0f} °C", ("cool",)),
            ("supply", "", ("check-the-supply",)),
            ("lowered limit", ", at {limit:.0f} W of the rated {gpu.power_default:.0f} W",
             ("raise-the-power-limit",)),
            ("rated limit", "", ("draw-less",)),
            ("withheld power", ", at {work.power_watts:.0f} W (its limit: {limit:.0f} W)",
             ("plug-it-in", "look-outside")),
            ("set clocks", "", ("reset-the-clocks",)),
        )
    ),
    Case("throttled", "low clocks", s.busy & s.clocks_far_down,
         "SM clock at {work.clock_share:.0f} % of its maximum while " + RAN
         + " at {work.power_share:.0f} % of the power limit; no reason was told",
         ("unlock-the-clocks",)),
    Case("throttled", "others", s.used_by_others & s.busy,
         WORKED + ", but other processes compute on it too",
         ("free-the-card",)),
    # between GPUs, and between a GPU and its host
    Case("communication-bound", "hang",
         (s.several | s.beside_a_resting_one)
         & s.spins & s.light & s.no_memory_traffic & ~s.links_carry,
         "{seen.together} GPUs of one job show {work.utilization:.0f} % utilisation, but use no "
         "memory bandwidth and move no data: they wait in a collective", waits_where),
    Case("communication-bound", "links",
         s.several & ((s.links_carry & partly & ~(s.workers_full | s.gaps))
                      | (s.busy & s.links_rule & ~s.memory_bus_full)), LINKS, fewer_bytes),
    Case("communication-bound", "collectives",
         s.several & s.spins & s.light & s.launched,
         IN_COLLECTIVES, fewer_bytes),
    Case("communication-bound", "host", ((s.links_carry & s.light) | (s.link_full & partly))
         & ~s.several, LINKS, the_link),
    # pauses
    Case("bursty", "requests", s.server & partly & ~s.core_full, BURSTS, ("send-more-requests",)),
    Case("bursty", "cells", s.notebook & partly, BURSTS, ("release-between-cells",)),
    Case("bursty", "saves", s.pauses_rule & s.writes_in_pauses,
         PAUSED + ", while {gpu.parts.paused.write_rate:MB/s} were written", shorter),
    Case("bursty", "cpu",
         s.pauses_rule & s.computes_in_pauses & ~(s.workers_full | s.helpers), IN_PAUSES, shorter),
    Case("bursty", "sleeps", s.pauses_rule & main_waits
         & ~(s.workers_full | s.helpers | s.blocked | s.reads | s.receives),
         IN_PAUSES, waits_where),
    # the input, as the processes show it
    Case("input-starved", "neighbours", starved & s.others_full,
         WORKED + " while others used {seen.others_cpu:.0f} % CPU of {run.host_cores} cores, "
         "and the command {work.cpu:.0f} %", ("free-the-cpu",)),
    Case("input-starved", "quota", starved & s.cores_used_up & s.fewer_cores, QUOTA,
         ("more-cores",)),
    Case("input-starved", "workers", starved & s.workers_full,
         WORKED + " while {seen.loaders} computed at {work.worker_cpu:.0f} % of a core each",
         ("more-workers", "cheaper-items")),
    Case("input-starved", "host-memory", waits & s.swaps,
         WORKED + " while the machine's memory was {run.host_memory:.0f} % full and "
         "{work.disk_read_rate:MB/s} were read and {work.disk_write_rate:MB/s} written: "
         "it swaps", ("free-host-memory",)),
    Case("input-starved", "network", waits & s.over_the_network, NETWORK, storages),
    Case("input-starved", "storage", waits & (s.blocked | s.reads), STORAGE, storages),
    Case("input-starved", "producers", starved & s.helpers & ~s.several,
         WORKED + " while other processes of the command computed at {work.helpers_cpu:.0f} % of a "
         "core together", ("speed-up-the-producers",)),
    Case("memory-tight", "margin", s.memory_used_up & partly & ~s.no_loader, MEMORY, margin),
    Case("input-starved", "by-itself", alone_with_its_cpu
         & s.core_full & ~(s.light | s.nothing_comes_in),
         BY_ITSELF, faster_input),
    Case("input-starved", "slow-items", waits & s.workers,
         WAITED + " for {seen.loaders} at {work.worker_cpu:.0f} % of a core each",
         ("run-ahead", "see-where-it-waits")),
    Case("input-starved", "machine", partly & s.machine_full & ~(s.watched | s.no_loader),
         WORKED + " while the machine's CPU was {work.host_share:.0f} % busy",
         ("see-who-uses-the-cpu",)),
    # the launches
    Case("launch-bound", "core", s.core_full & partly,
         WORKED + " while one process used {work.busiest_cpu:.0f} % of a core and no loader was "
         "behind", small),
    Case("launch-bound", "kernels", s.light & (s.busy | ~(s.gaps | main_waits)), SMALL, small),
    # the pattern, where nobody saw a cause
    Case("bursty", "unknown", partly & s.gaps, BURSTS, unseen),
    Case("bursty", "short-pieces", partly, BURSTS, unseen),
    # memory
    Case("memory-tight", "margin", s.memory_full & ~s.server, MEMORY, margin),
    Case("memory-bound", "bus", s.memory_bus_full,
         "the GPU's memory was busy {work.memory_busy:.0f} % of the time while kernels ran "
         "{work.utilization:.0f} %", ("more-in-parallel", "fewer-bytes")),
    Case("good", "", Sign(lambda seen: True), GOOD),
)  # fmt: skip

ORDER = (
    *("throttled", "communication-bound", "input-starved", "bursty", "launch-bound"),
    *("memory-tight", "memory-bound", "good"),
)
"""How bad a verdict is, where several GPUs have several."""


def case_of(seen: Seen) -> Case:
    """The first that holds; the last always does."""
    return next(case for case in CASES if case.proof(seen))
