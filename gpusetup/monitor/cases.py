"""The verdicts on one GPU that worked: a table. Pure.

A case holds where all signs that prove it are seen and none that excludes it; the first that holds
is the verdict. `steps` are its next steps, the best first: the first that fits this run is given
(`steps.py`). The order of the rows is also how bad a verdict is.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.model.frozen import Frozen
from gpusetup.monitor import evidence
from gpusetup.monitor.signs import Seen
from gpusetup.monitor.values import Verdict


class Case(Frozen):
    verdict: Verdict
    cause: str
    proves: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    says: Callable[[Seen], str]
    steps: tuple[str, ...] = ()


FASTER_INPUT = ("load-with-workers", "off-the-loop")


def case(
    name: str,
    proves: str,
    says: Callable[[Seen], str],
    *steps: str,
    excludes: str = "",
) -> Case:
    """`name`: `verdict/cause`; signs are parted by commas."""
    verdict, _, cause = name.partition("/")
    return Case(
        verdict=verdict,  # type: ignore[arg-type]
        cause=cause,
        proves=_names(proves),
        excludes=_names(excludes),
        says=says,
        steps=steps,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


NO_LOADER = "server, notebook, physics"

CASES: tuple[Case, ...] = (
    # memory that ended the run
    case("memory-tight/before-the-end", "failed, full at the end, memory grew",
         evidence.memory_grew, "find-the-leak"),
    case("memory-tight/before-the-end", "failed, full at the end", evidence.memory,
         "leave-a-margin", excludes="server"),
    case("memory-tight/before-the-end", "memory fell, full at the end", evidence.memory,
         "leave-a-margin", excludes="server"),
    # held down: unless the GPU mostly waits, which costs more
    *(
        case(f"throttled/{sign}", sign, evidence.braked, step, *more)
        for sign, step, more in (
            ("heat", "cool", ()), ("supply", "check-the-supply", ()),
            ("lowered limit", "raise-the-power-limit", ()),
            ("limit with room", "raise-the-power-limit", ()),
            ("rated limit", "draw-less", ()),
            ("withheld power", "plug-it-in", ("look-outside",)),
            ("set clocks", "reset-the-clocks", ()),
        )
    ),
    case("throttled/slower", "busy, slower than its twins", evidence.slower, "unlock-the-clocks"),
    case("throttled/low clocks", "busy, clocks far down", evidence.far_down, "unlock-the-clocks"),
    # between GPUs, and between a GPU and its host
    case("communication-bound/hang", "several, spins, light, no memory traffic", evidence.hangs,
         "see-where-it-waits", excludes="links carry"),
    case("communication-bound/links", "several, links carry, light", evidence.links,
         "fewer-bytes-between-gpus"),
    case("communication-bound/links", "several, links carry, partly", evidence.links,
         "fewer-bytes-between-gpus", excludes="workers full, gaps"),
    case("communication-bound/links", "several, busy, links rule", evidence.links,
         "fewer-bytes-between-gpus", excludes="memory bus full"),
    case("communication-bound/network", "several, network carries, spins, light", evidence.links,
         "fewer-bytes-between-gpus"),
    case("communication-bound/collectives", "several, spins, light, collectives",
         evidence.collectives, "fewer-bytes-between-gpus", excludes="links told"),
    case("communication-bound/nodes", "several nodes, spins, light, collectives",
         evidence.collectives, "fewer-bytes-between-gpus", excludes="network quiet"),
    case("communication-bound/host", "links carry, light", evidence.links,
         "look-at-the-link", "stay-on-the-gpu", excludes="several"),
    case("communication-bound/host", "links carry, partly", evidence.links,
         "look-at-the-link", "stay-on-the-gpu", excludes="several, workers full, reads"),
    # pauses
    case("bursty/requests", "server, partly", evidence.bursts, "send-more-requests",
         excludes="core full"),
    case("bursty/cells", "notebook, partly", evidence.bursts, "release-between-cells"),
    case("bursty/saves", "pauses rule, writes in pauses", evidence.pauses, "overlap-the-pauses",
         "shorter-pauses"),
    case("bursty/cpu", "pauses rule, computes in pauses", evidence.pauses, "overlap-the-pauses",
         "shorter-pauses",
         excludes="workers full, helpers"),
    case("bursty/sleeps", "pauses rule, long pauses, watched", evidence.pauses,
         "see-where-it-waits",
         excludes="workers full, helpers, core full, blocked, reads, receives"),
    # the input, as the processes show it
    case("input-starved/neighbours", "watched, partly, others full", evidence.others_full,
         "free-the-cpu", excludes=NO_LOADER),
    case("input-starved/quota", "watched, partly, held back", evidence.cores_used_up,
         "more-cores", excludes=NO_LOADER),
    case("input-starved/cpu-used-up", "watched, partly, cores used up, workers",
         evidence.cores_used_up, "cheaper-items", "more-cores", excludes=NO_LOADER),
    case("input-starved/workers", "watched, partly, workers full", evidence.workers_full,
         "more-workers", "cheaper-items", excludes=NO_LOADER),
    case("input-starved/host-memory", "watched, partly, main waits, swaps", evidence.swaps,
         "free-host-memory", excludes=NO_LOADER),
    case("input-starved/network", "watched, partly, main waits, blocked, over the network",
         evidence.network, "faster-storage", excludes=NO_LOADER),
    case("input-starved/storage", "watched, partly, main waits, blocked", evidence.storage,
         "faster-storage", excludes=NO_LOADER),
    case("input-starved/storage", "watched, partly, main waits, reads", evidence.storage,
         "faster-storage", excludes=NO_LOADER),
    case("input-starved/network", "watched, partly, main waits, receives", evidence.network,
         "faster-storage", excludes=NO_LOADER),
    case("input-starved/producers", "watched, partly, helpers", evidence.helpers,
         "speed-up-the-producers", excludes=f"{NO_LOADER}, several, launched"),
    case("input-starved/by-itself", "watched, partly, many threads", evidence.by_itself,
         *FASTER_INPUT, excludes=f"{NO_LOADER}, workers"),
    case("input-starved/by-itself", "watched, partly, core full, reads files", evidence.by_itself,
         *FASTER_INPUT, excludes=f"{NO_LOADER}, workers"),
    case("input-starved/by-itself", "watched, partly, core full, heavy", evidence.by_itself,
         *FASTER_INPUT, excludes=f"{NO_LOADER}, workers"),
    case("input-starved/by-itself", "watched, partly, core full, gaps", evidence.by_itself,
         *FASTER_INPUT, excludes=f"{NO_LOADER}, workers, light"),
    case("input-starved/slow-items", "watched, partly, main waits, workers", evidence.slow_items,
         "run-ahead", "see-where-it-waits", excludes=NO_LOADER),
    case("input-starved/unknown", "watched, partly, main waits", evidence.waits,
         "see-where-it-waits", excludes=NO_LOADER),
    case("input-starved/machine", "partly, machine full", evidence.machine_full,
         "see-who-uses-the-cpu", excludes=f"watched, {NO_LOADER}"),
    # the launches
    case("launch-bound/core", "watched, partly, core full", evidence.core_full,
         "more-in-parallel", "larger-work", "compile-or-graphs"),
    case("launch-bound/kernels", "busy, light", evidence.small_kernels,
         "more-in-parallel", "larger-work", "compile-or-graphs"),
    case("launch-bound/multiprocessors", "busy, few multiprocessors", evidence.few_multiprocessors,
         "more-in-parallel", "larger-work", "compile-or-graphs", excludes="memory bus full"),
    case("launch-bound/kernels", "partly, light", evidence.small_kernels,
         "more-in-parallel", "larger-work", "compile-or-graphs", excludes="gaps, main waits"),
    # the pattern, where nobody saw a cause
    case("bursty/unknown", "partly, gaps", evidence.bursts, "watch-the-command",
         "see-where-it-waits"),
    case("bursty/short-pieces", "partly", evidence.bursts, "watch-the-command",
         "see-where-it-waits"),
    # memory
    case("memory-tight/leak", "memory full, memory grew", evidence.memory_grew, "find-the-leak"),
    case("memory-tight/margin", "memory full", evidence.memory, "leave-a-margin",
         excludes="server"),
    case("memory-bound/bus", "memory bus full", evidence.memory_bus, "more-in-parallel",
         "fewer-bytes"),
    case("good/pauses", "some pauses", evidence.good_between_pauses),
    case("good/", "", evidence.good),
)  # fmt: skip

ORDER = (
    *("throttled", "communication-bound", "input-starved", "bursty", "launch-bound"),
    *("memory-tight", "memory-bound", "good"),
)
"""How bad a verdict is, where several GPUs have several."""

WAITING_COSTS_MORE = ("mostly waits", "only now and then")
"""Where both are seen, a brake is not the verdict."""
