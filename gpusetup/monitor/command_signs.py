"""Signs about the watched command: its processes, its machine and its kind of program. (`signs.py`
has those about the GPU.) Pure functions."""

from __future__ import annotations

from gpusetup.monitor import marks
from gpusetup.monitor.run import useful_workers
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.work import Work, at_least, below, or_zero

# --- the command's processes ----------------------------------------------------------------------


@Sign
def watched(subject: Subject) -> bool:
    """Whether the command's processes were watched too."""
    # Without the processes' figures, it is unknown what the GPU waits for.
    busiest_cpu = subject.work.busiest_cpu
    return busiest_cpu is not None


@Sign
def core_full(subject: Subject) -> bool:
    """Whether the command's busiest process (apart from loader workers) keeps a core busy nearly
    all the time."""
    # Python code runs on one core, so a process that does not fill a core spends some time waiting.
    busiest_cpu = subject.work.busiest_cpu
    return at_least(busiest_cpu, marks.CORE_FULL)


@Sign
def many_threads(subject: Subject) -> bool:
    """Whether the command's busiest process (apart from loader workers) computes with several
    threads."""
    # For example, an optimizer on the CPU or a tokenizer does so; Python code by itself fills only
    # one core.
    busiest_cpu = subject.work.busiest_cpu
    return at_least(busiest_cpu, marks.MANY_THREADS)


@Sign
def works_between_steps(subject: Subject) -> bool:
    """Whether the command's busiest process computes at least part of the time, as it does while it
    prepares the next step."""
    # A process below this threshold only waits, and there is no sign of what it waits for.
    busiest_cpu = subject.work.busiest_cpu
    return at_least(busiest_cpu, marks.RESTING_CPU)


SOME = 0.5
"""The threshold for a mean count over all samples; a count of 1 in half of the samples reaches it.
"""


@Sign
def workers(subject: Subject) -> bool:
    """Whether the command has DataLoader workers (at least 0.5 on average over all samples)."""
    # The mean may be below 1, because workers that are not persistent start and end with each
    # epoch.
    worker_count = subject.work.workers
    return worker_count >= SOME


WORKER_FULL = 75.0
"""The CPU use from which a worker counts as busy all the time, in percent of a core. It is below
100, because a worker also waits for the queue's lock and copies its batch."""


@Sign
def workers_full(subject: Subject) -> bool:
    """Whether the DataLoader workers compute nearly all the time."""
    worker_cpu = subject.work.worker_cpu
    return at_least(worker_cpu, WORKER_FULL)


@Sign
def helpers(subject: Subject) -> bool:
    """Whether the command's other processes (neither the busiest one nor loader workers) use more
    than one core."""
    # The threshold is one core, because a logger or a metrics thread uses less.
    helpers_cpu = subject.work.helpers_cpu
    return at_least(helpers_cpu, marks.HELPER_CPU)


@Sign
def cores_used_up(subject: Subject) -> bool:
    """Whether the command uses nearly all the CPU that its affinity and quota allow."""
    # A quota pauses processes in slices of 100 ms, so even at the limit the mean stays below 100 %.
    cpu_share = subject.cpu_share
    return at_least(cpu_share, marks.CPU_USED_UP)


@Sign
def fewer_cores(subject: Subject) -> bool:
    """Whether a quota or CPU affinity gives the command fewer cores than the machine has; false if
    the machine's core count is unknown."""
    usable_cores = or_zero(subject.run.cores)
    # If no sample contains the machine's core count, use 0, so that the sign is false.
    machine_cores = or_zero(subject.run.host_cores)
    return usable_cores < machine_cores


@Sign
def machine_full(subject: Subject) -> bool:
    """Whether the machine's CPU is used up, no matter by which programs."""
    # If no command is watched, this is all that is known about the CPU.
    host_share = subject.work.host_share
    return at_least(host_share, marks.CPU_USED_UP)


OTHERS_USE_MUCH = 30.0
"""How much CPU other programs must use to matter, in percent of the machine's cores."""


NO_CPU_LEFT = 90.0
"""The CPU use, in percent of the machine's cores, above which a process that wants more CPU has to
wait."""


LONG_WAIT = 25.0
"""A long wait for a core, in percent of one core: 25 means that one thread waits for a core a
quarter of the time."""
WANTED_CPU = 70.0
"""The CPU time that the command's threads must want (use or wait for), in percent of one core."""
WAIT_SHARE = 20.0
"""The smallest share of the wanted CPU time spent waiting that counts, in percent. Below it, other
programs cost the command little."""


def waits_for_a_core(work: Work) -> bool | None:
    """Whether the command's threads often waited for a free core; None if the system does not
    measure this."""
    if work.cpu_wait is None:
        return None
    waits_long = work.cpu_wait >= LONG_WAIT
    waits_much = at_least(work.cpu_wait_share, WAIT_SHARE)
    # If the command's threads rarely want a core, it waits for something else.
    wanted = or_zero(work.cpu) + work.cpu_wait
    return waits_long and waits_much and wanted >= WANTED_CPU


MOSTLY_WAITS = 50.0
"""A share of the CPU time that the command wanted, in percent. If the command spent at least this
share waiting for a core, it waited as long as it computed, or longer."""


def lacks_cpu_most(work: Work) -> bool:
    """Whether the command waited for a free core at least as long as it computed; false if this is
    unknown."""
    return waits_for_a_core(work) is True and at_least(work.cpu_wait_share, MOSTLY_WAITS)


RESTING_WORKER = 20.0
"""The CPU use, in percent of a core, below which a loader worker mostly waits."""


def workers_wait(work: Work) -> bool:
    """Whether there are DataLoader workers that hardly compute."""
    has_workers = work.workers >= SOME
    # A `worker_cpu` of None means that the workers used no CPU at all.
    return has_workers and or_zero(work.worker_cpu) < RESTING_WORKER


