"""The tables of verdicts on a GPU that worked, on a command without a GPU, and on a run in which no
GPU worked. Pure functions.

The first case whose `proof` is true gives the verdict. `sentence` says what was observed
(`words.py` has the figures), `steps` are its next steps in order of preference; the first that fits
this run is shown (`steps.py`). If GPUs have different verdicts, `ORDER` decides which one is worst.
"""

from __future__ import annotations

from typing import NamedTuple

from gpusetup.model.documents import Verdict
from gpusetup.monitor import signs as s
from gpusetup.monitor.run import Subject
from gpusetup.monitor.signs import Sign


class VerdictCase(NamedTuple):
    verdict: Verdict | None
    cause: str
    proof: Sign
    sentence: str
    steps: tuple[str, ...] = ()


not_busy = ~s.busy
starved = s.watched & not_busy & ~s.waits_for_a_user
waits_for_input = starved & ~s.core_full
links_hold_it_back = s.links_carry & not_busy & ~(s.workers_full | s.gaps)
for_small_kernels = ("larger-work", "compile-or-graphs")
for_a_user = ("release-between-cells", "send-more-requests")
waits_where = ("see-where-it-waits",)
IN_BURSTS = (
    "{worked}, in bursts (p5 {work.utilization_p5} %, p95 {work.utilization_p95} %, idle in "
    "{work.quiet_share} % of the samples)"
)
WELL = "{well_used}{nothing_slows_it_down}"
MEMORY_IN_USE = "memory in use: {gpu.memory.p95} % (p95), {gpu.memory.peak} % at its peak{holders}"
for_full_memory = ("free-the-card", "leave-a-margin")


def throttled_by(cause: str, figures: str, *steps: str) -> VerdictCase:
    """The table's row for clocks that are throttled for this cause; `figures` follow the reason."""
    sentence = f"{{slowed}}{figures}; {{sm_clock}}"
    return VerdictCase("throttled", cause, s.lowers_the_clocks(cause), sentence, steps)


