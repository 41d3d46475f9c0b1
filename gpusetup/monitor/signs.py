"""What can be seen in a run: questions with a yes or no about one GPU in it. Pure.

Verdicts and steps are expressions of signs: `watched & partly & ~server`. Marks that serve one
sign stand in it, the others in `marks.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.monitor import marks
from gpusetup.monitor.documents import ProcessUse
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.run import useful_workers, worked
from gpusetup.monitor.seen import Seen, Sign, at_least, below
from gpusetup.monitor.throttling import is_laptop
from gpusetup.monitor.work import Moment, mean, percent

# --- the GPU --------------------------------------------------------------------------------------


@Sign
def busy(seen: Seen) -> bool:
    """Its utilisation is near 100 %."""
    return at_least(seen.work.utilization, marks.BUSY)


@Sign
def mostly_waits(seen: Seen) -> bool:
    """It works less than half of the time."""
    return below(seen.work.utilization, marks.LOW)


@Sign
def spins(seen: Seen) -> bool:
    """Its utilisation is as high as that of a card that waits in a collective."""
    return at_least(seen.work.utilization, marks.SPINNING_USE)


@Sign
def no_memory_traffic(seen: Seen) -> bool:
    """Its memory is neither read nor written."""
    return below(seen.work.memory_busy, marks.QUIET)


@Sign
def memory_bus_full(seen: Seen) -> bool:
    """Its memory is read or written nearly all the time."""
    return at_least(seen.work.memory_busy, 70.0)


@Sign
def draws_little(seen: Seen) -> bool:
    """The kernels draw little power while they run."""
    return below(seen.weight, marks.LIGHT_POWER)


light = draws_little & ~memory_bus_full
"""The kernels draw little power, and it is not the memory that they wait for."""


@Sign
def pauses_rule(seen: Seen) -> bool:
    """Pauses take much of the time between its first and its last work."""
    return seen.gpu.parts.pause_share >= marks.PAUSE_SHARE


@Sign
def often_quiet(seen: Seen) -> bool:
    """It does nothing in many samples."""
    return at_least(seen.work.quiet_share, marks.QUIET_SHARE)


@Sign
def swings(seen: Seen) -> bool:
    """Its utilisation is high at one time and low at another."""
    return at_least(seen.work.utilization_apart, 50.0)


gaps = often_quiet | swings
"""It is quiet again and again."""

# --- its memory -----------------------------------------------------------------------------------


@Sign
def memory_high(seen: Seen) -> bool:
    """Its memory has little room left."""
    return at_least(seen.gpu.memory.p95, marks.MEMORY_HIGH)


@Sign
def memory_full(seen: Seen) -> bool:
    """A longer sequence or a library's workspace would not fit into its memory."""
    return at_least(seen.gpu.memory.p95, marks.MEMORY_TIGHT)


@Sign
def memory_used_up(seen: Seen) -> bool:
    """What is left of its memory is too little for another allocation."""
    return at_least(seen.gpu.memory.p95, marks.MEMORY_FULL)


@Sign
def memory_fell(seen: Seen) -> bool:
    """Its memory was full and then nearly empty."""
    return seen.gpu.memory.fell


@Sign
def memory_grew(seen: Seen) -> bool:
    """Its memory grew all the time."""
    return seen.gpu.memory.grew


@Sign
def full_at_the_end(seen: Seen) -> bool:
    """Its memory was full when the command ended with an error."""
    mark = marks.MEMORY_TIGHT if seen.run.exit else marks.MEMORY_FULL
    return at_least(seen.gpu.memory.last, mark)


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
    ours = moment.tree.gpu_processes if moment.tree else None
    count_of_others = len(computing) - (ours or len(computing))
    return sum(sorted(sizes)[: max(0, count_of_others)])


@Sign
def shared_with_others(seen: Seen) -> bool:
    """Others hold a part of its memory."""
    last = seen.work.rows[-1]
    # A process whose memory is not told may hold all of it.
    used_bytes = of_others(last, lambda use: use.memory_bytes, float("inf"))
    return at_least(percent(used_bytes, last.gpu.memory_total_bytes), marks.HELD_MEMORY)


