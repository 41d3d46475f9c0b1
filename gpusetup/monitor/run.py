"""A whole run's figures for the verdicts: which GPUs worked, and which of them belong to the same
job. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from gpusetup.monitor import marks
from gpusetup.monitor.documents import ProcessUse
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.holders import foreign_holders, kind_of_process
from gpusetup.monitor.programs import is_launched, kind_of, nodes_of
from gpusetup.monitor.tally import RunTally
from gpusetup.monitor.work import Work, highest, mean, or_zero, percent, percentile, work_of


class WatchedRun:
    """A run's figures, its command and the command's exit code."""

    def __init__(
        self,
        tally: RunTally,
        command: tuple[str, ...] | None = None,
        exit_code: int | None = None,
        *,
        is_reading: bool = False,
        has_utilization: bool = True,
    ) -> None:
        self.samples, self.seconds = tally.samples, tally.seconds
        self.is_reading = is_reading
        """Whether there is only a single reading of nvidia-smi instead of a run."""
        self.has_utilization = has_utilization
        """Whether the source has a field for the utilisation, even if a GPU does not report it."""
        self.gpus = tuple(map(GpuRun, tally.gpus.values()))
        compare_clocks(self.gpus)
        self._rows = rows = tally.moments.all()
        self.machine = work_of(rows)
        """What the command and the machine did, apart from the GPUs."""
        trees = [row.tree for row in rows if row.tree is not None]
        hosts = [row.host for row in rows if row.host is not None]
        # A quota may change while a command runs, so use the last one.
        self.cores = trees[-1].cores if trees else None
        known_cores = [host.cores for host in hosts if host.cores]
        self.host_cores = known_cores[-1] if known_cores else None
        self.cpu = mean(tree.cpu_percent for tree in trees)
        """Mean CPU use of the command and its child processes, where 100 means one core."""
        self.busiest_cpu = mean(tree.busiest_cpu_percent for tree in trees)
        self.ranks: int | None = highest(tree.gpu_processes for tree in trees)
        """The number of the command's processes that use a watched GPU."""
        memory_shares = [percent(host.memory_used_bytes, host.memory_total_bytes) for host in hosts]
        self.host_memory: float | None = highest(memory_shares)
        """The highest share of the machine's memory that was in use, in percent."""
        self.command, self.exit = command, exit_code
        self.kind, self.nodes = kind_of(command), nodes_of(command)
        """The kind of the command's program, judged by the command line only, and the number of
        machines that the command runs on."""
        # A script may also start its ranks without a launcher (torch.multiprocessing).
        has_several_ranks = or_zero(self.ranks) > 1
        self.launched = is_launched(command) or has_several_ranks
        """Whether a launcher or the script itself started several ranks."""

    @property
    def usable_cores(self) -> float | None:
        """The number of cores that the command may use or, if no command was watched, that the
        machine has; None if unknown."""
        by_affinity_and_quota = self.cores
        return by_affinity_and_quota or self.host_cores

    @property
    def training_processes(self) -> int:
        """The number of processes that train: those that use a GPU or, if they were not counted,
        one for each GPU that works."""
        if self.ranks:
            return self.ranks
        gpus_at_work = [gpu for gpu in self.gpus if or_zero(gpu.utilization) >= marks.IDLE]
        return max(1, len(gpus_at_work))

    @cached_property
    def since_held(self) -> Work | None:
        """What the command and the machine did since a process first used a GPU; None if no process
        did, or if too few samples followed.

        The time before that is the program's start, when Python's imports keep a core busy for
        seconds.
        """
        held_from = self.held_from
        rows = [row for row in self._rows if row.seconds >= held_from]
        # Leave out the first rows if they are from before the first sample of the command.
        while rows and rows[0].tree is None:
            rows = rows[1:]
        enough = len(rows) >= marks.LEAST_SAMPLES
        return work_of(rows) if enough else None

    @property
    def since_start(self) -> Work | None:
        """What the command and the machine did in the samples that include the command; None if
        there are fewer than two of them."""
        rows = [row for row in self._rows if row.tree is not None]
        # If a command ended at once, a single sample says nothing about it.
        if len(rows) < marks.LEAST_TREES:
            return None
        return work_of(rows)

    @cached_property
    def held_from(self) -> float:
        """The second at which a process first used a GPU, as its process list or its memory shows;
        infinity if none ever did."""
        for gpu in self.gpus:
            memory_at_first = gpu.first.memory_used_bytes or 0
            for row in gpu.rows:
                memory_now = or_zero(row.gpu.memory_used_bytes)
                memory_rose = memory_now - memory_at_first
                # If no processes are listed, rising memory shows that one uses the GPU.
                if row.gpu.processes or memory_rose >= marks.CUDA_CONTEXT:
                    return row.seconds
        return math.inf

    @cached_property
    def at_work(self) -> tuple[GpuRun, ...]:
        """The GPUs that worked in the run, including those that were lost while working."""
        gpus = [gpu for gpu in self.gpus if worked(gpu)]
        return tuple(gpus)

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """The figures of each GPU that worked."""
        works = []
        for gpu in self.at_work:
            work = considered(gpu)
            if work is not None:
                works.append(work)
        return tuple(works)

    def kind_on(self, gpu: GpuRun) -> str:
        """The kind of program on a GPU, judged by the command line or, if there is none, by the
        names of its processes; "" if it is unclear."""
        # Without a command, judge by the names of the processes on the GPU.
        if self.command or not gpu.big_holders:
            return kind_of(self.command, gpu.programs)
        # Ignore processes with little memory; if two kinds are left, the kind is unclear.
        kinds = {kind_of_process(process) for process in gpu.big_holders}
        return kinds.pop() if len(kinds) == 1 else ""

    def foreign_holders(self, gpu: GpuRun) -> list[ProcessUse]:
        """The processes that use much of this GPU's memory and do not belong to the job."""
        command_kind = self.kind if self.command else None
        return foreign_holders(gpu.big_holders, command_kind)

    def team(self, gpu: GpuRun) -> tuple[GpuRun, ...]:
        """The working GPUs of the same job as this one: all of them if a command is watched,
        otherwise those with the same model and program names."""
        # If a command is watched, assume that all working GPUs belong to it.
        if self.command or self.ranks:
            return self.at_work
        return tuple(
            other_gpu
            for other_gpu in self.at_work
            if other_gpu.name == gpu.name and other_gpu.programs == gpu.programs
        )

    @cached_property
    def unused_gpus(self) -> tuple[GpuRun, ...]:
        """The GPUs that did nothing, have no process and are not lost."""
        unused = []
        for gpu in self.gpus:
            # A card that drives the display counts as used.
            is_in_use = worked(gpu) or self.held(gpu) or gpu.only_draws
            is_lost = gpu.lost_at is not None
            if not is_in_use and not is_lost:
                unused.append(gpu)
        return tuple(unused)

    def siblings_clock(self, gpu: GpuRun) -> float | None:
        """The median SM clock, in MHz, of the other busy cards of the same model.

        None if there are no such cards, or if their clocks are not reported.
        """
        clocks = []
        for other_gpu in self.at_work:
            is_sibling = other_gpu is not gpu and other_gpu.model == gpu.model
            work = considered(other_gpu)
            if not is_sibling or work is None or work.clock_mhz is None:
                continue
            if work.utilization >= marks.BUSY:
                clocks.append(work.clock_mhz)
        return percentile(clocks, 50) if clocks else None

    def alike(self, gpus: Sequence[GpuRun]) -> bool:
        """Whether these GPUs look like ranks of one job: same model, and nearly the same
        utilisation, power and memory.

        Used if no command shows which GPUs are ranks of one job.
        """
        works = [considered(gpu) for gpu in gpus]
        known_works = [work for work in works if work is not None]
        names = {gpu.name for gpu in gpus}
        if len(gpus) < 2 or len(known_works) < len(gpus) or len(names) > 1:
            return False
        uses = [work.utilization for work in known_works]
        power = [or_zero(work.power_share) for work in known_works]
        memory_shares = [or_zero(gpu.memory.p95) for gpu in gpus]
        for figures in (uses, power, memory_shares):
            if max(figures) - min(figures) > marks.ALIKE:
                return False
        return True

    def belongs(self, gpu: GpuRun) -> bool:
        """Whether a GPU takes part in the run, because it worked or a process uses it."""
        has_worked = worked(gpu)
        # A waiting rank takes part too: its process still has memory on its GPU.
        return has_worked or self.held(gpu)

    def held(self, gpu: GpuRun) -> bool:
        """Whether the GPU has a computing process, according to the process list or, if there is no
        list, to the memory in use."""
        has_process = gpu.has_process
        if has_process is not None:
            return has_process
        memory_share = or_zero(gpu.memory.p95)
        # If no command was watched, the memory may belong to a desktop, which uses more than a CUDA
        # context.
        mark = marks.DESKTOP_MEMORY if self.busiest_cpu is None else marks.HELD_MEMORY
        return memory_share >= mark


