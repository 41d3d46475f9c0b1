"""Signs about a GPU in a run, and about the links between GPUs. Pure functions.

A sign is a yes-or-no question about a run. Verdicts and steps combine signs into expressions such
as `watched & partly & ~server`. A threshold that only one sign uses is defined next to it, all
others in `marks.py`. Signs about the command are in `command_signs.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.monitor import marks
from gpusetup.monitor.documents import ProcessUse
from gpusetup.monitor.links import looks_full
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.run import worked
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.throttling import is_laptop, is_slower
from gpusetup.monitor.work import Moment, at_least, below, mean, or_zero, percent, percentile

# --- the GPU --------------------------------------------------------------------------------------


@Sign
def busy(subject: Subject) -> bool:
    """Whether the GPU's utilisation is near 100 %."""
    # This is the acceleration guide's threshold for a well-used GPU.
    utilization = subject.work.utilization
    return at_least(utilization, marks.BUSY)


@Sign
def mostly_waits(subject: Subject) -> bool:
    """Whether the GPU works less than half of the time."""
    # Below this threshold, the guide's advice applies.
    utilization = subject.work.utilization
    return below(utilization, marks.LOW)


@Sign
def spins(subject: Subject) -> bool:
    """Whether the GPU's utilisation is as high as that of a GPU that waits in a collective."""
    # NCCL's kernels poll for the other ranks, so utilisation stays high while they wait.
    utilization = subject.work.utilization
    return at_least(utilization, marks.SPINNING_USE)


@Sign
def no_memory_traffic(subject: Subject) -> bool:
    """Whether the GPU's memory is hardly read or written; false if this is unknown."""
    # A kernel that only polls needs no memory bandwidth.
    memory_busy = subject.work.memory_busy
    return below(memory_busy, marks.QUIET)


MEMORY_BUS_FULL = 70.0
"""The share of the time, in percent, from which the memory bus counts as full. It is below 100,
because no kernel reaches that."""


@Sign
def memory_bus_full(subject: Subject) -> bool:
    """Whether the GPU's memory is read or written nearly all the time."""
    memory_busy = subject.work.memory_busy
    return at_least(memory_busy, MEMORY_BUS_FULL)


@Sign
def draws_little(subject: Subject) -> bool:
    """Whether the GPU draws little power while kernels run; false if its power is unknown."""
    # Kernels that use only a few multiprocessors show full utilisation but low power.
    power_at_work = subject.weight
    return below(power_at_work, marks.LIGHT_POWER)


light = draws_little & ~memory_bus_full
"""The kernels draw little power, although they do not wait for memory."""


@Sign
def pauses_rule(subject: Subject) -> bool:
    """Whether pauses take up much of the time between the first and the last work."""
    # Every training has shorter pauses, for evaluation and checkpoints.
    pause_share = subject.gpu.parts.pause_share
    return pause_share >= marks.PAUSE_SHARE


LONG_PAUSE = 20.0
"""The shortest long pause, in seconds. An evaluation, a checkpoint or a starting loader may take
this long, but no batch does."""


@Sign
def busy_between_long_pauses(subject: Subject) -> bool:
    """Whether the GPU works at full load between long pauses (20 s or more)."""
    parts = subject.gpu.parts
    if not parts.pauses or parts.work is None:
        return False
    usual_pause = percentile(parts.pauses, 50)
    return usual_pause >= LONG_PAUSE and parts.work.utilization >= marks.BUSY


@Sign
def often_quiet(subject: Subject) -> bool:
    """Whether the GPU does nothing in many of the samples."""
    # A step that waits for data does not make a sample quiet: it is shorter than a sample, so the
    # sample still shows some work.
    quiet_share = subject.work.quiet_share
    return at_least(quiet_share, marks.QUIET_SHARE)


SWING = 50.0
"""The distance between the 5th and the 95th percentile of utilisation, in percentage points: half
of the scale."""


@Sign
def swings(subject: Subject) -> bool:
    """Whether the GPU's utilisation varies widely between samples."""
    distance = subject.work.utilization_apart
    return at_least(distance, SWING)


gaps = often_quiet | swings
"""The GPU is quiet in many samples, or its utilisation swings."""

