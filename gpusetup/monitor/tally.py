"""Collects the samples of a run in limited memory, and records when each GPU worked or paused. Pure
functions.

At most `MOST_MOMENTS` samples per GPU are kept, spread evenly over a run of any length. Each sample
is classified as work, pause or start when it arrives or soon after; `gpu.py` computes the figures.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.model.frozen import replace
from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.monitor.work import Moment, below

MOST_MOMENTS = 1000
"""How many rows of a run are kept."""
START, WORK, PAUSE = "start", "work", "pause"
"""The possible phases of a moment. The phase is empty until it is known."""


class ThinnedMoments:
    """Keeps every row at first, later every second, every fourth and so on, so that fewer than 1000
    are kept; the last row is always available."""

    def __init__(self) -> None:
        self._rows: list[Moment] = []
        self.count = 0
        # One row in this many is kept; the number doubles when there are too many rows.
        self._every = 1

    def add(self, row: Moment) -> None:
        """Add the next row; it is kept if its number is a multiple of the current interval."""
        if self.count % self._every == 0:
            self._rows.append(row)
        self.last = row
        self.count += 1
        if len(self._rows) >= MOST_MOMENTS:
            # Every second row is removed, so a long run stays evenly covered.
            self._rows = self._rows[::2]
            self._every *= 2

    def all(self) -> list[Moment]:
        """The kept rows, followed by the last row."""
        rows = self._rows
        # Always include the last row, because it shows how the run ended.
        if not rows or rows[-1] is self.last:
            return rows
        return [*rows, self.last]


class GpuTally:
    """Collects the samples of one GPU, its pauses and the time at which it was lost."""

    def __init__(self, first: GpuSample) -> None:
        self.first = first
        self.latest = first
        """The last sample in which the GPU was not lost."""
        self.moments = ThinnedMoments()
        self.pauses: list[tuple[float, float]] = []
        """For each pause, the second when it began and its length in seconds."""
        self.quiet_since: float | None = None
        self._stray_since: float | None = None
        """The second since which only stray kernels ran. This counts as quiet only if a sample
        without any kernel follows."""
        self.has_worked = False
        # The sum of utilisation over the samples with work, and the number of these samples.
        self._use = 0.0
        self._count = 0
        self.lost_at: str | None = None
        self.lost_since = 0.0
        """Seconds after the start of the run."""

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        """Add the GPU's next sample."""
        gpu = with_use_of_its_processes(gpu, self.latest)
        moment = Moment(gpu, sample)
        self.moments.add(moment)
        if gpu.lost:
            # A GPU may be lost, come back, and be lost again; the start of the latest loss counts.
            if self.lost_at is None:
                self.lost_since = sample.seconds
            self.lost_at = self.lost_at or sample.at
        else:
            self.lost_at = None
            self.latest = gpu
        if gpu.utilization_percent is not None:
            # NVML's value covers up to one second before the sample, so any work that it shows for
            # an empty GPU (without processes, and with less memory in use than any CUDA program
            # needs) has already ended.
            is_empty = gpu.processes == () and below(gpu.memory_used_bytes, marks.EMPTY_MEMORY)
            self._note_use(moment, 0.0 if is_empty else gpu.utilization_percent)

    def _note_use(self, moment: Moment, use: float) -> None:
        """Record whether the GPU works at this moment; quiet time stays undecided until work
        follows."""
        is_stray = self._is_stray(use)
        pause_goes_on = self.quiet_since is not None and is_stray
        if use <= marks.QUIET or pause_goes_on:
            if self.quiet_since is None:
                # If stray kernels ran just before, the pause begins with them.
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

    def _is_stray(self, use: float) -> bool:
        """Whether a utilisation shows no more than a stray kernel, which a GPU may run during a
        pause, for example in an evaluation on the CPU."""
        usual_use = self._use / max(1, self._count)
        # Only beside hard work is it that small; a GPU that usually works little is at work then.
        if usual_use < marks.LOW:
            return use <= marks.QUIET
        return use <= max(marks.STRAY_USE, usual_use * marks.STRAY_PART / 100)

    def _end_quiet(self, since: float, until: float) -> None:
        """Now that work follows a quiet stretch, decide what it was: the start-up, a short stutter
        (counted as work) or a pause."""
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


def with_use_of_its_processes(gpu: GpuSample, before: GpuSample) -> GpuSample:
    """The sample, in which the highest utilisation of its processes replaces the GPU's own value if
    that shows no work; otherwise unchanged.

    A GPU's counter only looks at short moments: an H100 (driver 580) that computed for 50 ms out of
    every 200 ms reported 0 %, while the same driver reported 25 % for its process.
    """
    own_use = gpu.utilization_percent
    if own_use is None or own_use > marks.QUIET:
        return gpu
    # A process's first value covers only its start: it was 85 % for a program that then did
    # nothing.
    seen_before = {process.pid for process in before.processes or ()}
    present = [process for process in gpu.processes or () if process.pid in seen_before]
    busiest_share = max((process.sm_percent or 0.0 for process in present), default=0.0)
    # A lower share comes only from a stray kernel.
    return replace(gpu, utilization_percent=busiest_share) if busiest_share >= marks.IDLE else gpu


NO_GPU = GpuSample(index=-1)
"""Stands in for the GPU in moments that are only about the command and the machine."""


class RunTally:
    """Collects the samples of one run: each GPU's, the command's and the machine's."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples = 0
        self.seconds = 0.0
        self.gpus: dict[int, GpuTally] = {}
        self.machine = GpuTally(NO_GPU)
        """What the command and the machine did, without a GPU."""
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Add the next sample."""
        self.samples += 1
        self.seconds = sample.seconds
        self.machine.add(NO_GPU, sample)
        for gpu in sample.gpus:
            # A GPU may appear later, because nvidia-smi leaves out GPUs that do not respond.
            self.gpus.setdefault(gpu.index, GpuTally(gpu)).add(gpu, sample)