@Sign
def used_by_others(seen: Seen) -> bool:
    """Others compute on it."""
    shares = [of_others(moment, lambda use: use.sm_percent, 0.0) for moment in seen.work.running]
    return at_least(mean(shares), marks.USE_DIFFERENCE)


# --- what holds it down ---------------------------------------------------------------------------


def held_down_by(cause: str) -> Sign:
    """A throttle of `throttling.py` is on, for this cause."""
    return Sign(lambda seen: seen.throttle is not None and seen.throttle.cause == cause)


@Sign
def unexplained(seen: Seen) -> bool:
    """No reason was told for its clocks, and it is not at its power limit."""
    reasons = seen.work.reasons.keys() - {"gpu_idle"}
    power_share = seen.work.power_share or 0.0
    at_its_limit = power_share >= marks.RATED_POWER - marks.THROTTLED_SHARE
    return not (reasons or at_its_limit or seen.throttle)


@Sign
def power_known(seen: Seen) -> bool:
    """Its power and its limit are told."""
    return seen.work.power_share is not None


@Sign
def clocks_below_rated(seen: Seen) -> bool:
    """Its clock is far below its maximum."""
    return below(seen.work.clock_share, marks.RATED_CLOCKS)


clocks_far_down = clocks_below_rated & power_known & unexplained
"""Its clock is far below its maximum, with power left, and nothing tells why."""


@Sign
def only_now_and_then(seen: Seen) -> bool:
    """What holds it down is on less than half of the time."""
    return seen.throttle_share < marks.POWER_CAPPED_SHARE


@Sign
def laptop(seen: Seen) -> bool:
    """It is the GPU of a laptop."""
    return is_laptop(seen.gpu.name)


# --- the command's processes ----------------------------------------------------------------------


@Sign
def watched(seen: Seen) -> bool:
    """The processes of the command were watched too."""
    return seen.work.busiest_cpu is not None


@Sign
def core_full(seen: Seen) -> bool:
    """Its main process fills a core."""
    return at_least(seen.work.busiest_cpu, marks.CORE_FULL)


@Sign
def workers(seen: Seen) -> bool:
    """There are loader workers."""
    return seen.work.workers >= 0.5


@Sign
def workers_full(seen: Seen) -> bool:
    """Its loader workers compute without rest."""
    return at_least(seen.work.worker_cpu, 75.0)


@Sign
def helpers(seen: Seen) -> bool:
    """Other processes of the command compute."""
    return at_least(seen.work.helpers_cpu, marks.HELPER_CPU)


@Sign
def cores_used_up(seen: Seen) -> bool:
    """The command uses all the CPU that it may, by its affinity and its quota."""
    return at_least(seen.cpu_share, marks.CPU_USED_UP)


@Sign
def fewer_cores(seen: Seen) -> bool:
    """A quota or an affinity gives the command fewer cores than the machine has."""
    return (seen.run.cores or 0) < (seen.run.host_cores or 0)


@Sign
def machine_full(seen: Seen) -> bool:
    """The machine's CPU is used up, by whomever."""
    return at_least(seen.work.host_share, marks.CPU_USED_UP)


@Sign
def others_full(seen: Seen) -> bool:
    """Others use the machine's CPU, and none is left."""
    return at_least(seen.work.host_share, 90.0) and at_least(seen.others_share, 30.0)


@Sign
def reads(seen: Seen) -> bool:
    """It reads more from the disk than code and logs need."""
    return at_least(seen.work.read_rate, marks.READ_RATE)


@Sign
def blocked(seen: Seen) -> bool:
    """Its processes wait for a disk."""
    return at_least(seen.work.blocked, 0.5)


@Sign
def receives(seen: Seen) -> bool:
    """More comes over the network than logs and metrics."""
    return at_least(seen.work.network_rate, marks.NETWORK_RATE)


