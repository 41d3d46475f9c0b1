"""What can be seen in a run: questions with a yes or no, by the marks of `marks.py`. Pure.

A sign is seen or not seen; what no source told is not seen, so that a verdict that needs it is not
given. Verdicts and steps are expressions of signs: `watched & partly & ~server`.
"""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.brakes import is_laptop
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.seen import Seen, Sign, below, least, useful_workers
from gpusetup.monitor.work import Moment, mean, percent

# --- the GPU --------------------------------------------------------------------------------------


@Sign
def busy(s: Seen) -> bool:
    """Utilisation is near 100 %."""
    return s.work.utilization >= marks.BUSY


@Sign
def mostly_waits(s: Seen) -> bool:
    """It works less than half of the time."""
    return s.work.utilization < marks.LOW


@Sign
def spins(s: Seen) -> bool:
    """Utilisation as of a waiting collective."""
    return s.work.utilization >= marks.SPINS


@Sign
def gaps(s: Seen) -> bool:
    """It is quiet again and again."""
    apart = s.work.utilization_p95 - s.work.utilization_p5 >= 2 * marks.APART
    return s.work.quiet_share >= marks.GAPS or apart


@Sign
def light(s: Seen) -> bool:
    """The kernels draw little power while they run."""
    return below(s.weight, marks.LIGHT) and not memory_bus_full(s)


@Sign
def no_memory_traffic(s: Seen) -> bool:
    """Its memory is hardly touched."""
    return below(s.work.memory_busy, marks.QUIET)


@Sign
def memory_bus_full(s: Seen) -> bool:
    """Its memory is busy."""
    return least(s.work.memory_busy, marks.MEMORY_BUS)


@Sign
def pauses_rule(s: Seen) -> bool:
    """Pauses take more than a fifth of the run."""
    return s.gpu.parts.pause_share > marks.WAITS


# --- its memory -----------------------------------------------------------------------------------


@Sign
def memory_full(s: Seen) -> bool:
    """Nearly all of its memory is in use."""
    return least(s.gpu.memory.p95, marks.MEMORY_TIGHT)


@Sign
def full_at_the_end(s: Seen) -> bool:
    """Memory was full when it ended with an error."""
    mark = marks.MEMORY_TIGHT if s.run.exit else marks.MEMORY_FULL
    return least(s.gpu.memory.last, mark)


@Sign
def memory_used_up(s: Seen) -> bool:
    """What is left of its memory is too little for another allocation."""
    return least(s.gpu.memory.p95, marks.MEMORY_FULL)


def of_others(row: Moment, field: str, untold: float) -> float:
    """At least so much of a GPU others have: if more processes are on it than the command has on
    GPUs, the smallest of them are somebody else's."""
    each = [getattr(one, field) for one in row.gpu.processes or () if not is_display(one)]
    ours = (row.tree and row.tree.gpu_processes) or len(each)
    sizes = sorted(untold if one is None else float(one) for one in each)
    return sum(sizes[: max(0, len(each) - ours)])


@Sign
def shared_with_others(s: Seen) -> bool:
    """Others hold a part of its memory."""
    last = s.work.rows[-1]
    held = of_others(last, "memory_bytes", float("inf"))
    return least(percent(held, last.gpu.memory_total_bytes), marks.HELD)


@Sign
def used_by_others(s: Seen) -> bool:
    """Others compute on it."""
    return least(mean(of_others(row, "sm_percent", 0.0) for row in s.work.running), marks.APART)


@Sign
def memory_fell(s: Seen) -> bool:
    """Memory fell from full to nothing."""
    return s.gpu.memory.fell


@Sign
def memory_grew(s: Seen) -> bool:
    """Memory grew all the time."""
    return s.gpu.memory.grew


@Sign
def memory_high(s: Seen) -> bool:
    """Memory leaves no room for more work."""
    return least(s.gpu.memory.p95, marks.MEMORY_HIGH)


# --- what holds it down ---------------------------------------------------------------------------


def held_down_by(cause: str) -> Sign:
    """A brake of `brakes.py` is on, for this cause."""
    return Sign(lambda s: s.brake is not None and s.brake.cause == cause)


@Sign
def laptop(s: Seen) -> bool:
    """It is a laptop's."""
    return is_laptop(s.gpu.name)


@Sign
def unexplained(s: Seen) -> bool:
    """No reason was told for its clocks, and it is not at its power limit."""
    at_its_limit = (s.work.power_share or 0.0) >= marks.RATED - marks.SLOWED
    return not (set(s.work.reasons) - {"gpu_idle"} or at_its_limit or s.brake)


@Sign
def clocks_far_down(s: Seen) -> bool:
    """Its clock is far below its maximum, with power left, and nothing tells why."""
    low = below(s.work.clock_share, marks.FAST_ENOUGH)
    return low and s.work.power_share is not None and unexplained(s)


@Sign
def only_now_and_then(s: Seen) -> bool:
    """What holds it down is on less than half of the time."""
    return s.brake_share < marks.CAPPED


# --- the command's processes ----------------------------------------------------------------------


@Sign
def watched(s: Seen) -> bool:
    """The command's processes were watched."""
    return s.work.busiest_cpu is not None


@Sign
def core_full(s: Seen) -> bool:
    """Its main process fills a core."""
    return least(s.work.busiest_cpu, marks.CORE_FULL)