def compare_clocks(gpus: Sequence[GpuRun]) -> None:
    """Set each GPU's highest clock to the highest that any card of its model reached in the run.

    `nvidia-smi dmon` does not print the maximum clock, so a card that is always slow would
    otherwise look normal.
    """
    highest_by_model: dict[str, float] = {}
    for gpu in gpus:
        highest_so_far = highest_by_model.get(gpu.model, 0.0)
        highest_by_model[gpu.model] = max(highest_so_far, or_zero(gpu.highest_clock))
    for gpu in gpus:
        gpu.highest_clock = highest_by_model[gpu.model] or None


def worked(gpu: GpuRun) -> bool:
    """Whether a GPU worked in the run; a few stray kernels or a display do not count."""
    if considered(gpu) is None or drawn(gpu):
        return False
    mean_is_low = or_zero(gpu.utilization) < marks.IDLE
    # If the GPU worked during only part of the run, the 95th percentile shows it.
    never_works_much = gpu.utilization_p95 < marks.QUIET_SHARE
    has_only_stray_kernels = mean_is_low and never_works_much
    return not has_only_stray_kernels


def drawn(gpu: GpuRun) -> bool:
    """Whether only programs that draw on the screen use the GPU, and for less than half of the
    time."""
    utilization = or_zero(gpu.utilization)
    # Exclude cards that work hard, because a game or a renderer may be listed as drawing too.
    works_hard = utilization >= marks.LOW
    return gpu.only_draws and not works_hard


def considered(gpu: GpuRun) -> Work | None:
    """The GPU's work without the pauses, or including them if they take more than 20 % of the time;
    None if it never worked."""
    parts = gpu.parts
    if parts.pause_share > marks.PAUSE_SHARE:
        return parts.body
    # Leave out short pauses, because every training pauses for evaluation and checkpoints.
    return parts.work


WORKERS_IF_UNKNOWN = 4
"""Loader workers per process on a machine with an unknown number of cores. A workstation has at
least this many cores, and the acceleration guide starts with this number."""


MOST_WORKERS = 16
"""More loader workers per process than this are seldom worth the memory that they need."""


def useful_workers(run: WatchedRun) -> int:
    """The useful number of loader workers (`num_workers`) per process: at most 16, and no more than
    the process's share of the cores.

    It is 4 if the number of cores is unknown.
    """
    if not run.cores:
        return WORKERS_IF_UNKNOWN
    # Each process has its own loader, and all of them share the cores.
    cores_of_each = round(run.cores) // run.training_processes
    # A worker keeps one core busy, so having more workers than cores does not help.
    workers = min(MOST_WORKERS, cores_of_each)
    return max(1, workers)
