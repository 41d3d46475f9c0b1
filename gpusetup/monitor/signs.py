"""What can be seen of a GPU in a run, and of what lies between GPUs. Pure.

A sign is a question with a yes or no; verdicts and steps are expressions of signs:
`watched & partly & ~server`. Marks that serve one sign stand in it, the others in `marks.py`. What
is seen of the command is in `command_signs.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.monitor import marks
from gpusetup.monitor.documents import ProcessUse
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.run import worked
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.throttling import is_laptop
from gpusetup.monitor.work import Moment, at_least, below, mean, or_zero, percent

# --- the GPU --------------------------------------------------------------------------------------


@Sign
def busy(subject: Subject) -> bool:
    """Its utilisation is near 100 %."""
    return at_least(subject.work.utilization, marks.BUSY)


@Sign
def mostly_waits(subject: Subject) -> bool:
    """It works less than half of the time."""
    return below(subject.work.utilization, marks.LOW)


@Sign
def spins(subject: Subject) -> bool:
    """Its utilisation is as high as that of a card that waits in a collective."""
    return at_least(subject.work.utilization, marks.SPINNING_USE)


@Sign
def no_memory_traffic(subject: Subject) -> bool:
    """Its memory is neither read nor written."""
    return below(subject.work.memory_busy, marks.QUIET)


@Sign
def memory_bus_full(subject: Subject) -> bool:
    """Its memory is read or written nearly all the time."""
    return at_least(subject.work.memory_busy, 70.0)


@Sign
def draws_little(subject: Subject) -> bool:
    """The kernels draw little power while they run."""
    return below(subject.weight, marks.LIGHT_POWER)


light = draws_little & ~memory_bus_full
"""The kernels draw little power, and it is not the memory that they wait for."""


@Sign
def pauses_rule(subject: Subject) -> bool:
    """Pauses take much of the time between its first and its last work."""
    return subject.gpu.parts.pause_share >= marks.PAUSE_SHARE


@Sign
def often_quiet(subject: Subject) -> bool:
    """It does nothing in many samples."""
    return at_least(subject.work.quiet_share, marks.QUIET_SHARE)


@Sign
def swings(subject: Subject) -> bool:
    """Its utilisation is high at one time and low at another."""
    return at_least(subject.work.utilization_apart, 50.0)


gaps = often_quiet | swings
"""It is quiet again and again."""

# --- its memory -----------------------------------------------------------------------------------


@Sign
def memory_high(subject: Subject) -> bool:
    """Its memory has little room left."""
    return at_least(subject.gpu.memory.p95, marks.MEMORY_HIGH)


@Sign
def memory_full(subject: Subject) -> bool:
    """A longer sequence or a library's workspace would not fit into its memory."""
    return at_least(subject.gpu.memory.p95, marks.MEMORY_TIGHT)


@Sign
def memory_used_up(subject: Subject) -> bool:
    """What is left of its memory is too little for another allocation."""
    return at_least(subject.gpu.memory.p95, marks.MEMORY_FULL)


@Sign
def memory_fell(subject: Subject) -> bool:
    """Its memory was full and then nearly empty."""
    return subject.gpu.memory.fell


@Sign
def memory_grew(subject: Subject) -> bool:
    """Its memory grew all the time."""
    return subject.gpu.memory.grew


@Sign
def full_at_the_end(subject: Subject) -> bool:
    """Its memory was full when the command ended with an error."""
    mark = marks.MEMORY_TIGHT if subject.run.exit else marks.MEMORY_FULL
    return at_least(subject.gpu.memory.last, mark)


def of_others(
    moment: Moment, figure: Callable[[ProcessUse], float | None], unknown: float
) -> float:
    """At least so much of a GPU belongs to other people's processes at one moment.

    If more processes are on the GPU than the command has on GPUs, the smallest of them are somebody
    else's. `unknown` stands for a figure that is not told.
    """
    computing = [use for use in moment.gpu.processes or () if not is_display(use)]
    sizes: list[float] = []
    for use in computing:
        size = figure(use)
        sizes.append(unknown if size is None else size)
    command_count = moment.tree.gpu_processes if moment.tree else None
    # If nobody counted the command's processes, all of them may be its.
    if not command_count:
        return 0
    foreign_count = max(0, len(computing) - command_count)
    smallest_first = sorted(sizes)
    return sum(smallest_first[:foreign_count])