# --- the GPU's memory -----------------------------------------------------------------------------


@Sign
def memory_high(subject: Subject) -> bool:
    """Whether the GPU's memory is at least 90 % full, which leaves little room."""
    # The acceleration guide's range for memory ends at 90 %.
    memory_share = subject.gpu.memory.p95
    return at_least(memory_share, marks.MEMORY_HIGH)


@Sign
def memory_full(subject: Subject) -> bool:
    """Whether the GPU's memory is so full that a longer sequence or a library's workspace no longer
    fits."""
    # The 95th percentile is used, so that the peak of a single sample decides nothing.
    memory_share = subject.gpu.memory.p95
    return at_least(memory_share, marks.MEMORY_TIGHT)


@Sign
def memory_used_up(subject: Subject) -> bool:
    """Whether the GPU's memory is so full that the next allocation may fail."""
    # With so little memory left, torch's allocator frees and allocates again in each step, which
    # shows as waiting.
    memory_share = subject.gpu.memory.p95
    return at_least(memory_share, marks.MEMORY_FULL)


@Sign
def memory_fell(subject: Subject) -> bool:
    """Whether the GPU's memory was full and then suddenly nearly empty, as if its process ran out
    of memory."""
    # When a process runs out of memory and ends, its memory is freed at once.
    memory = subject.gpu.memory
    return memory.fell


@Sign
def memory_grew(subject: Subject) -> bool:
    """Whether the GPU's memory use grew throughout the run."""
    # A step that keeps tensors causes this, whereas a longer sequence makes memory grow only once.
    memory = subject.gpu.memory
    return memory.grew


@Sign
def peak_high(subject: Subject) -> bool:
    """Whether the GPU's memory was at least 90 % full at its peak."""
    return subject.gpu.memory.peak >= marks.MEMORY_HIGH


@Sign
def held_by_others(subject: Subject) -> bool:
    """Whether a program outside the job uses much of the GPU's memory."""
    return len(subject.run.foreign_holders(subject.gpu)) > 0


@Sign
def several_holders(subject: Subject) -> bool:
    """Whether several processes use much of the GPU's memory, while no command shows which of them
    is the job."""
    return subject.run.command is None and len(subject.gpu.big_holders) > 1


@Sign
def shared_by_programs(subject: Subject) -> bool:
    """Whether several processes that use much of the GPU's memory may compute on it, while no
    command shows which of them is the job."""
    return subject.run.command is None and len(subject.gpu.sharers) > 1


@Sign
def full_at_the_end(subject: Subject) -> bool:
    """Whether the GPU's memory was full at the end. If the command ended with an error, nearly full
    is enough."""
    ended_with_error = bool(subject.run.exit)
    # Without a known error, nearly full memory says nothing about how the run ended.
    mark = marks.MEMORY_TIGHT if ended_with_error else marks.MEMORY_FULL
    last_share = subject.gpu.memory.last
    return at_least(last_share, mark)


def of_others(
    moment: Moment, figure: Callable[[ProcessUse], float | None], unknown: float
) -> float:
    """The sum of a figure, such as memory, over the processes on a GPU at one moment that do not
    belong to the command; 0 if the command's processes were not counted.

    If the GPU has more processes than the command has on GPUs, the surplus belongs to other
    programs; we assume that these are the smallest. `unknown` replaces a figure that is not
    reported.
    """
    computing = [use for use in moment.gpu.processes or () if not is_display(use)]
    sizes: list[float] = []
    for use in computing:
        size = figure(use)
        sizes.append(unknown if size is None else size)
    command_count = moment.tree.gpu_processes if moment.tree else None
    # If the command's processes were not counted, all of them may belong to it.
    if not command_count:
        return 0
    # It is unknown which processes belong to the command. We assume that the smallest do not, so
    # that the result is never too high.
    foreign_count = max(0, len(computing) - command_count)
    smallest_first = sorted(sizes)
    return sum(smallest_first[:foreign_count])


