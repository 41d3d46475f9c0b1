"""A whole run's figures for the verdicts: which GPUs worked, which of them belong to the same job,
and each of them as the subject of a verdict. Pure functions."""

from __future__ import annotations

from functools import cached_property

from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample, ProcessUse, Sample, Summary
from gpusetup.monitor.gpu import GpuRun, gpu_runs
from gpusetup.monitor.programs import WAITING_KINDS, is_display, kind_of
from gpusetup.monitor.throttling import Throttle, active_throttle
from gpusetup.monitor.work import Moment, Work, highest, or_zero, percent

NO_GPU = GpuSample(index=-1)
"""Stands in for the GPU in moments that are only about the command and the machine."""
MOST_SAMPLES = 1000
"""How many samples of a run are kept, so that a run of days needs little memory."""


class RunTally:
    """Collects the samples of one run: at first all, later every second, every fourth and so on."""

    def __init__(self) -> None:
        self.samples = 0
        self.seconds = 0.0
        self._kept: list[Sample] = []
        self._every = 1  # which of the samples are kept: each, each second, …

    def add(self, sample: Sample) -> None:
        """Count a sample, and keep it if it is the next one to keep."""
        if self.samples % self._every == 0:
            self._kept.append(sample)
        self.samples += 1
        self.seconds = sample.seconds
        self._last = sample
        if len(self._kept) >= MOST_SAMPLES:
            self._kept = self._kept[::2]
            self._every *= 2

    def kept(self) -> list[Sample]:
        """The kept samples, followed by the last one, because it shows how the run ended."""
        return self._kept if self._kept[-1] is self._last else [*self._kept, self._last]


