"""What one GPU did in a run: its work, its pauses, its memory and how it ended. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from typing import NamedTuple

from gpusetup.model.frozen import replace
from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample, ProcessUse, Sample
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.work import Moment, Work, at_least, below, is_quiet, mean, or_zero, percentile


class Parts(NamedTuple):
    """One GPU's run, split into its start, work and pauses."""

    work: Work | None
    """The work from first to last, without the start and the pauses."""
    work_and_pauses: Work | None
    """The same as `work`, but including the pauses."""
    pauses: Sequence[float]
    """The lengths of the pauses in seconds."""
    start_seconds: float
    """Seconds before the first work, which are not judged."""

    @property
    def pause_share(self) -> float:
        """The percentage of samples between the first and the last work in which the GPU paused; 0
        if it never worked."""
        if not self.work or not self.work_and_pauses:
            return 0.0
        return 100 - len(self.work.rows) / len(self.work_and_pauses.rows) * 100


class MemoryShare(NamedTuple):
    """How full a GPU's memory was during the run, in percent."""

    p95: float | None
    peak: float
    grew: bool
    """Whether memory grew a lot since the work began, and in each quarter of that time."""
    first: float
    """How full it was when the work began or, if the GPU never worked, in the first sample."""


class GpuRun:
    """What one GPU did in a run, according to its samples."""

    def __init__(self, rows: Sequence[Moment]) -> None:
        self.rows = rows
        self.first = rows[0].gpu
        self.label, self.name = str(self.first.index), self.first.name
        present = [row.gpu for row in rows if not row.gpu.lost]
        self.latest = present[-1] if present else self.first
        """The last sample in which the GPU was not lost."""
        # Backwards from the end, because a GPU may come back, so that an earlier loss is over.
        lost_backwards = list(takewhile(lambda row: row.gpu.lost, reversed(rows)))
        self.lost_since = lost_backwards[-1].sample if lost_backwards else None
        """The sample since which the GPU has been lost; None if it is not lost at the end."""
        self.measured_rows = [row for row in rows if row.gpu.utilization_percent is not None]
        """The samples that report the utilisation."""

    @cached_property
    def utilization(self) -> float | None:
        """The mean over all samples; None if it is not reported (MIG)."""
        return mean(row.gpu.utilization_percent for row in self.rows)

    @cached_property
    def heat(self) -> float | None:
        """The 95th percentile of the temperature in °C; None if it is not reported."""
        reported = [row.gpu.temperature_celsius for row in self.rows]
        temperatures = [value for value in reported if value is not None]
        return percentile(temperatures, 95) if temperatures else None

    @cached_property
    def parts(self) -> Parts:
        """The run, split into parts. The start counts neither as work nor as a pause."""
        working = [index for index, row in enumerate(self.measured_rows) if not is_quiet(row.gpu)]
        if not working:
            return Parts(work=None, work_and_pauses=None, pauses=(), start_seconds=0.0)
        body = self.measured_rows[working[0] : working[-1] + 1]
        work: list[Moment] = []
        quiet: list[Moment] = []
        pauses = []
        for row in body:
            if is_quiet(row.gpu):
                quiet.append(row)
                continue
            # Now that work follows, a quiet stretch was a pause, or a short stutter of the work.
            length = row.seconds - quiet[0].seconds if quiet else 0.0
            if length >= marks.PAUSE_SECONDS:
                pauses.append(length)
            else:
                work += quiet
            work.append(row)
            quiet = []
        return Parts(
            work=Work(work),
            work_and_pauses=Work(body),
            pauses=pauses,
            start_seconds=body[0].seconds - self.measured_rows[0].seconds,
        )

    @property
    def judged_work(self) -> Work | None:
        """The work without the pauses, which every training makes for evaluation and checkpoints,
        or with them if they take more than 17 % of the time; None if the GPU never worked."""
        pauses_are_usual = self.parts.pause_share <= marks.PAUSE_SHARE
        return self.parts.work if pauses_are_usual else self.parts.work_and_pauses

    @cached_property
    def worked(self) -> bool:
        """Whether the GPU worked in the run; a few stray kernels or a display do not count."""
        utilization = or_zero(self.utilization)
        # A game or a renderer may be listed as drawing too, so a card that works hard counts.
        if self.judged_work is None or (self.only_draws and utilization < marks.LOW):
            return False
        # If the GPU worked during only part of the run, the 95th percentile shows it.
        uses = [or_zero(row.gpu.utilization_percent) for row in self.rows]
        return utilization >= marks.IDLE or percentile(uses, 95) >= marks.WORKED_P95

    @cached_property
    def seconds_after_work(self) -> float:
        """Seconds from the end of the GPU's work to the end of the recording; 0 if it worked until
        the end, or never."""
        backwards = reversed(self.measured_rows)
        quiet_backwards = list(takewhile(lambda row: is_quiet(row.gpu), backwards))
        if not quiet_backwards or self.parts.work is None:
            return 0.0
        return self.rows[-1].seconds - quiet_backwards[-1].seconds

    @property
    def is_occupied_at_the_end(self) -> bool:
        """Whether a process computed on the GPU in the last sample in which it was not lost or, if
        that lists no processes, whether more memory was in use than a desktop needs."""
        if self.latest.processes is not None:
            return not all(map(is_display, self.latest.processes))
        return at_least(self.latest.memory_percent, marks.DESKTOP_MEMORY)

    @cached_property
    def memory(self) -> MemoryShare:
        """How full the GPU's memory was during the run."""
        every_row = [(row.seconds, row.gpu.memory_percent) for row in self.rows]
        known = [(seconds, share) for seconds, share in every_row if share is not None]
        shares = [share for _, share in known]
        # Before its first work, a program loads its data, so growing memory is not a leak. A GPU
        # that never worked may still fill up.
        begin = self.parts.work.rows[0].seconds if self.parts.work else 0.0
        since_begin = [share for seconds, share in known if seconds >= begin]
        return MemoryShare(
            p95=percentile(shares, 95) if shares else None,
            peak=max(shares, default=0.0),
            grew=grows_all_the_time(since_begin),
            first=since_begin[0] if since_begin else 0.0,
        )

    @cached_property
    def processes(self) -> dict[int, ProcessUse]:
        """All processes that were on the GPU, by pid, each with its last known values."""
        return {process.pid: process for row in self.rows for process in row.gpu.processes or ()}

    @cached_property
    def holders(self) -> dict[int, str]:
        """The names of the processes that compute on the GPU, by pid; "" for a hidden name, as in a
        container."""
        computing = [process for process in self.processes.values() if not is_display(process)]
        return {process.pid: process.name or "" for process in computing}

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs that compute on the GPU, sorted and without duplicates."""
        return tuple(sorted({name for name in self.holders.values() if name}))

    @cached_property
    def big_holders(self) -> list[ProcessUse]:
        """The processes that used at least 10 % of the GPU's memory when it was fullest, largest
        first. Empty if a process's memory (on Windows) or the GPU's is not reported."""
        fullest = max(self.rows, key=lambda row: or_zero(row.gpu.memory_used_bytes)).gpu
        least = (fullest.memory_total_bytes or math.inf) * marks.BIG_HOLDER / 100
        big = [each for each in fullest.processes or () if or_zero(each.memory_bytes) >= least]
        return sorted(big, key=lambda process: -or_zero(process.memory_bytes))

    @property
    def only_draws(self) -> bool:
        """Whether the GPU has processes, and all of them only draw on a screen."""
        return bool(self.processes) and not self.holders

    @cached_property
    def was_occupied(self) -> bool:
        """Whether a process computed on the GPU during the run or, if no sample lists processes,
        whether more memory was in use than a desktop needs."""
        lists_processes = any(row.gpu.processes is not None for row in self.rows)
        if lists_processes:
            return bool(self.holders)
        return at_least(self.memory.p95, marks.DESKTOP_MEMORY)


def gpu_runs(samples: Iterable[Sample]) -> tuple[GpuRun, ...]:
    """What each GPU did in a run with these samples. A GPU may appear later, because nvidia-smi
    leaves out GPUs that do not respond."""
    rows: dict[int, list[Moment]] = {}
    for sample in samples:
        for gpu in sample.gpus:
            earlier = rows.setdefault(gpu.index, [])
            # In its first sample, a GPU has no previous one, and its processes count as seen.
            before = earlier[-1].gpu if earlier else gpu
            corrected = replace(gpu, utilization_percent=corrected_utilization(gpu, before))
            earlier.append(Moment(corrected, sample))
    return tuple(map(GpuRun, rows.values()))


def corrected_utilization(gpu: GpuSample, before: GpuSample) -> float | None:
    """The GPU's utilisation, corrected by its processes: 0 if nothing can compute on it, and that
    of the busiest process if the GPU's own value shows no work. `before` is the GPU's previous
    sample.

    A GPU's counter only looks at short moments: an H100 (driver 580) that computed for 50 ms out of
    every 200 ms reported 0 %, while the same driver reported 25 % for its process.
    """
    reported = gpu.utilization_percent
    # NVML's value covers up to one second before the sample, so any work that it shows for an empty
    # GPU (with less memory in use than any CUDA program needs) has already ended.
    if reported and gpu.processes == () and below(gpu.memory_used_bytes, marks.EMPTY_MEMORY):
        return 0.0
    if not is_quiet(gpu):
        return reported
    # A process's first value covers only its start: 85 % for a program that then did nothing.
    seen_before = {process.pid for process in before.processes or ()}
    present = [process for process in gpu.processes or () if process.pid in seen_before]
    busiest_share = max((process.sm_percent or 0.0 for process in present), default=0.0)
    # A lower share comes only from a stray kernel.
    return busiest_share if busiest_share >= marks.IDLE else reported


SAMPLES_OF_A_LEAK = 8
"""Fewer samples cannot show that memory grows all the time."""


def grows_all_the_time(shares: Sequence[float]) -> bool:
    """Whether memory grew by at least `LEAK_GROWTH` percentage points over the run, and in every
    quarter of the run."""
    if len(shares) < SAMPLES_OF_A_LEAK:
        return False
    # The shares at the beginning, after each quarter, and at the end.
    last = len(shares) - 1
    quarters = [shares[number * last // 4] for number in range(5)]
    growth = quarters[-1] - quarters[0]
    # Growth is seldom even, so a third of the average growth is enough in each quarter.
    least = min(later - earlier for earlier, later in pairwise(quarters))
    average = growth / 4
    return growth >= marks.LEAK_GROWTH and least >= average / 3
