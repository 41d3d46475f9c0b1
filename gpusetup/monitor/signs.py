"""What can be seen in a run: questions with a yes or no about one GPU in it. Pure.

A sign is seen or not seen; what no source told is not seen, so that a verdict that needs it is not
given. Verdicts and steps are expressions of signs: `watched & partly & ~server`. Marks that serve
one sign stand in it, the others in `marks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter

from gpusetup.monitor import marks
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.run import Run, worked
from gpusetup.monitor.tally import Gpu
from gpusetup.monitor.throttling import Throttle, active_throttle, is_laptop
from gpusetup.monitor.work import Moment, Work, mean, percent


class Seen:
    """One GPU that worked, in its run."""

    def __init__(self, run: Run, gpu: Gpu, work: Work) -> None:
        self.run, self.gpu, self.work = run, gpu, work
        self.together = len(run.team(gpu))
        """How many GPUs work on the same job."""

    @cached_property
    def kind(self) -> str:
        return self.run.kind_on(self.gpu)

    @cached_property
    def throttle(self) -> Throttle | None:
        return active_throttle(self.work, self.gpu)

    @property
    def throttle_share(self) -> float:
        """Percent of the samples with work in which it was on."""
        return self.work.reasons.get(self.throttle.reason, 100.0) if self.throttle else 0.0

    @property
    def weight(self) -> float | None:
        """Power above that of a resting card, in percent, for the time with work."""
        share, used = self.work.power_share, self.work.utilization
        return None if share is None or not used else (share - marks.IDLE_POWER) / used * 100

    @property
    def cores(self) -> float | None:
        return self.run.cores or self.run.host_cores

    @property
    def others_cpu(self) -> float:
        """Percent of a core: the CPU that other processes of the machine use."""
        return (self.work.host_cpu or 0.0) - (self.work.cpu or 0.0)

    @property
    def others_share(self) -> float | None:
        """The same as a share of all cores."""
        return self.others_cpu / self.run.host_cores if self.run.host_cores else None

    @property
    def cpu_share(self) -> float | None:
        """The command's CPU as a share of the cores that it may use."""
        return self.work.cpu / self.cores if self.work.cpu is not None and self.cores else None

    @property
    def loaders(self) -> str:
        return loaders_in_words(self.work.workers)

    @property
    def moved(self) -> str:
        """The rates of each kind of link, for a sentence."""
        work = self.work
        rates = {"NVLink": work.link_rate, "PCIe": work.pcie_rate, "the network": work.network_rate}
        each = ((rate / 1e9, name) for name, rate in rates.items() if rate)
        return "".join(f", {rate:.1f} GB/s over {name}" for rate, name in each)

    @property
    def could_draw(self) -> float | None:
        """Watts: what the card is rated at, or can be set to, above its limit now."""
        card, rated = self.gpu.latest, self.gpu.power_default
        above = rated and (not card.power_limit_watts or rated > card.power_limit_watts)
        return rated if above else card.power_limit_max_watts or rated


class Sign:
    """A question about a GPU in its run."""

    def __init__(self, test: Callable[[Seen], object]) -> None:
        self.test = test

    def __call__(self, seen: Seen) -> bool:
        return bool(self.test(seen))

    def __and__(self, other: Sign) -> Sign:
        return Sign(lambda seen: self(seen) and other(seen))

    def __or__(self, other: Sign) -> Sign:
        return Sign(lambda seen: self(seen) or other(seen))

    def __invert__(self) -> Sign:
        return Sign(lambda seen: not self(seen))


def at_least(value: float | None, mark: float) -> bool:
    return value is not None and value >= mark


def below(value: float | None, mark: float) -> bool:
    return value is not None and value < mark


MOST_WORKERS = 16
"""More loader workers than this per GPU are seldom worth their memory."""


def loaders_in_words(count: float) -> str:
    """
    >>> loaders_in_words(1.2), loaders_in_words(4)
    ('1 loader worker', '4 loader workers')
    """
    return f"{count:.0f} loader worker{'' if round(count) == 1 else 's'}"


