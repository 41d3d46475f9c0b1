"""What can be seen of a command beside a GPU: its processes, the machine, its kind. Pure."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.run import useful_workers
from gpusetup.monitor.seen import Seen, Sign
from gpusetup.monitor.signs import often_quiet
from gpusetup.monitor.work import Work, at_least, below

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
def in_turns(seen: Seen) -> bool:
    """It works fully in one stretch and does nothing in the next, each of several samples."""
    running, quiet = seen.work.running_part, seen.work.quiet_part
    if running is None or quiet is None:
        return False
    is_full = running.utilization >= marks.BUSY
    # A step that waits for data is much shorter than two samples.
    return often_quiet(seen) and is_full and seen.work.quiet_length >= 2


def beside_the_busiest(work: Work) -> float:
    """CPU of all processes of the command but the busiest, in percent of a core."""
    return (work.cpu or 0.0) - (work.busiest_cpu or 0.0)


@Sign
def others_compute_in_turn(seen: Seen) -> bool:
    """Processes beside the main one compute while the GPU rests, and rest while it works.

    A pool that evaluates does so; loader workers work ahead while the GPU computes.
    """
    running, quiet = seen.work.running_part, seen.work.quiet_part
    if running is None or quiet is None:
        return False
    in_gaps, at_work = beside_the_busiest(quiet), beside_the_busiest(running)
    return in_gaps >= marks.HELPER_CPU and at_work <= in_gaps / 4


@Sign
def main_computes_in_turn(seen: Seen) -> bool:
    """The main process fills a core while the GPU rests, without loaders and without reading."""
    quiet = seen.work.quiet_part
    if quiet is None or workers(seen):
        return False
    reads_little = below(quiet.input_rate, marks.READ_RATE)
    return at_least(quiet.busiest_cpu, marks.CORE_FULL) and reads_little


evaluates_on_the_cpu = in_turns & (others_compute_in_turn | main_computes_in_turn)


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
    """No more goes to the card than what the launches of kernels bring."""
    return below(seen.work.pcie_in, marks.PCIE_LAUNCHES)


nothing_comes_in = reads_nothing & copies_nothing & ~simulation
"""Neither the process nor the card receives data that a loader could be behind with."""


@Sign
def leaves_gpus_unused(seen: Seen) -> bool:
    """It is a training, and there are GPUs on which nothing is."""
    return training(seen) and bool(seen.run.command) and len(seen.run.unused_gpus) > 0