@Sign
def shared_with_others(subject: Subject) -> bool:
    """Whether processes outside the command use part of the GPU's memory."""
    last = subject.work.rows[-1]
    memory_bytes = last.gpu.memory_total_bytes
    # Assume that a process with unknown memory may use all of the GPU's memory.
    used_bytes = of_others(last, lambda use: use.memory_bytes, float("inf"))
    foreign_share = percent(used_bytes, memory_bytes)
    return at_least(foreign_share, marks.HELD_MEMORY)


@Sign
def used_by_others(subject: Subject) -> bool:
    """Whether processes outside the command compute on the GPU much of the time."""
    shares = []
    for moment in subject.work.running:
        # A process with an unknown share is assumed to compute nothing.
        shares.append(of_others(moment, lambda use: use.sm_percent, 0.0))
    return at_least(mean(shares), marks.USE_DIFFERENCE)


# --- what slows it down ---------------------------------------------------------------------------


def held_down_by(cause: str) -> Sign:
    """A sign that the clocks are throttled for this cause (a cause in `throttling.py`)."""

    def is_held_down(subject: Subject) -> bool:
        throttle = subject.throttle
        # There is no throttle reason, or only reasons that cost this card no speed.
        if throttle is None:
            return False
        return throttle.cause == cause

    return Sign(is_held_down)


AT_THE_LIMIT = marks.RATED_POWER - marks.THROTTLED_SHARE
"""In percent of the power limit; a card that draws more counts as being at its limit."""


@Sign
def unexplained(subject: Subject) -> bool:
    """Whether there is no known reason for low clocks: no throttle reason is reported, and the GPU
    is not near its power limit."""
    # Ignore the reason `gpu_idle`, which explains low clocks only while nothing runs.
    reasons = subject.work.reasons.keys() - {"gpu_idle"}
    # A card at its power limit lowers its clocks, but some drivers do not report that reason.
    power_share = or_zero(subject.work.power_share)
    at_its_limit = power_share >= AT_THE_LIMIT
    return not (reasons or at_its_limit or subject.throttle)


@Sign
def power_known(subject: Subject) -> bool:
    """Whether the GPU's power draw and power limit are known."""
    # Laptops and virtual GPUs do not report them.
    power_share = subject.work.power_share
    return power_share is not None


@Sign
def clocks_below_rated(subject: Subject) -> bool:
    """Whether the GPU's clock is below 60 % of its maximum."""
    # Heavy work at the rated power limit also lowers the clock, but not as far.
    clock_share = subject.work.clock_share
    return below(clock_share, marks.RATED_CLOCKS)


@Sign
def slower_than_siblings(subject: Subject) -> bool:
    """Whether the GPU's clock is far below that of equally busy cards of the same model."""
    siblings_clock = subject.run.siblings_clock(subject.gpu)
    return is_slower(subject.work, siblings_clock)


clocks_far_down = ((clocks_below_rated & power_known) | slower_than_siblings) & unexplained
"""The clock is far below its maximum with power left, or far below that of cards of the same model,
and no reason is reported."""


@Sign
def only_now_and_then(subject: Subject) -> bool:
    """Whether the clocks were throttled in less than half of the samples with work."""
    throttle_share = subject.throttle_share
    # If the clocks are throttled this rarely, waiting costs more than the lower clocks do.
    return throttle_share < marks.POWER_CAPPED_SHARE


@Sign
def laptop(subject: Subject) -> bool:
    """Whether this is the GPU of a laptop, judged by its name."""
    # The distinction matters because a laptop GPU's power depends on the charger, and because its
    # limit cannot be raised.
    name = subject.gpu.name
    return is_laptop(name)


# --- several GPUs and the links between them ------------------------------------------------------


@Sign
def several(subject: Subject) -> bool:
    """Whether several GPUs work on the job, either on this machine or, according to its launcher
    options, on several machines."""
    works_together_here = subject.together >= 2
    # Several machines are enough, because the job may use only one GPU of each machine.
    spans_machines = subject.run.nodes >= 2
    return works_together_here or spans_machines


@Sign
def beside_a_resting_one(subject: Subject) -> bool:
    """Whether at least one GPU has a process on it but did no work."""
    run = subject.run
    held_gpus = [gpu for gpu in run.gpus if run.held(gpu)]
    # A rank that has stopped computing still has memory on its GPU.
    return not all(map(worked, held_gpus))