def useful_workers(run: Run) -> int:
    """The usable cores, shared by the GPUs at work; 4 if the cores are not known."""
    used = sum((gpu.utilization or 0.0) >= marks.IDLE for gpu in run.gpus)
    return max(1, min(MOST_WORKERS, round(run.cores or 4) // max(1, used)))


def reaches(path: str, mark: float) -> Sign:
    """A figure of the GPU in its run is at least so high."""
    return Sign(lambda seen: at_least(attrgetter(path)(seen), mark))


def under(path: str, mark: float) -> Sign:
    """A figure is told, and lower."""
    return Sign(lambda seen: below(attrgetter(path)(seen), mark))


def in_pauses(field: str, mark: float) -> Sign:
    """A figure of the pauses is at least so high."""
    return Sign(lambda seen: at_least(getattr(seen.gpu.parts.paused, field, None), mark))


# --- the GPU --------------------------------------------------------------------------------------

busy = reaches("work.utilization", marks.BUSY)
mostly_waits = under("work.utilization", marks.LOW)
spins = reaches("work.utilization", marks.SPINNING_USE)
"""Utilisation as of a waiting collective."""
no_memory_traffic = under("work.memory_busy", marks.QUIET)
memory_bus_full = reaches("work.memory_busy", 70.0)
light = under("weight", marks.LIGHT_POWER) & ~memory_bus_full
"""The kernels draw little power while they run."""
pauses_rule = reaches("gpu.parts.pause_share", marks.PAUSE_SHARE)
gaps = reaches("work.quiet_share", marks.QUIET_SHARE) | reaches("work.utilization_apart", 50.0)
"""It is quiet again and again."""

# --- its memory -----------------------------------------------------------------------------------

memory_high = reaches("gpu.memory.p95", marks.MEMORY_HIGH)
memory_full = reaches("gpu.memory.p95", marks.MEMORY_TIGHT)
memory_used_up = reaches("gpu.memory.p95", marks.MEMORY_FULL)
"""What is left of its memory is too little for another allocation."""
memory_fell = Sign(attrgetter("gpu.memory.fell"))
"""Its memory was full and then nearly empty."""
memory_grew = Sign(attrgetter("gpu.memory.grew"))
"""Its memory grew all the time."""


@Sign
def full_at_the_end(s: Seen) -> bool:
    """Memory was full when it ended with an error."""
    mark = marks.MEMORY_TIGHT if s.run.exit else marks.MEMORY_FULL
    return at_least(s.gpu.memory.last, mark)


def of_others(row: Moment, field: str, untold: float) -> float:
    """At least so much of a GPU others have: if more processes are on it than the command has on
    GPUs, the smallest of them are somebody else's."""
    each = [getattr(one, field) for one in row.gpu.processes or () if not is_display(one)]
    own_count = (row.tree and row.tree.gpu_processes) or len(each)
    sizes = sorted(untold if one is None else float(one) for one in each)
    return sum(sizes[: max(0, len(each) - own_count)])


@Sign
def shared_with_others(s: Seen) -> bool:
    """Others hold a part of its memory."""
    last = s.work.rows[-1]
    held = of_others(last, "memory_bytes", float("inf"))
    return at_least(percent(held, last.gpu.memory_total_bytes), marks.HELD_MEMORY)


@Sign
def used_by_others(s: Seen) -> bool:
    """Others compute on it."""
    return at_least(
        mean(of_others(row, "sm_percent", 0.0) for row in s.work.running), marks.USE_DIFFERENCE
    )


# --- what holds it down ---------------------------------------------------------------------------


def held_down_by(cause: str) -> Sign:
    """A throttle of `throttling.py` is on, for this cause."""
    return Sign(lambda s: s.throttle is not None and s.throttle.cause == cause)


@Sign
def unexplained(s: Seen) -> bool:
    """No reason was told for its clocks, and it is not at its power limit."""
    at_its_limit = (s.work.power_share or 0.0) >= marks.RATED_POWER - marks.THROTTLED_SHARE
    return not (set(s.work.reasons) - {"gpu_idle"} or at_its_limit or s.throttle)


power_told = reaches("work.power_share", 0.0)
clocks_far_down = under("work.clock_share", marks.RATED_CLOCKS) & power_told & unexplained
"""Its clock is far below its maximum, with power left, and nothing tells why."""
only_now_and_then = under("throttle_share", marks.POWER_CAPPED_SHARE)
"""What holds it down is on less than half of the time."""
laptop = Sign(lambda s: is_laptop(s.gpu.name))

# --- the command's processes ----------------------------------------------------------------------

watched = reaches("work.busiest_cpu", 0.0)
core_full = reaches("work.busiest_cpu", marks.CORE_FULL)
"""Its main process fills a core."""
workers = reaches("work.workers", 0.5)
workers_full = reaches("work.worker_cpu", 75.0)
"""Loader workers compute without rest."""
helpers = reaches("work.helpers_cpu", marks.HELPER_CPU)
"""Other processes of the command compute."""
cores_used_up = reaches("cpu_share", marks.CPU_USED_UP)
"""The command uses all the CPU that it may, by its affinity and its quota."""
fewer_cores = Sign(lambda s: (s.run.cores or 0) < (s.run.host_cores or 0))
"""Than the machine has: a quota, or an affinity."""
machine_full = reaches("work.host_share", marks.CPU_USED_UP)
others_full = reaches("work.host_share", 90.0) & reaches("others_share", 30.0)
"""Others use the machine's CPU, and none is left."""
reads = reaches("work.read_rate", marks.READ_RATE)
blocked = reaches("work.blocked", 0.5)
"""Processes wait for a disk."""
receives = reaches("work.network_rate", marks.NETWORK_RATE)
swaps = (
    reaches("run.host_memory", marks.MEMORY_TIGHT)
    & reaches("work.disk_read_rate", marks.READ_RATE)
    & reaches("work.disk_write_rate", marks.READ_RATE)
)
computes_in_pauses = in_pauses("busiest_cpu", marks.CORE_FULL)
writes_in_pauses = in_pauses("write_rate", marks.WRITE_RATE)
failed = Sign(attrgetter("run.exit"))


@Sign
def enough_workers(s: Seen) -> bool:
    """There are as many loader workers as can be of use."""
    return s.work.workers >= useful_workers(s.run) * s.together


@Sign
def over_the_network(s: Seen) -> bool:
    """As much comes over the network as reading needs, and less than half of it from a disk."""
    disk = s.work.read_rate if s.work.disk_read_rate is None else s.work.disk_read_rate
    return receives(s) and (disk or 0.0) < (s.work.network_rate or 0.0) / 2


# --- several GPUs and what lies between -----------------------------------------------------------

several = reaches("together", 2) | reaches("run.nodes", 2)
"""Several GPUs work on one job: here, or on other machines, as its launcher says."""
beside_a_resting_one = Sign(
    lambda s: any(s.run.held(gpu) and not worked(gpu) for gpu in s.run.gpus)
)
"""Another GPU's memory is held, and nothing ran there."""
launched = Sign(attrgetter("run.launched"))
links_carry = (
    reaches("work.link_rate", marks.NVLINK_RATE)
    | reaches("work.pcie_rate", marks.PCIE_RATE)
    | reaches("work.pcie_share", 30.0)
)
links_rule = links_carry & under("weight", 50.0)
"""Kernels that wait for data still draw, but less than full power."""
link_full = reaches("work.pcie_one_way_share", 70.0)
"""Its PCIe link carries nearly all that it can, one way."""
slow_link = under("gpu.link_limit", 8e9) & reaches("gpu.link_limit", 1.0)
"""Its PCIe link has the speed of four lanes of PCIe 4, eight of PCIe 3, or less."""

# --- what kind of program it is -------------------------------------------------------------------


def of_kind(*kinds: str) -> Sign:
    return Sign(lambda s: s.kind in kinds)


server, notebook, physics = map(of_kind, ("server", "notebook", "physics"))
no_loader = server | notebook | physics
no_training = no_loader | of_kind("inference")
nothing_comes_in = (
    under("work.input_rate", marks.READ_RATE)
    & under("work.pcie_in", marks.READ_RATE)
    & ~of_kind("simulation")
)
"""Neither the process nor the card receives data that a loader could be behind with."""
