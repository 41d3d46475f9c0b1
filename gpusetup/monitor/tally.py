"""Collects the samples of a run in limited memory, and notes when each GPU worked or paused. Pure
functions.

At most `MOST_MOMENTS` samples of a GPU are kept, evenly over a run of any length. Which of them are
work, a pause or the start is noted while they come; figures are computed in `gpu.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.model.frozen import replace
from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.monitor.work import Moment, below

MOST_MOMENTS = 1000
"""Rows of a run that are kept."""
START, WORK, PAUSE = "start", "work", "pause"
"""Phases of a moment; until it is known which it is, the phase is empty."""


class ThinnedMoments:
    """Keeps every row at first, later every second, every fourth and so on, so that fewer than 1000
    are kept; the last row is always available."""

    def __init__(self) -> None:
        self._rows: list[Moment] = []
        self.count = 0
        # Of so many rows one is kept; it doubles when there are too many.
        self._every = 1

    def add(self, row: Moment) -> None:
        """Add the next row; it is kept if its number is a multiple of the current interval."""
        is_its_turn = self.count % self._every == 0
        if is_its_turn:
            self._rows.append(row)
        self.last = row
        self.count += 1
        if len(self._rows) >= MOST_MOMENTS:
            # Every second moment goes, so a long run stays evenly covered.
            self._rows = self._rows[::2]
            self._every *= 2

    def all(self) -> list[Moment]:
        """The kept rows and the last row."""
        rows = self._rows
        # The end of a run says how it ended.
        if not rows or rows[-1] is self.last:
            return rows
        return [*rows, self.last]


class GpuTally:
    """Collects the samples of one GPU, its pauses and the time at which it was lost."""

    def __init__(self, first: GpuSample) -> None:
        self.first = first
        self.latest = first
        """The last sample that a GPU that is not lost gave."""
        self.moments = ThinnedMoments()
        self.pauses: list[tuple[float, float]] = []
        """Since when, and for how many seconds."""
        self.quiet_since: float | None = None
        self._stray_since: float | None = None
        """Since when only stray kernels ran; that is quiet only if there is a sample with none."""
        self.has_worked = False
        # The sum of the utilisation of the samples with work, and how many these are.
        self._use = 0.0
        self._count = 0
        self.lost_at: str | None = None
        self.lost_since = 0.0
        """Seconds after the start."""

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        """Add the GPU's next sample."""
        gpu = with_use_of_its_processes(gpu, self.latest)
        moment = Moment(gpu, sample)
        self.moments.add(moment)
        if gpu.lost:
            # It may be lost at once, come back, and be lost again: the first time since counts.
            if self.lost_at is None:
                self.lost_since = sample.seconds
            self.lost_at = self.lost_at or sample.at
        else:
            self.lost_at = None
            self.latest = gpu
        if gpu.utilization_percent is not None:
            # NVML's figure is of up to a second before: what it shows of an empty GPU has ended.
            use = 0.0 if is_empty(gpu) else gpu.utilization_percent
            self._note_use(moment, use)

    def _note_use(self, moment: Moment, use: float) -> None:
        """Record whether the GPU works at this moment; quiet time stays undecided until work
        follows."""
        # A GPU that works hard otherwise may run a stray kernel in a pause.
        usual_use = self._use / max(1, self._count)
        is_stray = use <= stray_use(usual_use)
        goes_on = self.quiet_since is not None and is_stray
        if use <= marks.QUIET or goes_on:
            if self.quiet_since is None:
                # Stray kernels just before are the beginning of the pause.
                since_stray = self._stray_since
                self.quiet_since = moment.seconds if since_stray is None else since_stray
            return
        if self.quiet_since is not None:
            self._end_quiet(self.quiet_since, moment.seconds)
        if not is_stray:
            self._stray_since = None
        elif self._stray_since is None:
            self._stray_since = moment.seconds
        moment.phase = WORK
        self.has_worked = True
        self._use += use
        self._count += 1

    def _end_quiet(self, since: float, until: float) -> None:
        """Decide what a stretch of quiet time was now that work follows it: the start-up, a short
        stutter (counted as work) or a pause."""
        if not self.has_worked:
            phase = START
        elif until - since < marks.PAUSE_SECONDS:
            phase = WORK
        else:
            phase = PAUSE
            self.pauses.append((since, until - since))
        for moment in reversed(self.moments.all()):
            if moment.seconds < since:
                break
            moment.phase = phase
        self.quiet_since = None


