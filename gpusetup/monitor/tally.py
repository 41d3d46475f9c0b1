"""The samples of a run, kept in bounded memory, and what each GPU did in them. Pure.

At most `MOST_MOMENTS` samples of a GPU are kept, evenly over a run of any length. Which of them are
work, a pause or the start is told while they come; figures are computed from what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.documents import (
    GpuSample,
    GpuSummary,
    ProcessUse,
    Sample,
    Spread,
)
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.work import (
    Moment,
    Work,
    below,
    is_quiet,
    mean,
    percent,
    percentile,
    rated_watts,
    work_of,
)

MOST_MOMENTS = 1000
"""Rows of a run that are kept."""
WARM_UP_CHUNKS = 64
"""Parts of a run in which a warm-up is looked for."""
LAST_SAMPLES = 5
"""Samples of memory that are the end."""
LAST_WORKING_SAMPLES = 2
"""Samples with work at the end of a stretch without: what was killed in it shows some."""
START, WORK, PAUSE = "start", "work", "pause"


class ThinnedMoments:
    """Every first, second, fourth … row of what comes, and the last one."""

    def __init__(self) -> None:
        self._rows: list[Moment] = []
        self.count, self._every = 0, 1

    def add(self, row: Moment) -> None:
        if self.count % self._every == 0:
            self._rows.append(row)
        self.last = row
        self.count += 1
        if len(self._rows) >= MOST_MOMENTS:
            self._rows, self._every = self._rows[::2], self._every * 2

    def all(self) -> list[Moment]:
        if not self._rows or self._rows[-1] is self.last:
            return self._rows
        return [*self._rows, self.last]


class Parts(NamedTuple):
    """A run of one GPU, taken apart."""

    work: Work | None
    """Between its first and its last work, without start-up, warm-up and pauses."""
    body: Work | None
    """The same with the pauses."""
    paused: Work | None
    """The pauses alone."""
    whole: Work | None
    """All samples, the start and the end too."""
    rest: Work | None
    """What came after its last work."""
    pauses: Sequence[float]
    """Their lengths in seconds."""
    warm: float
    """Seconds of the first work that was much less than what came later; it is not judged."""
    start_up: float
    """Seconds before its first work; they are not judged."""

    @property
    def pause_share(self) -> float:
        """Percent of the samples between the first and the last work."""
        if not self.paused or not self.body:
            return 0.0
        return self.paused.samples / self.body.samples * 100

    @property
    def times(self) -> int:
        """How often it paused."""
        return len(self.pauses)

    @property
    def longest_pause(self) -> float:
        return max(self.pauses, default=0.0)


class Memory(NamedTuple):
    """The share of a GPU's memory over the run, percent."""

    p95: float | None
    peak: float
    last: float | None
    """The highest of the last seconds, or of those before it fell to nothing."""
    fell: bool
    """Whether memory was full and then nearly empty, as if its process ran out of it."""
    grew: bool
    """Whether memory grew by much, and in each quarter of the run."""


class Tail(NamedTuple):
    """The last stretch in which a GPU looked busy and drew little."""

    since: float
    seconds: float
    work: Work
    before: Work | None
    """Its work before that. Means over the whole run hide a hang."""


class GpuTally:
    """The samples of one GPU as they come."""

    def __init__(self, first: GpuSample) -> None:
        self.first = self.latest = first
        self.moments = ThinnedMoments()
        self.pauses: list[tuple[float, float]] = []
        """Since when, and for how many seconds."""
        self.quiet_since: float | None = None
        self.has_worked, self._use, self._count = False, 0.0, 0
        self.lost_at: str | None = None
        self.lost_since = 0.0
        """Seconds after the start."""

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        moment = Moment(gpu, sample)
        self.moments.add(moment)
        if gpu.lost and self.lost_at is None:
            self.lost_since = sample.seconds
        self.lost_at = (self.lost_at or sample.at) if gpu.lost else None
        self.latest = self.latest if gpu.lost else gpu
        if gpu.utilization_percent is not None:
            # NVML's figure is of up to a second before: what it shows of an empty GPU has ended.
            use = 0.0 if is_empty(gpu) else gpu.utilization_percent
            self._note_use(moment, use)

    def _note_use(self, moment: Moment, use: float) -> None:
        """Work, or quiet that waits to be told a stutter, a pause or the end."""
        usual_use = self._use / max(1, self._count)
        after_work = self.quiet_since is not None and usual_use >= marks.LOW
        if use <= (marks.STRAY_USE if after_work else marks.QUIET):
            self.quiet_since = moment.seconds if self.quiet_since is None else self.quiet_since
            return
        if self.quiet_since is not None:
            self._end_quiet(self.quiet_since, moment.seconds)
        moment.phase, self.has_worked = WORK, True
        self._use, self._count = self._use + use, self._count + 1

    def _end_quiet(self, since: float, now: float) -> None:
        """Work came after quiet: it was the start-up, a stutter or a pause."""
        if not self.has_worked:
            phase = START
        elif now - since < marks.PAUSE_SECONDS:
            phase = WORK
        else:
            phase = PAUSE
            self.pauses.append((since, now - since))
        for moment in reversed(self.moments.all()):
            if moment.seconds < since:
                break
            moment.phase = phase
        self.quiet_since = None


