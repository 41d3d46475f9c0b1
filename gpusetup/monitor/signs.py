"""Signs: yes-or-no questions about a GPU in its run, or about the watched command. Pure functions.

Verdicts, findings and next steps combine signs with `&`, `|` and `~`. If no source reported the
value that a sign needs, the sign is false, so a verdict that needs it is not given (and a negated
sign is true). A threshold that only one sign uses is explained next to it; `marks.py` has the
others.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.monitor import marks
from gpusetup.monitor.run import Subject
from gpusetup.monitor.throttling import is_laptop
from gpusetup.monitor.work import at_least, below, or_zero


class Sign:
    """A yes-or-no question about a subject."""

    def __init__(self, test: Callable[[Subject], bool]) -> None:
        self.test = test

    def __call__(self, subject: Subject) -> bool:
        return self.test(subject)

    def __and__(self, other: Sign) -> Sign:
        return Sign(lambda subject: self(subject) and other(subject))

    def __or__(self, other: Sign) -> Sign:
        return Sign(lambda subject: self(subject) or other(subject))

    def __invert__(self) -> Sign:
        return Sign(lambda subject: not self(subject))


# --- the GPU --------------------------------------------------------------------------------------

no_gpu = Sign(lambda s: s.gpu is s.run.machine)
one_reading = Sign(lambda s: s.run.is_one_reading)
busy = Sign(lambda s: at_least(s.work.utilization, marks.BUSY))
# NCCL's kernels poll for the other ranks, so utilisation stays high while they wait.
spins = Sign(lambda s: at_least(s.work.utilization, marks.SPINNING_USE))
# A kernel that only polls needs no memory bandwidth.
no_memory_traffic = Sign(lambda s: below(s.work.memory_busy, marks.QUIET))
# From 70 % of the time the memory bus counts as full, because no kernel reaches 100 %.
memory_bus_full = Sign(lambda s: at_least(s.work.memory_busy, 70.0))
# Kernels that use only a few multiprocessors show full utilisation but draw little power, although
# they do not wait for memory.
light = Sign(lambda s: below(s.work.kernel_power, marks.LIGHT_POWER)) & ~memory_bus_full

long_pauses = Sign(lambda s: s.gpu.parts.pause_share >= marks.PAUSE_SHARE)
# Work without gaps in between, as an evaluation or a checkpoint after each epoch leaves it.
regular_pauses = long_pauses & Sign(
    lambda s: (
        len(s.gpu.parts.pauses) > 1
        and s.gpu.parts.pause_share < marks.LOW
        and s.gpu.parts.work is not None
        and s.gpu.parts.work.utilization >= marks.BUSY
    )
)
# Points between the 5th and the 95th percentile: half of the scale.
gaps = Sign(lambda s: s.work.utilization_p95 - s.work.utilization_p5 >= 50.0)


@Sign
def rests_at_the_end(subject: Subject) -> bool:
    """Whether the GPU did nothing at the end of the recording, for much longer than in its pauses,
    while its memory is still in use."""
    rest = subject.gpu.seconds_after_work
    # "Much" is twice the longest pause.
    is_long = rest >= marks.HANG_SECONDS and rest > 2 * max(subject.gpu.parts.pauses, default=0.0)
    # If the exit code is known, the command has ended and does not hang.
    return is_long and subject.run.exit is None and subject.gpu.is_occupied_at_the_end


@Sign
def work_ended(subject: Subject) -> bool:
    """Whether the process ended before the recording did, with an unknown exit code: the GPU rests
    for longer than in a stutter, and its memory is free."""
    is_over = subject.gpu.seconds_after_work >= marks.PAUSE_SECONDS
    return is_over and subject.run.exit is None and not subject.gpu.is_occupied_at_the_end


# --- the GPU's memory -----------------------------------------------------------------------------

# The 95th percentile, so that the peak of a single sample decides nothing.
memory_has_room = Sign(lambda s: below(s.gpu.memory.p95, marks.MEMORY_LOW))
memory_high = Sign(lambda s: at_least(s.gpu.memory.p95, marks.MEMORY_HIGH))
memory_full = Sign(lambda s: at_least(s.gpu.memory.p95, marks.MEMORY_TIGHT))
memory_grew = Sign(lambda s: s.gpu.memory.grew)
# At this rate it will be full (100 %) before the run's length has doubled.
fills_soon = memory_grew & Sign(lambda s: 2 * s.gpu.memory.peak - s.gpu.memory.first >= 100)
# The peak, because a process that fails frees its memory a little before the run ends.
was_full = Sign(lambda s: s.gpu.memory.peak >= marks.MEMORY_TIGHT)
host_memory_full = Sign(lambda s: at_least(s.run.host_memory, marks.MEMORY_TIGHT))
left_over = Sign(
    # The driver lists no process, and holds at most 0.6 GiB itself on a large card.
    lambda s: s.gpu.latest.processes == () and or_zero(s.gpu.latest.memory_used_bytes) >= 1 << 30
)
held_by_others = Sign(lambda s: len(s.foreign_holders) > 0)
# A foreign process that uses as much of the GPU as makes GPUs uneven.
used_by_others = Sign(
    lambda s: any(at_least(use.sm_percent, marks.USE_DIFFERENCE) for use in s.foreign_holders)
)
unknown_job = Sign(lambda s: s.run.command is None)
shared_by_programs = unknown_job & Sign(lambda s: len(s.gpu.big_holders) > 1)


# --- clocks ---------------------------------------------------------------------------------------


def lowers_the_clocks(cause: str) -> Sign:
    """A sign that the clocks are throttled for this cause (a cause in `throttling.py`)."""
    return Sign(lambda s: s.throttle is not None and s.throttle.cause == cause)


laptop = Sign(lambda s: is_laptop(s.gpu.name))
hot = Sign(lambda s: or_zero(s.gpu.heat) > marks.HOT)

# --- several GPUs and the links between them ------------------------------------------------------

several = Sign(lambda s: s.gpus_of_job >= 2)
# A rank that has stopped computing still has memory on its GPU.
has_ranks_or_held_gpus = several | Sign(
    lambda s: any(gpu.was_occupied and not gpu.worked for gpu in s.run.gpus)
)
similar_gpus = Sign(lambda s: s.run.looks_like_one_job)
has_ranks = Sign(lambda s: or_zero(s.run.ranks) > 1)
# The rate counts both directions. A large model's gradients reach it, a small model's do not.
nvlink_carries = Sign(lambda s: at_least(s.work.link_rate, marks.NVLINK_RATE))
pcie_carries = Sign(lambda s: at_least(s.work.pcie_rate, marks.PCIE_RATE))
links_carry = nvlink_carries | pcie_carries
waits_for_a_rank = has_ranks_or_held_gpus & spins & light & no_memory_traffic & ~links_carry

# --- the command's processes ----------------------------------------------------------------------

watched = Sign(lambda s: s.work.busiest_cpu is not None)
# Python code runs on one core, so a process that does not fill a core spends some time waiting.
core_full = Sign(lambda s: at_least(s.work.busiest_cpu, marks.CORE_FULL))
# For example, an optimizer on the CPU or a tokenizer.
many_threads = Sign(lambda s: at_least(s.work.busiest_cpu, marks.MANY_THREADS))
# A process below this only waits, and there is no sign of what it waits for.
works_between_steps = Sign(lambda s: at_least(s.work.busiest_cpu, marks.RESTING_CPU))
rests = Sign(lambda s: below(s.work.cpu, marks.RESTING_CPU))
# A mean over the samples: workers that are not persistent start and end with each epoch.
workers = Sign(lambda s: s.work.workers >= 0.5)
# Not 100 % of a core, because a worker also waits for the queue's lock and copies its batch.
workers_full = Sign(lambda s: at_least(s.work.worker_cpu, 75.0))
# A quota pauses processes in slices of 100 ms, so even at the limit the mean stays below 100 %.
cores_used_up = Sign(lambda s: at_least(s.cpu_share, marks.CPU_USED_UP))
fewer_cores = Sign(lambda s: or_zero(s.run.usable_cores) < or_zero(s.run.host_cores))
reads = Sign(lambda s: at_least(s.work.read_rate, marks.READ_RATE))
# State D, which also occurs while a process waits for a network file system.
blocked = Sign(lambda s: at_least(s.work.blocked, 0.5))
failed = Sign(lambda s: bool(s.run.exit))
# All read calls count, because reading a data set from the page cache also takes time.
reads_nothing = Sign(lambda s: below(s.work.input_rate, marks.READ_RATE))
# If a data set is in the process's own memory, its batches are visible only as PCIe traffic.
copies_nothing = Sign(lambda s: below(s.work.pcie_in, marks.PCIE_LAUNCHES))

# --- the kind of program --------------------------------------------------------------------------


def of_kind(*kinds: str) -> Sign:
    """A sign that the program is of one of these kinds, such as `server` (see `programs.py`)."""
    return Sign(lambda s: s.kind in kinds)


server, notebook = of_kind("server"), of_kind("notebook")
training = of_kind("training", "")
waits_for_a_user = server | notebook
no_training = waits_for_a_user | of_kind("inference")
# Neither the process nor the card receives data, so no loader can be too slow.
nothing_comes_in = reads_nothing & copies_nothing


@Sign
def leaves_others_unused(subject: Subject) -> bool:
    """Whether a training leaves GPUs of the same model unused, although the working ones may all
    belong to one job. We cannot know whether it may use them, so the next step asks the user."""
    run = subject.run
    # If the working GPUs differ, they belong to several jobs, and the unused GPUs may be reserved
    # for someone else. A card of another model may only drive the display.
    is_one_job = run.command is not None or len(run.working_gpus) == 1 or run.looks_like_one_job
    same_model = subject.gpu.name in {gpu.name for gpu in run.unused_gpus}
    return training(subject) and is_one_job and same_model


# --- runs in which no GPU worked ------------------------------------------------------------------

STOPPED_FROM_OUTSIDE = (129, 130, 137, 143)
"""Exit codes of a command that was ended by SIGHUP, SIGINT, SIGKILL or SIGTERM."""
was_stopped = Sign(lambda subject: subject.run.exit in STOPPED_FROM_OUTSIDE)
is_starting = Sign(lambda s: s.run.exit is None and s.run.seconds < marks.YOUNG_SECONDS)