HANG = VerdictCase(
    "communication-bound", "hang", s.waits_for_a_rank,
    "{kernels_ran}{at_power}, but no memory was used and no data moved: a rank waits in a "
    "collective for another rank", waits_where,
)  # fmt: skip
MARGIN = VerdictCase(
    "memory-tight", "margin", s.memory_full & ~s.server, MEMORY_IN_USE, for_full_memory
)
CASES: tuple[VerdictCase, ...] = (
    # Memory that ended the run, or will soon. These cases come first, whatever else was slow.
    VerdictCase("memory-tight", "leak",
         s.fills_soon & ~s.server,
         "{memory_growth}", ("find-the-leak",)),
    VerdictCase("memory-tight", "before-the-end",
         s.failed & s.was_full & ~s.server,
         MEMORY_IN_USE, for_full_memory),
    VerdictCase("memory-tight", "host-memory",
         s.host_memory_full & (s.no_gpu | (waits_for_input & (s.blocked | s.reads))),
         "the machine's memory was {run.host_memory} % full", ("use-less-host-memory",)),
    # The clocks are throttled.
    throttled_by("heat", ", at {gpu.heat} °C", "cool"),
    throttled_by("supply", "{watts_and_limit}", "check-the-supply"),
    throttled_by("lowered limit", "{watts_and_limit}", "raise-the-power-limit"),
    throttled_by("power limit", "{watts_and_limit}", "plug-it-in", "compare-the-power-limit"),
    throttled_by("low clocks", "", "unlock-the-clocks"),
    VerdictCase("throttled", "others",
         s.used_by_others & s.busy,
         "{worked}, but other processes compute on it too",
         ("free-the-card",)),
    # One output of nvidia-smi shows how much a GPU works, but not why.
    MARGIN._replace(proof=s.one_reading & MARGIN.proof),
    VerdictCase(None, "one-reading",
         s.one_reading & not_busy,
         "{well_used}{holders}; a single sample shows how busy the GPU is, but not why",
         ("see-whose-they-are", "watch-the-command")),
    VerdictCase("good", "", s.one_reading, WELL),
    # The GPU waits for other GPUs or for its host.
    VerdictCase("communication-bound", "host",
         # Offloaded steps compute on many threads of the CPU and read nothing.
         (s.pcie_carries & not_busy & s.many_threads & s.reads_nothing)
         | (~s.several & s.links_carry & s.light),
         "{kernels_ran}{at_power}{rates}: the GPU waits for its host", ("stay-on-the-gpu",)),
    VerdictCase("communication-bound", "collectives",
         s.several & (links_hold_it_back
                      | (s.spins & s.light & (s.has_ranks | s.similar_gpus))),
         "{kernels_ran}{at_power}{rates}: a job's GPUs (here: {gpus_of_job}) wait for each other",
         ("fewer-bytes-between-gpus",)),
    # Pauses.
    VerdictCase("bursty", "requests",
         (s.server & not_busy & ~s.core_full) | (s.notebook & (not_busy | s.long_pauses)),
         IN_BURSTS, for_a_user),
    VerdictCase("bursty", "pauses",
         (s.regular_pauses | (s.long_pauses & s.watched))
         & ~(s.workers_full | s.blocked | s.reads),
         "GPU {gpu.label} {paused}",
         ("shorter-pauses",)),
    # The GPU waits for its input, and the processes show why.
    VerdictCase("input-starved", "cores",
         starved & s.cores_used_up & s.fewer_cores & ~s.no_gpu,
         "{worked}: the command used up the {cores} cores that it may use", ("more-cores",)),
    VerdictCase("input-starved", "workers",
         starved & s.workers_full & ~(s.no_gpu & s.core_full),
         "{worked} while the process waited{for_loaders}", ("more-workers",)),
    VerdictCase("input-starved", "storage",
         waits_for_input & (s.blocked | s.reads),
         "{worked} while {blocked} processes waited for a disk or a network file system, and "
         "{read} were read from disks", ("faster-storage",)),
    VerdictCase("input-starved", "each-step",
         waits_for_input & ~s.no_gpu & (s.workers | ~(s.gaps | s.several)),
         "{worked} while the process waited ({work.busiest_cpu} % of a core){for_loaders}, but not "
         "for a disk",
         ("fetch-in-advance", "load-with-workers", "see-where-it-waits")),
    # A command without a GPU.
    VerdictCase("idle", "waits", s.no_gpu & s.rests, "{worked}: it mostly waited", waits_where),
    VerdictCase("cpu-bound", "computes",
         s.no_gpu & (s.cores_used_up | s.core_full),
         "{worked}: its busiest process computed at {work.busiest_cpu} % of a core, and neither a "
         "loader nor a disk held it back", ("more-cores", "use-a-gpu")),
    VerdictCase("bursty", "waits",
         s.no_gpu, "{worked}: it alternated between computing and waiting", waits_where),
    # A core is fully used, or kernels are launched too slowly.
    VerdictCase("input-starved", "by-itself",
         starved & ~s.workers & s.core_full & ~(s.light | s.nothing_comes_in),
         "{worked} while the process computed on the CPU by itself ({work.busiest_cpu} % of a "
         "core, no loader workers)", ("load-with-workers", "off-the-loop")),
    VerdictCase("launch-bound", "core",
         s.core_full & not_busy,
         "{worked} while one process used {work.busiest_cpu} % of a core and no loader was behind",
         for_small_kernels),
    VerdictCase("launch-bound", "kernels",
         s.light & (s.busy | ~(s.gaps | (s.watched & ~s.core_full))),
         "{kernels_ran} but drew only {work.power_share} % of the power limit: they are too small, "
         "or one of them only waits",
         for_small_kernels),
    # Patterns without a known cause.
    VerdictCase("bursty", "unknown",
         not_busy & (s.gaps | s.watched | s.no_training),
         IN_BURSTS, ("watch-the-command", "see-where-it-waits")),
    VerdictCase("input-starved", "short-pieces",
         not_busy,
         "{worked}, evenly (p5 {work.utilization_p5} %, p95 {work.utilization_p95} %): it waits "
         "for data or for the CPU to launch kernels; the GPU's figures cannot tell which",
         ("watch-the-command",)),
    # The GPU is busy, but its memory is at a limit.
    MARGIN,
    VerdictCase("memory-bound", "bus",
         s.memory_bus_full,
         "the GPU's memory was busy {work.memory_busy} % of the time while {kernels_ran}",
         ("fewer-bytes",)),
    VerdictCase("bursty", "hang",
         s.rests_at_the_end & ~s.waits_for_a_user,
         "{well_used} while it worked, but nothing ran in the last {gpu.seconds_after_work} s, "
         "although its memory was still in use", waits_where),
    VerdictCase("good", "",
         Sign(lambda subject: True), WELL),
)  # fmt: skip

held = Sign(lambda subject: any(gpu.was_occupied for gpu in subject.run.gpus))
IDLE = "{each_gpu}utilisation {highest_use} % over {run.samples} samples{held_memory}{idle_cpu}"
ONE_IDLE = "{each_gpu}utilisation {highest_use} %{held_memory}: nothing ran at that moment"
IDLE_CASES: tuple[VerdictCase, ...] = (
    VerdictCase("idle", "one-reading", s.one_reading & held, ONE_IDLE, ("watch-the-command",)),
    VerdictCase("idle", "one-reading", s.one_reading, ONE_IDLE, ("see-whether-torch-can",)),
    VerdictCase("idle", "failed",
         s.failed & ~(s.unknown_job | s.was_stopped), IDLE, ("read-how-it-ended",)),
    VerdictCase("idle", "starting", s.is_starting, IDLE, ("watch-longer",)),
    VerdictCase("idle", "requests", held & s.waits_for_a_user, IDLE, for_a_user),
    VerdictCase("idle", "left-over", held & s.left_over, IDLE, ("find-the-holder",)),
    VerdictCase("idle", "computes", held & s.many_threads, IDLE, ("move-to-the-gpu",)),
    VerdictCase("idle", "held", held, IDLE, waits_where),
    VerdictCase("idle", "unused",
         Sign(lambda subject: True), IDLE, ("see-whether-torch-can",)),
)  # fmt: skip

ORDER = (
    *("throttled", "communication-bound", "input-starved", "bursty", None, "launch-bound"),
    *("memory-tight", "memory-bound", "good"),
)
"""The verdicts from worst to best, used if several GPUs have different verdicts."""


def case_of(subject: Subject) -> VerdictCase:
    """The first row that applies to this GPU, or to the command on a machine without one; the last
    row of each table always does."""
    table = CASES if subject.gpu is subject.run.machine or subject.run.working_gpus else IDLE_CASES
    return next(case for case in table if case.proof(subject))
