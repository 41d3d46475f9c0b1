"""What can be seen of a command beside a GPU: its processes, the machine, its kind. Pure."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.run import useful_workers
from gpusetup.monitor.signs import often_quiet
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.work import Work, at_least, below, or_zero

# --- the command's processes ----------------------------------------------------------------------


@Sign
def watched(subject: Subject) -> bool:
    """The processes of the command were watched too."""
    return subject.work.busiest_cpu is not None


@Sign
def core_full(subject: Subject) -> bool:
    """Its main process fills a core."""
    return at_least(subject.work.busiest_cpu, marks.CORE_FULL)


@Sign
def many_threads(subject: Subject) -> bool:
    """Its busiest process computes on many threads."""
    return at_least(subject.work.busiest_cpu, marks.MANY_THREADS)


@Sign
def works_between_steps(subject: Subject) -> bool:
    """Its main process computes a part of the time: it prepares what comes next."""
    return at_least(subject.work.busiest_cpu, marks.RESTING_CPU)


@Sign
def workers(subject: Subject) -> bool:
    """There are loader workers."""
    return subject.work.workers >= 0.5


@Sign
def workers_full(subject: Subject) -> bool:
    """Its loader workers compute without rest."""
    return at_least(subject.work.worker_cpu, 75.0)


@Sign
def helpers(subject: Subject) -> bool:
    """Other processes of the command compute."""
    return at_least(subject.work.helpers_cpu, marks.HELPER_CPU)


@Sign
def cores_used_up(subject: Subject) -> bool:
    """The command uses all the CPU that it may, by its affinity and its quota."""
    return at_least(subject.cpu_share, marks.CPU_USED_UP)


@Sign
def fewer_cores(subject: Subject) -> bool:
    """A quota or an affinity gives the command fewer cores than the machine has."""
    return or_zero(subject.run.cores) < or_zero(subject.run.host_cores)


@Sign
def machine_full(subject: Subject) -> bool:
    """The machine's CPU is used up, by whomever."""
    return at_least(subject.work.host_share, marks.CPU_USED_UP)


@Sign
def others_full(subject: Subject) -> bool:
    """Others use the machine's CPU, and none is left."""
    none_is_left = at_least(subject.work.host_share, 90.0)
    return none_is_left and at_least(subject.others_share, 30.0)


@Sign
def reads(subject: Subject) -> bool:
    """It reads more from the disk than code and logs need."""
    return at_least(subject.work.read_rate, marks.READ_RATE)


@Sign
def blocked(subject: Subject) -> bool:
    """Its processes wait for a disk."""
    return at_least(subject.work.blocked, 0.5)


@Sign
def receives(subject: Subject) -> bool:
    """More comes over the network than logs and metrics."""
    return at_least(subject.work.network_rate, marks.NETWORK_RATE)


@Sign
def swaps(subject: Subject) -> bool:
    """The machine's memory is full, and its disks read and write."""
    memory_full = at_least(subject.run.host_memory, marks.MEMORY_TIGHT)
    disk_reads = at_least(subject.work.disk_read_rate, marks.READ_RATE)
    disk_writes = at_least(subject.work.disk_write_rate, marks.READ_RATE)
    return memory_full and disk_reads and disk_writes


@Sign
def computes_in_pauses(subject: Subject) -> bool:
    """Its main process fills a core while the GPU pauses."""
    paused = subject.gpu.parts.paused
    return paused is not None and at_least(paused.busiest_cpu, marks.CORE_FULL)


@Sign
def writes_in_pauses(subject: Subject) -> bool:
    """It writes as for a checkpoint while the GPU pauses."""
    paused = subject.gpu.parts.paused
    return paused is not None and at_least(paused.write_rate, marks.WRITE_RATE)


@Sign
def in_turns(subject: Subject) -> bool:
    """It works fully in one stretch and does nothing in the next, each of several samples."""
    running, quiet = subject.work.running_part, subject.work.quiet_part
    if running is None or quiet is None:
        return False
    is_full = running.utilization >= marks.BUSY
    # A step that waits for data is much shorter than two samples.
    return often_quiet(subject) and is_full and subject.work.quiet_length >= 2


def beside_the_busiest(work: Work) -> float:
    """CPU of all processes of the command but the busiest, in percent of a core."""
    return or_zero(work.cpu) - or_zero(work.busiest_cpu)


@Sign
def others_compute_in_turn(subject: Subject) -> bool:
    """Processes beside the main one compute while the GPU rests, and rest while it works.

    A pool that evaluates does so; loader workers work ahead while the GPU computes.
    """
    running = subject.work.running_part
    quiet = subject.work.quiet_part
    if running is None or quiet is None:
        return False
    cpu_in_gaps = beside_the_busiest(quiet)
    cpu_at_work = beside_the_busiest(running)
    rests_at_work = cpu_at_work <= cpu_in_gaps / 4
    return cpu_in_gaps >= marks.HELPER_CPU and rests_at_work


@Sign
def main_computes_in_turn(subject: Subject) -> bool:
    """The main process fills a core while the GPU rests, without loaders and without reading."""
    quiet = subject.work.quiet_part
    if quiet is None or workers(subject):
        return False
    reads_little = below(quiet.input_rate, marks.READ_RATE)
    return at_least(quiet.busiest_cpu, marks.CORE_FULL) and reads_little


evaluates_on_the_cpu = in_turns & (others_compute_in_turn | main_computes_in_turn)


@Sign
def failed(subject: Subject) -> bool:
    """The command ended with an error."""
    return bool(subject.run.exit)


@Sign
def enough_workers(subject: Subject) -> bool:
    """There are as many loader workers as can be of use."""
    useful_for_all_gpus = useful_workers(subject.run) * subject.together
    return subject.work.workers >= useful_for_all_gpus


@Sign
def over_the_network(subject: Subject) -> bool:
    """As much comes over the network as reading needs, and less than half of it from a disk."""
    disk_rate = subject.work.disk_read_rate
    if disk_rate is None:
        disk_rate = subject.work.read_rate
    comes_from_elsewhere = or_zero(disk_rate) < or_zero(subject.work.network_rate) / 2
    return receives(subject) and comes_from_elsewhere


# --- what kind of program it is -------------------------------------------------------------------


def of_kind(*kinds: str) -> Sign:
    """The program is of one of these kinds (`programs.py`)."""
    return Sign(lambda subject: subject.kind in kinds)


server = of_kind("server")
notebook = of_kind("notebook")
physics = of_kind("physics")
simulation = of_kind("simulation")
training = of_kind("training", "")
no_loader = server | notebook | physics
"""Programs that have no data loader."""
no_training = no_loader | of_kind("inference")


@Sign
def reads_nothing(subject: Subject) -> bool:
    """The process reads hardly anything, not even from the page cache."""
    return below(subject.work.input_rate, marks.READ_RATE)


@Sign
def copies_nothing(subject: Subject) -> bool:
    """No more goes to the card than what the launches of kernels bring."""
    return below(subject.work.pcie_in, marks.PCIE_LAUNCHES)


nothing_comes_in = reads_nothing & copies_nothing & ~simulation
"""Neither the process nor the card receives data that a loader could be behind with."""


@Sign
def leaves_gpus_unused(subject: Subject) -> bool:
    """It is a training, and there are GPUs on which nothing is."""
    is_watched_training = training(subject) and subject.run.command is not None
    return is_watched_training and len(subject.run.unused_gpus) > 0