@Sign
def alike(subject: Subject) -> bool:
    """Whether all GPUs that may belong to the job behave alike: same model, and similar
    utilisation, power and memory."""
    team = subject.run.team(subject.gpu)
    return subject.run.alike(team)


@Sign
def launched(subject: Subject) -> bool:
    """Whether a launcher started the command's ranks, or several of its processes use GPUs."""
    # Either the command line or the number of processes on GPUs can show several ranks.
    return subject.run.launched


@Sign
def nvlink_carries(subject: Subject) -> bool:
    """Whether NVLink transfers a lot of data between the GPUs."""
    # The rate counts both directions. A large model's gradients reach it, a small model's do not.
    rate = subject.work.link_rate
    return at_least(rate, marks.NVLINK_RATE)


PCIE_SHARE_MUCH = 30.0
"""The traffic of both directions, in percent of what the link can carry in one direction. A narrow
link is full early."""


@Sign
def pcie_carries(subject: Subject) -> bool:
    """Whether PCIe transfers more than batches of data need, or a large part of what the link can
    carry."""
    work = subject.work
    carries_much = at_least(work.pcie_rate, marks.PCIE_RATE)
    # On a link with few lanes, even a lower rate is a lot.
    fills_its_link = at_least(work.pcie_share, PCIE_SHARE_MUCH)
    return carries_much or fills_its_link


FULL_POWER = 50.0
"""Power draw above idle, in percent of the power limit. Kernels that compute all the time draw
more."""


links_carry = nvlink_carries | pcie_carries
"""NVLink or PCIe transfers a lot of data."""


@Sign
def links_rule(subject: Subject) -> bool:
    """Whether NVLink or PCIe transfers a lot while the GPU draws little power, so that its kernels
    wait for data."""
    power_at_work = subject.weight
    # If the GPU draws full power, the exchange overlaps with computing and costs nothing.
    draws_less = below(power_at_work, FULL_POWER)
    return links_carry(subject) and draws_less


LINK_FULL = 70.0
"""The share of a link's capacity in one direction, in percent, above which the link counts as full;
packet headers and gaps take the rest."""


@Sign
def link_full(subject: Subject) -> bool:
    """Whether the GPU's PCIe link carries nearly as much as it can in one direction."""
    work = subject.work
    # If the link's limit is unknown, as in a dmon log, judge by the rate alone.
    if work.pcie_limit is None:
        return looks_full(work.pcie_fuller_rate)
    return at_least(work.pcie_one_way_share, LINK_FULL)


NARROW_LINK = 4
"""A link is narrow if it uses at most one lane in this many. Slots wired with half of the lanes are
normal; with a quarter or fewer, the card is in the wrong slot or in a bad riser, or has a bad
contact."""


@Sign
def narrow_link(subject: Subject) -> bool:
    """Whether the GPU's PCIe link uses a quarter of its lanes or fewer while the GPU works."""
    # Only samples at work count, because an idle link drops to a lower generation and, on a few
    # cards, to fewer lanes, to save power.
    lanes = subject.gpu.lanes
    most_lanes = subject.gpu.latest.pcie_width_max
    if not lanes or not most_lanes:
        return False
    return lanes * NARROW_LINK <= most_lanes


@Sign
def lacks_lanes(subject: Subject) -> bool:
    """Whether the GPU's PCIe link uses fewer lanes than the card supports."""
    lanes = subject.gpu.lanes
    most_lanes = subject.gpu.latest.pcie_width_max
    return bool(lanes) and below(lanes, most_lanes or 0)


SLOW_LINK = 8e9
"""A slower link counts as slow, in bytes per second. Four lanes of PCIe 4 or eight of PCIe 3 carry
7.9e9 in one direction."""


@Sign
def slow_link(subject: Subject) -> bool:
    """Whether the GPU's PCIe link carries no more than four lanes of PCIe 4 or eight of PCIe 3;
    false if its speed is unknown."""
    limit = subject.gpu.link_limit
    # A value of 0 means that nothing is known about the link.
    is_known = limit >= 1.0
    return is_known and limit < SLOW_LINK