@Sign
def shared_with_others(subject: Subject) -> bool:
    """Others hold a part of its memory."""
    last = subject.work.rows[-1]
    # A process whose memory is not told may hold all of it.
    used_bytes = of_others(last, lambda use: use.memory_bytes, float("inf"))
    return at_least(percent(used_bytes, last.gpu.memory_total_bytes), marks.HELD_MEMORY)


@Sign
def used_by_others(subject: Subject) -> bool:
    """Others compute on it."""
    shares = []
    for moment in subject.work.running:
        # A process whose share is not told is taken for one that computes nothing.
        shares.append(of_others(moment, lambda use: use.sm_percent, 0.0))
    return at_least(mean(shares), marks.USE_DIFFERENCE)


# --- what holds it down ---------------------------------------------------------------------------


def held_down_by(cause: str) -> Sign:
    """A throttle of `throttling.py` is on, for this cause."""
    return Sign(lambda subject: subject.throttle is not None and subject.throttle.cause == cause)


AT_THE_LIMIT = marks.RATED_POWER - marks.THROTTLED_SHARE
"""Percent of the power limit from which a card counts as being at it."""


@Sign
def unexplained(subject: Subject) -> bool:
    """No reason was told for its clocks, and it is not at its power limit."""
    reasons = subject.work.reasons.keys() - {"gpu_idle"}
    power_share = or_zero(subject.work.power_share)
    at_its_limit = power_share >= AT_THE_LIMIT
    return not (reasons or at_its_limit or subject.throttle)


@Sign
def power_known(subject: Subject) -> bool:
    """Its power and its limit are told."""
    return subject.work.power_share is not None


@Sign
def clocks_below_rated(subject: Subject) -> bool:
    """Its clock is far below its maximum."""
    return below(subject.work.clock_share, marks.RATED_CLOCKS)


clocks_far_down = clocks_below_rated & power_known & unexplained
"""Its clock is far below its maximum, with power left, and nothing tells why."""


@Sign
def only_now_and_then(subject: Subject) -> bool:
    """What holds it down is on less than half of the time."""
    return subject.throttle_share < marks.POWER_CAPPED_SHARE


@Sign
def laptop(subject: Subject) -> bool:
    """It is the GPU of a laptop."""
    return is_laptop(subject.gpu.name)


# --- several GPUs and what lies between -----------------------------------------------------------


@Sign
def several(subject: Subject) -> bool:
    """Several GPUs work on one job: here, or on other machines, as its launcher says."""
    return subject.together >= 2 or subject.run.nodes >= 2


@Sign
def beside_a_resting_one(subject: Subject) -> bool:
    """Another GPU's memory is held, and nothing ran there."""
    run = subject.run
    return any(run.held(gpu) and not worked(gpu) for gpu in run.gpus)


@Sign
def launched(subject: Subject) -> bool:
    """A launcher started its ranks."""
    return subject.run.launched


@Sign
def nvlink_carries(subject: Subject) -> bool:
    """NVLink carries much of what GPUs exchange."""
    return at_least(subject.work.link_rate, marks.NVLINK_RATE)


@Sign
def pcie_carries(subject: Subject) -> bool:
    """PCIe carries more than batches of data, or much of what its link can."""
    work = subject.work
    return at_least(work.pcie_rate, marks.PCIE_RATE) or at_least(work.pcie_share, 30.0)


links_carry = nvlink_carries | pcie_carries
"""NVLink or PCIe carries much."""


@Sign
def links_rule(subject: Subject) -> bool:
    """Its links carry much, and it draws less than full power, as kernels that wait for data."""
    return links_carry(subject) and below(subject.weight, 50.0)


@Sign
def at_half_power(subject: Subject) -> bool:
    """It draws far less than full power while kernels run: they wait for data from elsewhere."""
    return below(subject.weight, marks.HALF_POWER)


@Sign
def network_full(subject: Subject) -> bool:
    """The network carries nearly all that it can, or what gradients between machines need."""
    rate = subject.work.network_rate
    is_full = at_least(percent(rate, subject.run.network_limit), marks.NETWORK_FULL)
    is_on_several_machines = subject.run.nodes >= 2
    return is_full or (is_on_several_machines and at_least(rate, marks.NETWORK_MUCH))


@Sign
def link_full(subject: Subject) -> bool:
    """Its PCIe link carries nearly all that it can, one way."""
    return at_least(subject.work.pcie_one_way_share, 70.0)


@Sign
def slow_link(subject: Subject) -> bool:
    """Its PCIe link has the speed of four lanes of PCIe 4, eight of PCIe 3, or less."""
    return 1.0 <= subject.gpu.link_limit < 8e9