class WatchedRun:
    """A run's figures, its command and the command's exit code; `about` as for `summarise`."""

    def __init__(self, tally: RunTally, about: Summary) -> None:
        self.samples, self.seconds = tally.samples, tally.seconds
        # The names of the logs begin so, such as `nvidia-smi CSV`; the live source is `nvidia-smi`.
        is_log = (about.source or "").startswith("nvidia-smi ")
        is_short = tally.samples < marks.FEW_SAMPLES and tally.seconds < marks.SHORT_SECONDS
        # Two samples show no course, even if hours lie between them.
        has_no_course = tally.samples < marks.LEAST_SAMPLES
        self.is_one_reading = is_log and (is_short or has_no_course)
        """Whether a log of nvidia-smi shows only a moment, or a few seconds."""
        samples = tally.kept()
        self.gpus = gpu_runs(samples)
        self.rows = [Moment(NO_GPU, sample) for sample in samples]
        self.machine = GpuRun(self.rows)
        """What the command and the machine did, as the run of a GPU that reports nothing."""
        trees = [sample.tree for sample in samples if sample.tree is not None]
        hosts = [sample.host for sample in samples if sample.host is not None]
        self.host_cores = next((host.cores for host in reversed(hosts) if host.cores), None)
        # A quota may change while a command runs, so use the last one.
        self.usable_cores = (trees[-1].cores if trees else None) or self.host_cores
        """The number of cores that the command may use by its affinity and quota or, if no command
        was watched, that the machine has; None if unknown."""
        self.ranks = highest(tree.gpu_processes for tree in trees)
        """The number of the command's processes that use a watched GPU."""
        shares = [percent(host.memory_used_bytes, host.memory_total_bytes) for host in hosts]
        self.host_memory = highest(shares)
        """The highest share of the machine's memory that was in use, in percent."""
        self.command, self.exit, self.error = about.command, about.exit, about.error
        self.kind = kind_of(about.command)
        """The kind of the command's program, judged by the command line only."""

    @property
    def training_processes(self) -> int:
        """The number of processes that train: those that use a GPU or, if they were not counted,
        one for each GPU that works."""
        return self.ranks or max(1, len(self.working_gpus))

    @property
    def useful_workers(self) -> int:
        """The useful number of loader workers (`num_workers`) per process: at most 16, because more
        are seldom worth their memory, and no more than the process's share of the cores. 4 if the
        cores are unknown, as the acceleration guide starts with."""
        if not self.usable_cores:
            return 4
        return max(1, min(16, round(self.usable_cores) // self.training_processes))

    @cached_property
    def working_gpus(self) -> tuple[GpuRun, ...]:
        """The GPUs that worked in the run, including those that were lost while working."""
        return tuple(gpu for gpu in self.gpus if gpu.worked)

    @cached_property
    def subjects(self) -> tuple[Subject, ...]:
        """The GPUs to judge: those that worked and are not lost or, if all are lost, these."""
        gpus = [gpu for gpu in self.working_gpus if not gpu.lost_since] or self.working_gpus
        # A GPU that worked always has work to judge; the type checker cannot know.
        return tuple(Subject(self, gpu, gpu.judged_work) for gpu in gpus if gpu.judged_work)

    @cached_property
    def unused_gpus(self) -> tuple[GpuRun, ...]:
        """The GPUs that did nothing, have no process (not even a display's) and are not lost."""
        present = [gpu for gpu in self.gpus if not gpu.lost_since]
        used = [gpu for gpu in present if gpu.worked or gpu.was_occupied or gpu.only_draws]
        return tuple(gpu for gpu in present if gpu not in used)

    @cached_property
    def looks_like_one_job(self) -> bool:
        """Whether at least two GPUs worked, and they look like ranks of one job: same model, and
        nearly the same utilisation, power and memory. Used if no command shows what belongs to a
        job."""
        has_one_model = len({gpu.name for gpu in self.working_gpus}) == 1
        if len(self.working_gpus) < 2 or not has_one_model:
            return False
        # None of them is None, as in `subjects`.
        works = [gpu.judged_work for gpu in self.working_gpus if gpu.judged_work]
        uses = [work.utilization for work in works]
        power = [or_zero(work.power_share) for work in works]
        memory = [or_zero(gpu.memory.p95) for gpu in self.working_gpus]
        return all(max(shares) - min(shares) <= marks.SIMILAR for shares in (uses, power, memory))


class Subject:
    """What a verdict is about: one GPU in a run, or the command on a machine without a GPU."""

    def __init__(self, run: WatchedRun, gpu: GpuRun, work: Work) -> None:
        self.run, self.gpu, self.work = run, gpu, work

    @cached_property
    def gpus_of_job(self) -> int:
        """How many GPUs work on the same job as this one: all that worked if one command or process
        is watched, or else those with the same model and programs as this one."""
        # A watched process may hide its command line, and its ranks are counted all the same.
        if self.run.command or self.run.ranks:
            return len(self.run.working_gpus)
        job = (self.gpu.name, self.gpu.programs)
        return len([gpu for gpu in self.run.working_gpus if (gpu.name, gpu.programs) == job])

    @cached_property
    def kind(self) -> str:
        """The kind of program on the GPU, such as `training`, judged by the command line or, if
        there is none, by the names of its processes; "" if it is unclear."""
        if self.run.command or not self.gpu.big_holders:
            return kind_of(self.run.command, self.gpu.programs)
        # Ignore processes with little memory; if two kinds are left, the kind is unclear.
        kinds = {kind_of(None, (process.name or "",)) for process in self.gpu.big_holders}
        return kinds.pop() if len(kinds) == 1 else ""

    @cached_property
    def foreign_holders(self) -> list[ProcessUse]:
        """The processes on this GPU that do not belong to the job: those that are more than the
        command has on all GPUs, or else servers and notebooks, unless the job is one itself."""
        last = self.work.rows[-1]
        ranks = last.sample.tree.gpu_processes if last.sample.tree else None
        computing = [process for process in last.gpu.processes or () if not is_display(process)]
        if ranks and len(computing) > ranks:
            # We assume that the command's own processes use the most memory.
            computing.sort(key=lambda process: -or_zero(process.memory_bytes))
            return computing[ranks:]
        big = self.gpu.big_holders
        # Each is judged by its own name.
        waiting = [each for each in big if kind_of(None, (each.name or "",)) in WAITING_KINDS]
        if self.run.command:
            return [] if self.run.kind in WAITING_KINDS else waiting
        # Without a command, the job is the other programs on the GPU, if there are any.
        return [] if len(waiting) == len(big) else waiting

    @cached_property
    def throttle(self) -> Throttle | None:
        """The throttle reason that slows the GPU's clocks down; None if there is none."""
        return active_throttle(self.work, self.gpu)

    @property
    def cpu_share(self) -> float | None:
        """The CPU that the command uses, in percent of the cores that it may use."""
        cores = self.run.usable_cores
        return None if self.work.cpu is None or not cores else self.work.cpu / cores