@Sign
def workers_rest(subject: Subject) -> bool:
    """Whether the command has DataLoader workers that hardly compute."""
    return workers_wait(subject.work)


@Sign
def others_full(subject: Subject) -> bool:
    """Whether other programs use up the machine's CPU so that the command has to wait for it."""
    work = subject.work
    none_is_left = at_least(work.host_share, NO_CPU_LEFT)
    # If the command itself uses nearly all the CPU, the other programs are not the cause.
    others_use_much = at_least(subject.others_share, OTHERS_USE_MUCH)
    if not (none_is_left and others_use_much):
        return False
    misses_it = waits_for_a_core(work)
    if misses_it is None:
        # If it is unknown whether the command waited for a core, a disk or resting workers would
        # also explain its waiting.
        return not (blocked(subject) or reads(subject) or workers_wait(work))
    return misses_it


@Sign
def reads(subject: Subject) -> bool:
    """Whether the command reads more from a disk than code and logs would need."""
    # Only reads from the disk count, because reads from the page cache cause no waiting.
    read_rate = subject.work.read_rate
    return at_least(read_rate, marks.READ_RATE)


@Sign
def blocked(subject: Subject) -> bool:
    """Whether processes of the command are blocked, waiting for a disk or a network file system."""
    # These are processes in state D, which also occurs while a process waits for a network file
    # system.
    blocked_processes = subject.work.blocked
    return at_least(blocked_processes, SOME)


@Sign
def swaps(subject: Subject) -> bool:
    """Whether the machine seems to swap: its memory is full, and its disks both read and write a
    lot."""
    work = subject.work
    memory_full = at_least(subject.run.host_memory, marks.MEMORY_TIGHT)
    # Require both reads and writes, because reading a data set causes no writes.
    disk_reads = at_least(work.disk_read_rate, marks.READ_RATE)
    disk_writes = at_least(work.disk_write_rate, marks.READ_RATE)
    return memory_full and disk_reads and disk_writes


@Sign
def computes_in_pauses(subject: Subject) -> bool:
    """Whether the command's busiest process keeps a core busy while the GPU pauses."""
    paused = subject.gpu.parts.paused
    # The GPU never paused.
    if paused is None:
        return False
    return at_least(paused.busiest_cpu, marks.CORE_FULL)


@Sign
def writes_in_pauses(subject: Subject) -> bool:
    """Whether the command writes as much as a checkpoint needs while the GPU pauses."""
    paused = subject.gpu.parts.paused
    # The GPU never paused.
    if paused is None:
        return False
    return at_least(paused.write_rate, marks.WRITE_RATE)


@Sign
def failed(subject: Subject) -> bool:
    """Whether the command ended with an error; false if its exit code is unknown."""
    # An exit code of None means that it is unknown how the command ended.
    exit_code = subject.run.exit
    return bool(exit_code)


@Sign
def enough_workers(subject: Subject) -> bool:
    """Whether the command already has as many loader workers as are useful for all its GPUs."""
    workers_per_gpu = useful_workers(subject.run)
    # Multiply by the number of GPUs, because each rank has its own loader.
    useful_for_all_gpus = workers_per_gpu * subject.together
    return subject.work.workers >= useful_for_all_gpus


def comes_over_the_network(work: Work) -> bool:
    """Whether the command itself waits for data that come over the network: the machine receives a
    lot, the disk reads less than half of it, and the command's processes are blocked by a network
    file system or read about as much.

    The receive rate is the whole machine's, so by itself it may be another program's download.
    """
    received = or_zero(work.network_rate)
    if received < marks.NETWORK_RATE:
        return False
    # The machine's disk rate also includes what the page cache reads ahead for the command.
    disk_rate = work.read_rate if work.disk_read_rate is None else work.disk_read_rate
    comes_from_elsewhere = or_zero(disk_rate) < received / 2
    is_its_own = at_least(work.blocked, SOME) or or_zero(work.input_rate) >= received / 2
    return comes_from_elsewhere and is_its_own


@Sign
def over_the_network(subject: Subject) -> bool:
    """Whether the command's data come over the network."""
    return comes_over_the_network(subject.work)


# --- the kind of program --------------------------------------------------------------------------


def of_kind(*kinds: str) -> Sign:
    """A sign that the program is of one of these kinds, such as `server` (see `programs.py`)."""

    def is_of_kind(subject: Subject) -> bool:
        # The kind is judged by the command line or, failing that, by the names of the processes on
        # the GPU.
        return subject.kind in kinds

    return Sign(is_of_kind)


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
    """Whether the command reads almost nothing, not even from the page cache; false if this is
    unknown."""
    # All read calls count, because reading a data set from the page cache also takes time.
    input_rate = subject.work.input_rate
    return below(input_rate, marks.READ_RATE)


@Sign
def copies_nothing(subject: Subject) -> bool:
    """Whether no more data goes to the GPU over PCIe than kernel launches need; false if the rate
    is unknown."""
    # If a data set is in the process's own memory, its batches are visible only as PCIe traffic.
    rate_to_card = subject.work.pcie_in
    return below(rate_to_card, marks.PCIE_LAUNCHES)


nothing_comes_in = reads_nothing & copies_nothing & ~simulation
"""Neither the process nor the card receives data, so no loader can be too slow."""


@Sign
def leaves_gpus_unused(subject: Subject) -> bool:
    """Whether the command is a training that leaves GPUs of the machine unused."""
    # We cannot know whether the training may use these GPUs, so the next step asks the user.
    has_unused_gpus = len(subject.run.unused_gpus) > 0
    return training(subject) and has_unused_gpus