def stray_use(usual_use: float) -> float:
    """The utilisation in percent up to which kernels count as stray, for a GPU with this usual
    utilisation at work.

    An evaluation on the CPU asks the GPU for a little now and then.

    >>> stray_use(98), stray_use(20)
    (19.6, 3.0)
    """
    if usual_use < marks.LOW:
        return marks.QUIET
    part_of_usual = usual_use * marks.STRAY_PART / 100
    return max(marks.STRAY_USE, part_of_usual)


def with_use_of_its_processes(gpu: GpuSample, before: GpuSample) -> GpuSample:
    """The sample with the highest utilisation of its processes, if the GPU's own counter shows
    none; otherwise unchanged.

    The counter of a GPU looks at short moments: an H100 (driver 580) that computed for 50 ms of
    each 200 told 0 %, while the same driver told 25 % of its process.
    """
    own_use = gpu.utilization_percent
    if own_use is None or own_use > marks.QUIET:
        return gpu
    # The first figure of a process covers its start alone: 85 % of a program that then did nothing.
    seen_before = {process.pid for process in before.processes or ()}
    shares = []
    for process in gpu.processes or ():
        share = process.sm_percent
        if share is not None and process.pid in seen_before:
            shares.append(share)
    busiest_share = max(shares, default=0.0)
    # Less than that is a stray kernel.
    if busiest_share < marks.IDLE:
        return gpu
    return replace(gpu, utilization_percent=busiest_share)


def is_empty(gpu: GpuSample) -> bool:
    """Whether a GPU has no process, and less memory in use than any CUDA program needs."""
    # None: nobody told of processes.
    lists_none = gpu.processes is not None and len(gpu.processes) == 0
    used_bytes = gpu.memory_used_bytes
    return lists_none and below(used_bytes, marks.EMPTY_MEMORY)


IMPOSSIBLE_CPU = 1.5
"""Times the CPU of all cores: a sample with more was divided by too short a time."""


def has_impossible_cpu(sample: Sample) -> bool:
    """Whether the command seems to use much more CPU than the machine has, which is a faulty
    measurement.

    Recordings of older versions begin so: their first sample counts all time since the start.
    """
    tree = sample.tree
    if tree is None:
        return False
    host_cores = sample.host.cores if sample.host else None
    # A recording may tell of the command alone.
    cores = host_cores or tree.cores
    if not cores:
        return False
    most_percent = cores * 100 * IMPOSSIBLE_CPU
    return tree.cpu_percent > most_percent


NO_GPU = GpuSample(index=-1)
"""What stands for a GPU in the moments of a machine."""


class RunTally:
    """Collects the samples of one run: each GPU's, the command's and the machine's."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples = 0
        self.seconds = 0.0
        self.gpus: dict[int, GpuTally] = {}
        self.moments = ThinnedMoments()
        """The command and the machine, with no GPU."""
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Add the next sample."""
        self.samples += 1
        self.seconds = sample.seconds
        if has_impossible_cpu(sample):
            sample = replace(sample, tree=None)
        self.moments.add(Moment(NO_GPU, sample))
        for gpu in sample.gpus:
            # A GPU may come later: nvidia-smi leaves out one that does not answer.
            if gpu.index not in self.gpus:
                self.gpus[gpu.index] = GpuTally(gpu)
            tally = self.gpus[gpu.index]
            tally.add(gpu, sample)
