"""The table of verdicts on a GPU that worked. Pure functions.

The first case whose `proof` is true gives the verdict. `steps` are its next steps in order of
preference; the first that fits this run is shown (`steps.py`). If GPUs have different verdicts,
`ORDER` decides which one is worst.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusetup.monitor import command_signs as c
from gpusetup.monitor import course_signs as k
from gpusetup.monitor import evidence as e
from gpusetup.monitor import signs as s
from gpusetup.monitor.documents import Verdict
from gpusetup.monitor.evidence import said
from gpusetup.monitor.subject import Sign, Subject


class VerdictCase(NamedTuple):
    verdict: Verdict
    cause: str
    proof: Sign
    sentence: Callable[[Subject], str]
    """What was observed, in figures (`evidence.py`)."""
    steps: tuple[str, ...] = ()


# --- the table ------------------------------------------------------------------------------------

partly = ~s.busy
main_waits = c.watched & ~c.core_full
costs_most = ~(s.mostly_waits & s.only_now_and_then)
"""False if the GPU mostly waits and is throttled only now and then, because then waiting costs more
than throttling."""
starved = c.watched & partly & ~c.no_loader
waits = starved & ~c.core_full
alone_with_its_cpu = starved & ~c.workers
links_hold_it_back = s.links_carry & partly & ~(c.workers_full | s.gaps)
kernels_wait_for_links = s.busy & s.links_rule & ~s.memory_bus_full
small = ("more-in-parallel", "larger-work", "compile-or-graphs")
faster_input = ("load-with-workers", "off-the-loop")
fewer_bytes = ("fewer-bytes-between-gpus",)
the_link = ("look-at-the-link", "stay-on-the-gpu")
shorter = ("overlap-the-pauses", "shorter-pauses")
unseen = ("watch-the-command", "see-where-it-waits")
waits_where = ("see-where-it-waits",)
storages = ("faster-storage",)
IN_BURSTS = said(
    "{worked}, in bursts (p5 {use_p5} %, p95 {use_p95} %, nothing in {quiet} % of the samples)"
)
PAUSED_AND_COMPUTED = said("{paused}, while the process used {cpu_in_pauses} % of a core")
margin = ("free-the-card", "leave-a-margin")


def throttled_by(cause: str, sentence: Callable[[Subject], str], *steps: str) -> VerdictCase:
    """The table's row for clocks that are throttled for this cause. It does not apply if the GPU
    mostly waits and is throttled only now and then."""
    is_held_down = s.held_down_by(cause)
    # The sentence contains the figures for this cause.
    proof = is_held_down & costs_most
    return VerdictCase("throttled", cause, proof, sentence, steps)


CASES: tuple[VerdictCase, ...] = (
    # The run ended because memory was full. These cases come first, whatever else was slow.
    VerdictCase("memory-tight", "out-of-memory",
         k.restarted & k.ended_when_full & ~c.server,
         k.ended_with_full_memory, ("read-the-log",)),
    VerdictCase("memory-tight", "before-the-end",
         c.failed & s.full_at_the_end & s.memory_grew,
         said("memory grew all the time, to {peak} %"),
         ("find-the-leak",)),
    VerdictCase("memory-tight", "before-the-end",
         (c.failed | s.memory_fell) & s.full_at_the_end & ~c.server,
         e.memory_in_use, margin),
    # Memory grows, so that it will soon be full and end the run.
    VerdictCase("memory-tight", "leak",
         s.memory_grew & (s.peak_high | k.fills_soon) & ~c.server,
         e.memory_will_be_full, ("find-the-leak",)),
    # The clocks are throttled.
    throttled_by("heat", e.throttled_by_heat, "cool"),
    throttled_by("supply", e.throttled, "check-the-supply"),
    throttled_by("lowered limit", e.throttled_by_a_lowered_limit, "raise-the-power-limit"),
    throttled_by("rated limit", e.throttled, "draw-less"),
    throttled_by("withheld power", e.throttled_with_power_left, "plug-it-in", "look-outside"),
    throttled_by("set clocks", e.throttled, "reset-the-clocks"),
    VerdictCase("throttled", "low clocks",
         s.busy & s.clocks_far_down,
         said("{sm_clock} while {kernels_ran}{at_power}; no reason was told"),
         ("unlock-the-clocks",)),
    VerdictCase("throttled", "others",
         s.used_by_others & s.busy,
         said("{worked}, but other processes compute on it too"),
         ("free-the-card",)),
    # The GPU waits for other GPUs or for its host. In a hang there is no traffic; in the other
    # cases there is.
    VerdictCase("communication-bound", "hang",
         (s.several | s.beside_a_resting_one)
         & s.spins & s.light & s.no_memory_traffic & ~s.links_carry,
         said("{gpus} GPUs of one job show {use} % utilisation, but use no memory bandwidth and "
              "move no data: they wait in a collective"),
         waits_where),
    VerdictCase("communication-bound", "offload",
         s.pcie_carries & partly & c.many_threads & c.reads_nothing,
         said("{worked}, its process computed on the CPU ({main_cpu} % of a core) and read "
              "nothing, and {pcie} went over PCIe: a part of each step runs on the host"),
         ("stay-on-the-gpu",)),
    VerdictCase("communication-bound", "links",
         s.several & (links_hold_it_back | kernels_wait_for_links),
         e.over_the_links, fewer_bytes),
    VerdictCase("communication-bound", "collectives",
         s.several & s.spins & s.light & (s.launched | s.alike),
         e.in_collectives, fewer_bytes),
    VerdictCase("communication-bound", "host",
         ((s.links_carry & s.light) | (s.link_full & partly)) & ~s.several,
         e.over_the_host_link, the_link),
    VerdictCase("communication-bound", "narrow link",
         s.narrow_link & partly & ~(c.workers_full | c.core_full | c.blocked | c.no_loader),
         said("{worked}, and {lanes}: data reach the GPU slowly"),
         the_link),
    # Pauses. If the process writes or computes in them, the cause is known; if it only sleeps, the
    # user has to look for it.
    VerdictCase("bursty", "requests",
         c.server & partly & ~c.core_full,
         IN_BURSTS, ("send-more-requests",)),
    VerdictCase("bursty", "cells",
         c.notebook & (partly | s.pauses_rule),
         IN_BURSTS, ("release-between-cells",)),
    VerdictCase("bursty", "restarts",
         s.pauses_rule & k.restarted,
         k.ended_and_started, ("read-the-log",)),
    VerdictCase("bursty", "saves",
         s.pauses_rule & c.writes_in_pauses,
         said("{paused}, while {written_in_pauses} were written"),
         shorter),
    VerdictCase("bursty", "cpu",
         s.pauses_rule & c.computes_in_pauses & ~(c.workers_full | c.helpers),
         PAUSED_AND_COMPUTED, shorter),
    VerdictCase("bursty", "sleeps",
         s.pauses_rule & main_waits
         & ~(c.workers_full | c.helpers | c.blocked | c.reads | c.over_the_network),
         PAUSED_AND_COMPUTED, waits_where),
    # The GPU waits for its input, and the processes show why. Causes outside the command come
    # first.
    VerdictCase("input-starved", "neighbours",
         starved & c.others_full,
         e.neighbours, ("free-the-cpu",)),
    VerdictCase("input-starved", "quota",
         starved & c.cores_used_up & c.fewer_cores,
         said("{worked} while the command used {command_cpu} % CPU, all of the {cores} cores that "
              "it may use"),
         ("more-cores",)),
    VerdictCase("input-starved", "workers",
         starved & c.workers_full,
         said("{worked} while {loaders} computed at {worker_cpu} % of a core each"),
         ("more-workers", "cheaper-items")),
    VerdictCase("input-starved", "host-memory",
         waits & c.swaps,
         said("{worked} while the machine's memory was {machine_memory} % full and "
              "{machine_read} were read and {machine_written} written: it swaps"),
         ("free-host-memory",)),
    VerdictCase("input-starved", "network",
         waits & c.over_the_network,
         said("{worked} while the process waited and {received} came over the network"),
         storages),
    VerdictCase("input-starved", "storage",
         waits & (c.blocked | c.reads),
         said("{worked} while {blocked} processes waited for a disk and {read} were read"),
         storages),
    VerdictCase("input-starved", "producers",
         starved & c.helpers & ~s.several,
         said("{worked} while other processes of the command computed at {helpers_cpu} % of a "
              "core together"),
         ("speed-up-the-producers",)),
    VerdictCase("memory-tight", "margin",
         s.memory_used_up & partly & ~c.no_loader,
         e.memory_in_use, margin),
    VerdictCase("input-starved", "by-itself",
         alone_with_its_cpu & c.core_full & ~(s.light | c.nothing_comes_in),
         said("{worked} while the process computed on the CPU by itself ({main_cpu} % of a core, "
              "no loader workers)"),
         faster_input),
    VerdictCase("input-starved", "slow-items",
         waits & c.workers,
         said("{worked} while the process waited ({main_cpu} % of a core) for {loaders_and_cpu}"),
         ("fetch-in-advance", "run-ahead", "see-where-it-waits")),
    VerdictCase("input-starved", "machine",
         partly & c.machine_full & ~(c.watched | c.no_loader),
         said("{worked} while the machine's CPU was {machine_cpu} % busy"),
         ("see-who-uses-the-cpu",)),
    # Kernels are launched too slowly: a core is fully used without reading input, or the kernels
    # draw little power.
    VerdictCase("launch-bound", "core",
         c.core_full & partly,
         said("{worked} while one process used {main_cpu} % of a core and no loader was behind"),
         small),
    VerdictCase("launch-bound", "kernels",
         s.light & (s.busy | ~(s.gaps | main_waits)),
         e.small_kernels, small),
    # Patterns without a known cause.
    VerdictCase("bursty", "phases",
         s.pauses_rule & s.busy_between_long_pauses & ~(c.watched | c.no_loader),
         said("{paused} ({pauses}), and worked fully in between: most likely an evaluation, a "
              "checkpoint, compilation or the start of an epoch"),
         shorter),
    VerdictCase("bursty", "unknown",
         partly & s.gaps,
         IN_BURSTS, unseen),
    VerdictCase("input-starved", "each-step",
         waits & c.works_between_steps & ~s.several,
         e.waited_in_each_step, ("load-with-workers", "see-where-it-waits")),
    VerdictCase("input-starved", "each-step",
         waits & ~s.several,
         e.waited_in_each_step, waits_where),
    VerdictCase("input-starved", "short-pieces",
         partly & ~(c.watched | c.no_training),
         said("{worked}, evenly (p5 {use_p5} %, p95 {use_p95} %): the host does not keep up, with "
              "data or with launching kernels"),
         ("help-the-host",)),
    VerdictCase("bursty", "short-pieces",
         partly,
         said("{worked}, in pieces shorter than a sample (p5 {use_p5} %, p95 {use_p95} %)"),
         unseen),
    # The GPU is busy, but its memory is at a limit.
    VerdictCase("memory-tight", "margin",
         s.memory_full & ~c.server,
         e.memory_in_use, margin),
    VerdictCase("memory-bound", "bus",
         s.memory_bus_full,
         e.memory_busy, ("more-in-parallel", "fewer-bytes")),
    VerdictCase("good", "",
         Sign(lambda subject: True),
         e.nothing_slows_it_down),
)  # fmt: skip

ORDER = (
    *("throttled", "communication-bound", "input-starved", "bursty", "launch-bound"),
    *("memory-tight", "memory-bound", "good"),
)
"""The verdicts from worst to best, used if several GPUs have different verdicts."""


def case_of(subject: Subject) -> VerdictCase:
    """The first row of the table that applies to this GPU; the last row always does."""
    for case in CASES:
        # The rows are tested in the table's order.
        if case.proof(subject):
            return case
    raise AssertionError("the last case always holds")