@Sign
def swaps(seen: Seen) -> bool:
    """The machine's memory is full, and its disks read and write."""
    memory_full = at_least(seen.run.host_memory, marks.MEMORY_TIGHT)
    disk_reads = at_least(seen.work.disk_read_rate, marks.READ_RATE)
    disk_writes = at_least(seen.work.disk_write_rate, marks.READ_RATE)
    return memory_full and disk_reads and disk_writes


@Sign
def computes_in_pauses(seen: Seen) -> bool:
    """Its main process fills a core while the GPU pauses."""
    paused = seen.gpu.parts.paused
    return paused is not None and at_least(paused.busiest_cpu, marks.CORE_FULL)


@Sign
def writes_in_pauses(seen: Seen) -> bool:
    """It writes as for a checkpoint while the GPU pauses."""
    paused = seen.gpu.parts.paused
    return paused is not None and at_least(paused.write_rate, marks.WRITE_RATE)


@Sign
def failed(seen: Seen) -> bool:
    """The command ended with an error."""
    return bool(seen.run.exit)


@Sign
def enough_workers(seen: Seen) -> bool:
    """There are as many loader workers as can be of use."""
    return seen.work.workers >= useful_workers(seen.run) * seen.together


@Sign
def over_the_network(seen: Seen) -> bool:
    """As much comes over the network as reading needs, and less than half of it from a disk."""
    disk_rate = seen.work.disk_read_rate
    if disk_rate is None:
        disk_rate = seen.work.read_rate
    return receives(seen) and (disk_rate or 0.0) < (seen.work.network_rate or 0.0) / 2


# --- several GPUs and what lies between -----------------------------------------------------------


@Sign
def several(seen: Seen) -> bool:
    """Several GPUs work on one job: here, or on other machines, as its launcher says."""
    return seen.together >= 2 or seen.run.nodes >= 2


@Sign
def beside_a_resting_one(seen: Seen) -> bool:
    """Another GPU's memory is held, and nothing ran there."""
    return any(seen.run.held(gpu) and not worked(gpu) for gpu in seen.run.gpus)


@Sign
def launched(seen: Seen) -> bool:
    """A launcher started its ranks."""
    return seen.run.launched


@Sign
def links_carry(seen: Seen) -> bool:
    """NVLink or PCIe carries much."""
    work = seen.work
    return (
        at_least(work.link_rate, marks.NVLINK_RATE)
        or at_least(work.pcie_rate, marks.PCIE_RATE)
        or at_least(work.pcie_share, 30.0)
    )


@Sign
def links_rule(seen: Seen) -> bool:
    """Its links carry much while it draws less than full power, as kernels that wait for data do."""
    return links_carry(seen) and below(seen.weight, 50.0)


@Sign
def link_full(seen: Seen) -> bool:
    """Its PCIe link carries nearly all that it can, one way."""
    return at_least(seen.work.pcie_one_way_share, 70.0)


@Sign
def slow_link(seen: Seen) -> bool:
    """Its PCIe link has the speed of four lanes of PCIe 4, eight of PCIe 3, or less."""
    return 1.0 <= seen.gpu.link_limit < 8e9


# --- what kind of program it is -------------------------------------------------------------------


def of_kind(*kinds: str) -> Sign:
    """The program is of one of these kinds (`programs.py`)."""
    return Sign(lambda seen: seen.kind in kinds)


server = of_kind("server")
notebook = of_kind("notebook")
physics = of_kind("physics")
simulation = of_kind("simulation")
training = of_kind("training", "")
no_loader = server | notebook | physics
"""Programs that have no data loader."""
no_training = no_loader | of_kind("inference")


@Sign
def reads_nothing(seen: Seen) -> bool:
    """The process reads hardly anything, not even from the page cache."""
    return below(seen.work.input_rate, marks.READ_RATE)


@Sign
def copies_nothing(seen: Seen) -> bool:
    """Hardly anything is copied to the card."""
    return below(seen.work.pcie_in, marks.READ_RATE)


nothing_comes_in = reads_nothing & copies_nothing & ~simulation
"""Neither the process nor the card receives data that a loader could be behind with."""