class Gpu:
    """What one GPU did in a run, of its samples so far."""

    def __init__(self, tally: GpuTally) -> None:
        self.rows = tally.moments.all()
        self.tally, self.first, self.latest = tally, tally.first, tally.latest
        self.label, self.name = str(self.first.index), self.first.name
        self.lost_at, self.lost_since = tally.lost_at, tally.lost_since
        gpus = [row.gpu for row in self.rows]
        used = [gpu.utilization_percent for gpu in gpus]
        heat = [one for gpu in gpus if (one := gpu.temperature_celsius) is not None]
        self.utilization = mean(used)
        """The mean over everything; None if it is not told (MIG)."""
        self.utilization_p95 = percentile([use or 0.0 for use in used], 95)
        self.heat = percentile(heat, 95) if heat else None
        self.power_default = self.latest.power_limit_default_watts or rated_watts(self.name)
        """What the maker rated it at, as the card tells it, else by the catalog."""
        busy = [gpu.pcie_limit_bytes_per_second or 0.0 for gpu in gpus if not is_quiet(gpu)]
        self.link_limit = percentile(busy, 75) if busy else 0.0
        """What its PCIe link can carry one way at work, bytes a second: at rest it is slower."""
        begun = self.first.memory_used_bytes or 0
        self.memory_rose = (self.latest.memory_used_bytes or 0) - begun
        """Bytes, from the first sample to the last."""

    @cached_property
    def parts(self) -> Parts:
        """The warm-up is in neither the work nor the pauses."""
        known = [row for row in self.rows if row.gpu.utilization_percent is not None]
        body = [row for row in known if row.phase in (WORK, PAUSE)]
        body = body[first_touch(body) :]
        start = body[0].seconds if body else 0.0
        watched_from = known[0].seconds if known else 0.0
        body = body[warm_up(body) :]
        judged_from = body[0].seconds if body else 0.0
        return Parts(
            work=work_of([row for row in body if row.phase == WORK]),
            body=work_of(body),
            paused=work_of([row for row in body if row.phase == PAUSE]),
            whole=work_of(known),
            rest=work_of([row for row in known if not row.phase])
            if self.tally.has_worked
            else None,
            pauses=[length for at, length in self.tally.pauses if at >= judged_from],
            warm=judged_from - start,
            start_up=start - watched_from if body else 0.0,
        )

    @cached_property
    def memory(self) -> Memory:
        shares_or_none = (row.gpu.memory_percent for row in self.rows)
        shares = [share for share in shares_or_none if share is not None]
        peaks_before_fall = [
            recent_peak
            for n, share in enumerate(shares)
            if share < marks.MEMORY_GONE
            and (recent_peak := max(shares[max(0, n - LAST_SAMPLES) : n], default=0.0))
            >= marks.MEMORY_FULL
        ]
        quarters = (
            [shares[min(len(shares) - 1, n * len(shares) // 4)] for n in range(5)]
            if shares
            else [0.0]
        )
        steps = [later - earlier for earlier, later in pairwise(quarters)]
        growth = quarters[-1] - quarters[0]
        return Memory(
            p95=percentile(shares, 95) if shares else None,
            peak=max(shares, default=0.0),
            last=max(peaks_before_fall or shares[-LAST_SAMPLES:], default=None),
            fell=bool(peaks_before_fall),
            grew=len(shares) >= 8 and growth >= marks.LEAK_GROWTH and min(steps) >= growth / 12,
        )

    @cached_property
    def tail(self) -> Tail | None:
        """Quiet neither begins nor ends it: a hang that was killed is quiet after it."""
        at_work = [
            row for row in self.rows if row.gpu.utilization_percent and not is_quiet(row.gpu)
        ]
        last_strays = [
            n for n, row in enumerate(at_work[:-LAST_WORKING_SAMPLES], 1) if not spins(row.gpu)
        ]
        begin = last_strays[-1] if last_strays else 0
        before, spinning = at_work[:begin], at_work[begin:]
        if not spinning:
            return None
        since = spinning[0].seconds
        return Tail(since, spinning[-1].seconds - since, Work(spinning), work_of(before))

    @cached_property
    def processes(self) -> dict[int, ProcessUse]:
        """Every process that was seen on it."""
        processes = {}
        for row in self.rows:
            for process in row.gpu.processes or ():
                processes[process.pid] = process
        return processes

    @cached_property
    def holders(self) -> dict[int, str]:
        """The names of those that compute."""
        holders = {}
        for pid, process in self.processes.items():
            if not is_display(process):
                holders[pid] = process.name or ""
        return holders

    @property
    def programs(self) -> tuple[str, ...]:
        names = set(self.holders.values()) - {""}
        return tuple(sorted(names))

    @property
    def only_draws(self) -> bool:
        """Only programs that draw were ever seen."""
        return bool(self.processes) and not self.holders

    @property
    def has_process(self) -> bool | None:
        """Whether a process that computes was ever seen; None if processes are not told."""
        are_known = any(row.gpu.processes is not None for row in self.rows)
        return bool(self.holders) if are_known else None

    def summary(self) -> GpuSummary:
        work, first = self.parts.work, self.first
        # A mean with the program's start in it would say nothing about the training.
        first_work = self.rows[0].seconds + self.parts.start_up
        gpus = [row.gpu for row in self.rows if row.seconds >= first_work]
        reasons = work.reasons if work else {}
        working_samples = work.samples if work else 0
        return GpuSummary(
            index=first.index,
            name=first.name,
            uuid=first.uuid,
            samples=self.tally.moments.count,
            memory_total_bytes=self.latest.memory_total_bytes or first.memory_total_bytes,
            throttled={name: round(percent / 100, 4) for name, percent in reasons.items()},
            working_share=round(working_samples / len(self.rows), 4),
            lost_at=self.lost_at,
            utilization_percent=spread(gpu.utilization_percent for gpu in gpus),
            memory_busy_percent=spread(gpu.memory_busy_percent for gpu in gpus),
            memory_used_bytes=spread(gpu.memory_used_bytes for gpu in gpus),
            temperature_celsius=spread(gpu.temperature_celsius for gpu in gpus),
            power_watts=spread(gpu.power_watts for gpu in gpus),
            clock_sm_mhz=spread(gpu.clock_sm_mhz for gpu in gpus),
        )


def is_empty(gpu: GpuSample) -> bool:
    """Whether no process is on a GPU, and less memory in use than any CUDA program needs."""
    lists_none = gpu.processes is not None and not gpu.processes
    return lists_none and below(gpu.memory_used_bytes, marks.EMPTY_MEMORY)


def spins(gpu: GpuSample) -> bool:
    """It looks busy and hardly draws power."""
    share = percent(gpu.power_watts, gpu.power_limit_watts or rated_watts(gpu.name))
    busy = (gpu.utilization_percent or 0.0) >= marks.SPINNING_USE
    return busy and share is not None and share < marks.IDLE_POWER + marks.LIGHT_POWER


def first_touch(body: Sequence[Moment]) -> int:
    """How many of the first moments belong to the start: the GPU was touched, then waited long.

    A program may move its model to the GPU and then load its data for a minute.
    """
    pause_begins = next((n for n, row in enumerate(body) if row.phase == PAUSE), 0)
    after_pause = (n for n, row in enumerate(body) if n > pause_begins and row.phase == WORK)
    pause_ends = next(after_pause, 0)
    if not pause_begins or not pause_ends:
        return 0
    touched_seconds = body[pause_begins].seconds - body[0].seconds
    paused_seconds = body[pause_ends].seconds - body[pause_begins].seconds
    is_touch = touched_seconds < marks.TOUCH_SECONDS and touched_seconds < paused_seconds
    return pause_ends if is_touch else 0


def warm_up(body: Sequence[Moment]) -> int:
    """How many of the first moments are a warm-up: much less work than what came later."""
    size = len(body) // WARM_UP_CHUNKS + 1
    use = [row.gpu.utilization_percent or 0.0 for row in body]
    levels = [fmean(use[at : at + size]) for at in range(0, len(use), size)]
    usual = percentile(levels[len(levels) // 2 :], 50) if levels else 0.0
    full_from = next(
        (n for n, level in enumerate(levels) if level >= usual * marks.WARMED_UP_USE), 0
    )
    works_less = full_from and fmean(levels[:full_from]) < usual * marks.WARM_UP_USE
    is_plausible = 3 <= full_from * size <= len(use) * marks.LONGEST_WARM_UP / 100
    return full_from * size if works_less and is_plausible else 0


def spread(values: Iterable[float | None]) -> Spread | None:
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    p5, p95 = (percentile(known, share) for share in (5, 95))
    return Spread(mean=round(fmean(known), 2), p5=p5, p95=p95, peak=max(known))


NO_GPU = GpuSample(index=-1)
"""What stands for a GPU in the moments of a machine."""


class Tally:
    """Everything about one run."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples, self.seconds = 0, 0.0
        self.gpus: dict[int, GpuTally] = {}
        self.moments = ThinnedMoments()
        """The command and the machine, with no GPU."""
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        self.samples, self.seconds = self.samples + 1, sample.seconds
        self.moments.add(Moment(NO_GPU, sample))
        for gpu in sample.gpus:
            if gpu.index not in self.gpus:
                self.gpus[gpu.index] = GpuTally(gpu)
            self.gpus[gpu.index].add(gpu, sample)