@Sign
def workers(s: Seen) -> bool:
    """There are loader workers."""
    return s.work.workers >= 0.5


@Sign
def workers_full(s: Seen) -> bool:
    """Loader workers compute without rest."""
    return least(s.work.worker_cpu, marks.WORKER_FULL)


@Sign
def enough_workers(s: Seen) -> bool:
    """There are as many loader workers as can be of use."""
    return s.work.workers >= useful_workers(s.run) * s.together


@Sign
def helpers(s: Seen) -> bool:
    """Other processes of the command compute."""
    return least(s.work.helpers_cpu, marks.HELPERS)


@Sign
def cores_used_up(s: Seen) -> bool:
    """The command uses all the CPU that it may."""
    full = s.cores is not None and least(s.work.cpu, s.cores * marks.USED_UP)
    return full or held_back(s)


@Sign
def held_back(s: Seen) -> bool:
    """Its CPU quota holds it back."""
    return least(s.work.held_back, marks.HELD_BACK)


@Sign
def machine_full(s: Seen) -> bool:
    """The machine's CPU is used up."""
    return least(s.work.host_share, marks.USED_UP)


@Sign
def others_full(s: Seen) -> bool:
    """Others use the machine's CPU, and none is left."""
    cores, host = s.run.host_cores, s.work.host_cpu
    if not cores or host is None:
        return False
    others = host - (s.work.cpu or 0.0)
    return host >= cores * marks.HOST_FULL and others >= cores * marks.OTHERS


@Sign
def reads(s: Seen) -> bool:
    """It reads from the disk."""
    return least(s.work.read_rate, marks.READS)


@Sign
def nothing_comes_in(s: Seen) -> bool:
    """Neither the process nor the card receives data that a loader could be behind with."""
    little = below(s.work.input_rate, marks.READS) and below(s.work.pcie_in, marks.READS)
    return little and s.kind != "simulation"


@Sign
def blocked(s: Seen) -> bool:
    """Processes wait for a disk."""
    return least(s.work.blocked, marks.BLOCKED)


@Sign
def receives(s: Seen) -> bool:
    """Data come over the network."""
    return least(s.work.network_rate, marks.NETWORK)


@Sign
def over_the_network(s: Seen) -> bool:
    """As much comes over the network as reading needs, and less than half of it from a disk."""
    disk = s.work.read_rate if s.work.disk_read_rate is None else s.work.disk_read_rate
    return receives(s) and (disk or 0.0) < (s.work.network_rate or 0.0) / 2


@Sign
def swaps(s: Seen) -> bool:
    """The machine's memory is full, and it reads from and writes to its disk."""
    rates = (s.work.disk_read_rate, s.work.disk_write_rate)
    full = least(s.run.host_memory, marks.MEMORY_TIGHT)
    return full and all(least(rate, marks.READS) for rate in rates)


@Sign
def computes_in_pauses(s: Seen) -> bool:
    """The CPU computes in the pauses."""
    paused = s.gpu.parts.paused
    return paused is not None and least(paused.busiest_cpu, marks.CORE_FULL)


@Sign
def writes_in_pauses(s: Seen) -> bool:
    """Much is written in the pauses."""
    paused = s.gpu.parts.paused
    return paused is not None and least(paused.write_rate, marks.WRITES)


# --- several GPUs and what lies between -----------------------------------------------------------


@Sign
def several(s: Seen) -> bool:
    """Several GPUs work on one job: here, or on other machines, as its launcher says."""
    return s.together > 1 or s.run.nodes > 1


@Sign
def links_rule(s: Seen) -> bool:
    """Its links carry much, and it draws less than full power: kernels that wait for data still
    draw."""
    return links_carry(s) and below(s.weight, marks.LIGHT_MOST)


@Sign
def slow_link(s: Seen) -> bool:
    """Its PCIe link carries little."""
    return 0 < s.gpu.link_limit < marks.SLOW_LINK


@Sign
def link_full(s: Seen) -> bool:
    """Its PCIe link carries nearly all that it can, one way."""
    most = max(s.work.pcie_in or 0.0, s.work.pcie_out or 0.0)
    return least(percent(most, s.work.pcie_limit), marks.LINK_FULL)


@Sign
def links_carry(s: Seen) -> bool:
    """The links carry much."""
    full = least(s.work.link_rate, marks.LINK) or least(s.work.pcie_rate, marks.PCIE)
    return full or least(s.work.pcie_share, 30)


@Sign
def without_nccl(s: Seen) -> bool:
    """Several ranks, and no thread of NCCL."""
    return (s.run.ranks or 0) > 1 and s.run.collective_threads == 0


@Sign
def collectives(s: Seen) -> bool:
    """Threads of NCCL, or ranks."""
    return bool(s.run.collective_threads) or s.run.launched


# --- what kind of program it is -------------------------------------------------------------------


def of_kind(*kinds: str) -> Sign:
    return Sign(lambda s: s.kind in kinds)


server, notebook = of_kind("server"), of_kind("notebook")
physics = of_kind("physics")
no_training = of_kind("server", "notebook", "physics", "inference")
no_loader = of_kind("server", "notebook", "physics")


@Sign
def failed(s: Seen) -> bool:
    """The command ended with an error."""
    return bool(s.run.exit)
