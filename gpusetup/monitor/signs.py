"""What can be seen in a run: named questions with a yes or no, by the marks of `marks.py`. Pure.

A sign is seen or not seen; what no source told is not seen, so that a verdict that needs it is not
given. The verdicts in `cases.py` are made of these names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from gpusetup.monitor import marks
from gpusetup.monitor.brakes import active_brake, is_laptop
from gpusetup.monitor.facts import GpuFacts, RunFacts, Work
from gpusetup.monitor.programs import is_launched, kind_of, nodes_of
from gpusetup.monitor.team import team


class Seen:
    """One GPU that worked, in its run."""

    def __init__(self, run: RunFacts, gpu: GpuFacts, work: Work, *, together: int = 1) -> None:
        self.run, self.gpu, self.work = run, gpu, work
        self.together = together
        """How many GPUs work on the same job."""

    @cached_property
    def kind(self) -> str:
        return kind_of(self.run.command, self.gpu.names)

    @property
    def weight(self) -> float | None:
        """Power above that of a resting card, in percent, for the time with work."""
        share = self.work.power_share
        if share is None or not self.work.utilization:
            return None
        return (share - marks.IDLE_POWER.value) / self.work.utilization * 100

    @property
    def cores(self) -> float | None:
        return self.run.cores or self.run.host_cores

    @property
    def in_pauses(self) -> Work | None:
        return self.gpu.paused


Test = Callable[[Seen], bool]


def least(value: float | None, mark: marks.Mark) -> bool:
    return value is not None and value >= mark.value


def below(value: float | None, mark: marks.Mark) -> bool:
    return value is not None and value < mark.value


def _gaps(seen: Seen) -> bool:
    work = seen.work
    apart = work.utilization_p95 - work.utilization_p5 >= 2 * marks.APART.value
    return least(work.quiet_share, marks.GAPS) or apart


def _light(seen: Seen) -> bool:
    return below(seen.weight, marks.LIGHT) and not least(seen.work.memory_busy, marks.MEMORY_BUS)


def _links_carry(seen: Seen) -> bool:
    share = (seen.work.pcie_share or 0.0) >= 30
    return least(seen.work.link_rate, marks.LINK) or least(seen.work.pcie_rate, marks.PCIE) or share


def _links_rule(seen: Seen) -> bool:
    """The fuller the PCIe link, the more power may be drawn beside it: while a link moves data in
    every step, kernels that wait for them still draw."""
    share = seen.work.pcie_share
    if share is None:
        share = (seen.work.pcie_rate or 0.0) / marks.PCIE_USUAL.value * 100
    weight = seen.weight
    most = min(marks.LIGHT_MOST.value, marks.LIGHT.value + (share - 30) * 0.4)
    return share >= 30 and weight is not None and weight < most


def _slow_link(seen: Seen) -> bool:
    return seen.gpu.link_limit is not None and below(seen.gpu.link_limit, marks.SLOW_LINK)


def _unexplained(seen: Seen) -> bool:
    """No reason was told for its clocks, and it is not at its power limit."""
    told = set(seen.work.reasons) - {"gpu_idle"}
    at_its_limit = (seen.work.power_share or 0.0) >= marks.RATED.value - marks.SLOWED.value
    return not (told or at_its_limit or active_brake(seen.work, seen.gpu))


def _slower(seen: Seen) -> bool:
    """Its clock is far below that of its twins, and nothing tells why."""
    mine, others = seen.work.clock_mhz, twins(seen.gpu, seen.run)
    clocks = [one.work.clock_mhz or 0.0 for one in others if one.work]
    if mine is None or not clocks:
        return False
    return _unexplained(seen) and mine < max(clocks) * marks.SLOWER.value / 100


def _far_down(seen: Seen) -> bool:
    """Its clock is far below its maximum, with power left, and nothing tells why."""
    low = below(seen.work.clock_share, marks.FAST_ENOUGH)
    return low and seen.work.power_share is not None and _unexplained(seen)


def twins(gpu: GpuFacts, run: RunFacts) -> tuple[GpuFacts, ...]:
    """The other GPUs of the same name that work on the same job."""
    return tuple(one for one in team(gpu, run) if one is not gpu and one.name == gpu.name)


def _links_told(seen: Seen) -> bool:
    return seen.work.link_rate is not None or seen.work.pcie_rate is not None


def _collectives(seen: Seen) -> bool:
    launched = (seen.run.ranks or 0) > 1 or is_launched(seen.run.command)
    return bool(seen.run.collective_threads) or launched


def _several(seen: Seen) -> bool:
    """Here, or on other machines, as its launcher or what comes over the network says."""
    alone = seen.together <= 1 and nodes_of(seen.run.command) <= 1
    return not alone or (
        bool(seen.run.collective_threads) and least(seen.work.network_rate, marks.NETWORK_FULL)
    )


def _over_network(seen: Seen) -> bool:
    """As much comes over the network as reading needs, and less than half of it from a disk."""
    work = seen.work
    disk = work.disk_read_rate if work.disk_read_rate is not None else work.read_rate
    rate = work.network_rate
    return least(rate, marks.NETWORK) and (disk or 0.0) < (rate or 0.0) / 2


def _swaps(seen: Seen) -> bool:
    full = least(seen.run.host_memory_share, marks.MEMORY_TIGHT)
    rates = (seen.work.disk_read_rate, seen.work.disk_write_rate)
    return full and all(least(rate, marks.READS) for rate in rates)


def _used_up(seen: Seen) -> bool:
    cores, cpu = seen.cores, seen.work.cpu
    full = cores is not None and cpu is not None and cpu >= cores * marks.USED_UP.value
    return full or least(seen.work.held_back, marks.HELD_BACK)


def _others_full(seen: Seen) -> bool:
    cores, host, mine = seen.run.host_cores, seen.work.host_cpu, seen.work.cpu or 0.0
    if not cores or host is None:
        return False
    taken = (host - mine) >= cores * marks.OTHERS.value
    return host >= cores * marks.HOST_FULL.value and taken


def _reads_cached(seen: Seen) -> bool:
    return least(seen.work.input_rate, marks.READS)


def _pauses(test: Callable[[Work], bool]) -> Test:
    return lambda seen: seen.in_pauses is not None and test(seen.in_pauses)


def _brake(*causes: str) -> Test:
    def test(seen: Seen) -> bool:
        brake = active_brake(seen.work, seen.gpu)
        return brake is not None and brake.cause in causes

    return test


def _braked_little(seen: Seen) -> bool:
    brake = active_brake(seen.work, seen.gpu)
    share = seen.work.reasons.get(brake.reason, 100.0) if brake else 0.0
    return share < marks.CAPPED.value


def _kind(*kinds: str) -> Test:
    return lambda seen: seen.kind in kinds


SIGNS: dict[str, tuple[str, Test]] = {
    # the GPU
    "busy": ("utilisation is near 100 %", lambda s: least(s.work.utilization, marks.BUSY)),
    "partly": ("utilisation is below that", lambda s: below(s.work.utilization, marks.BUSY)),
    "mostly waits": ("it works less than half", lambda s: below(s.work.utilization, marks.LOW)),
    "spins": ("utilisation as of a waiting collective",
              lambda s: least(s.work.utilization, marks.SPINS)),
    "few multiprocessors": ("few of its multiprocessors have work",
                            lambda s: below(s.work.sm_active, marks.FEW_SMS)),
    "gaps": ("it is quiet again and again", _gaps),
    "light": ("the kernels draw little power while they run", _light),
    "heavy": ("the kernels draw much power while they run",
              lambda s: s.weight is not None and not _light(s)),
    "no memory traffic": ("its memory is hardly touched",
                          lambda s: below(s.work.memory_busy, marks.QUIET)),
    "memory bus full": ("its memory is busy",
                        lambda s: least(s.work.memory_busy, marks.MEMORY_BUS)),
    "pauses rule": ("pauses take more than a quarter of the run",
                    lambda s: s.gpu.pause_share > marks.WAITS.value),
    "some pauses": ("pauses take part of the run",
                    lambda s: s.gpu.pause_share >= marks.PAUSES_TOLD.value),
    "long pauses": ("pauses are too long for a stutter",
                    lambda s: s.gpu.mean_pause_seconds >= marks.LONG_PAUSE.value),
    # its memory
    "memory full": ("nearly all of its memory is in use",
                    lambda s: least(s.gpu.memory_p95_share, marks.MEMORY_TIGHT)),
    "full at the end": ("memory was full when it ended with an error",
                        lambda s: least(s.gpu.memory_last_share,
                                        marks.MEMORY_TIGHT if s.run.exit else marks.MEMORY_FULL)),
    "memory fell": ("memory fell from full to nothing", lambda s: s.gpu.memory_fell),
    "memory grew": ("memory grew all the time", lambda s: s.gpu.memory_grew),
    "memory high": ("memory leaves no room for more work",
                    lambda s: least(s.gpu.memory_p95_share, marks.MEMORY_HIGH)),
    # what holds it down
    "heat": ("heat holds the clocks down", _brake("heat")),
    "supply": ("the power supply holds the clocks down", _brake("supply")),
    "set clocks": ("clocks that somebody set hold it down", _brake("clocks")),
    "lowered limit": ("a power limit below the rated one holds it down", _brake("lowered")),
    "limit with room": ("a power limit that may be raised holds it down", _brake("room")),
    "rated limit": ("the card's own power limit holds it far down", _brake("fixed")),
    "withheld power": ("it is capped below its power limit", _brake("withheld")),
    "laptop": ("it is a laptop's", lambda s: is_laptop(s.gpu.name)),
    "slower than its twins": ("its clock is far below that of its twins", _slower),
    "clocks far down": ("its clock is far below its maximum, with power left", _far_down),
    "only now and then": ("that is on less than half of the time", _braked_little),
    # the command's processes
    "watched": ("the command's processes were watched", lambda s: s.work.busiest_cpu is not None),
    "core full": ("its main process fills a core",
                  lambda s: least(s.work.busiest_cpu, marks.CORE_FULL)),
    "main waits": ("its main process waits", lambda s: below(s.work.busiest_cpu, marks.CORE_FULL)),
    "many threads": ("its main process fills several cores",
                     lambda s: least(s.work.busiest_cpu, marks.MANY)),
    "workers": ("there are loader workers", lambda s: s.work.workers >= 0.5),
    "workers full": ("loader workers compute without rest",
                     lambda s: least(s.work.worker_cpu, marks.WORKER_FULL)),
    "helpers": ("other processes of the command compute",
                lambda s: least(s.work.helpers_cpu, marks.HELPERS)),
    "cores used up": ("the command uses all the CPU that it may", _used_up),
    "held back": ("its CPU quota holds it back",
                  lambda s: least(s.work.held_back, marks.HELD_BACK)),
    "machine full": ("the machine's CPU is used up",
                     lambda s: least(s.work.host_share, marks.USED_UP)),
    "others full": ("others use the machine's CPU, and none is left", _others_full),
    "reads": ("it reads from the disk", lambda s: least(s.work.read_rate, marks.READS)),
    "blocked": ("processes wait for a disk", lambda s: least(s.work.blocked, marks.BLOCKED)),
    "reads files": ("it reads files, cached or not", _reads_cached),
    "receives": ("data come over the network", lambda s: least(s.work.network_rate, marks.NETWORK)),
    "over the network": ("data come over the network, and not from a disk", _over_network),
    "swaps": ("the machine's memory is full, and it reads from and writes to its disk", _swaps),
    "computes in pauses": ("the CPU computes in the pauses",
                           _pauses(lambda w: least(w.busiest_cpu, marks.CORE_FULL))),
    "writes in pauses": ("much is written in the pauses",
                         _pauses(lambda w: least(w.write_rate, marks.WRITES))),
    # several GPUs and what lies between
    "several": ("several GPUs work on one job", _several),
    "several nodes": ("a launcher started it on several machines",
                      lambda s: nodes_of(s.run.command) > 1),
    "network quiet": ("little comes over the network",
                      lambda s: below(s.work.network_rate, marks.NETWORK)),
    "network carries": (
        "much comes over the network",
        lambda s: least(s.work.network_rate, marks.NETWORK_FULL),
    ),
    "links rule": ("much of its PCIe link is in use, and it draws less than full power",
                   _links_rule),
    "slow link": ("its PCIe link carries little", _slow_link),
    "links told": ("link counters were read", _links_told),
    "links carry": ("the links carry much", _links_carry),
    "collectives": ("threads of NCCL, or ranks", _collectives),
    # what kind of program it is
    "server": ("it is a server", _kind("server")),
    "notebook": ("it is a notebook", _kind("notebook")),
    "simulation": ("it simulates", _kind("simulation")),
    "physics": ("it computes physics or pictures", _kind("physics")),
    "no training": ("it is no training", _kind("server", "notebook", "physics", "inference")),
    "launched": ("a launcher started its ranks", lambda s: is_launched(s.run.command)
                 or (s.run.ranks or 0) > 1),
    "failed": ("the command ended with an error", lambda s: bool(s.run.exit)),
}  # fmt: skip
"""Name -> what it means, and how it is seen."""


def shows(seen: Seen, names: tuple[str, ...]) -> bool:
    return all(SIGNS[name][1](seen) for name in names)


def shows_any(seen: Seen, names: tuple[str, ...]) -> bool:
    return any(SIGNS[name][1](seen) for name in names)
