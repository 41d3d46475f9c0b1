"""What one GPU did in a run, taken apart: its work, its pauses, its memory, its end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample, GpuSummary, ProcessUse, Spread
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.tally import PAUSE, WORK, GpuTally
from gpusetup.monitor.work import (
    Moment,
    Work,
    below,
    is_quiet,
    mean,
    or_zero,
    percent,
    percentile,
    rated_watts,
    work_of,
)

WARM_UP_CHUNKS = 64
"""Parts of a run in which a warm-up is looked for."""
LAST_SAMPLES = 5
"""Samples of memory that are the end."""
LAST_WORKING_SAMPLES = 2
"""Samples with work at the end of a stretch without: what was killed in it shows some."""
SAMPLES_OF_A_LEAK = 8
"""Fewer samples do not show that memory grows all the time."""


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


class Gpu:
    """What one GPU did in a run, of its samples so far."""

    def __init__(self, tally: GpuTally) -> None:
        self.rows = tally.moments.all()
        self.tally = tally
        self.first = tally.first
        self.latest = tally.latest
        self.label = str(self.first.index)
        self.name = self.first.name
        self.lost_at = tally.lost_at
        self.lost_since = tally.lost_since
        gpus = [row.gpu for row in self.rows]
        self.utilization = mean(gpu.utilization_percent for gpu in gpus)
        """The mean over everything; None if it is not told (MIG)."""
        uses = [or_zero(gpu.utilization_percent) for gpu in gpus]
        self.utilization_p95 = percentile(uses, 95)
        heats = [gpu.temperature_celsius for gpu in gpus if gpu.temperature_celsius is not None]
        self.heat = percentile(heats, 95) if heats else None
        self.power_default = self.latest.power_limit_default_watts or rated_watts(self.name)
        """What the maker rated it at, as the card tells it, else by the catalog."""
        limits_at_work = [
            or_zero(gpu.pcie_limit_bytes_per_second) for gpu in gpus if not is_quiet(gpu)
        ]
        self.link_limit = percentile(limits_at_work, 75) if limits_at_work else 0.0
        """What its PCIe link can carry one way at work, bytes a second: at rest it is slower."""
        bytes_at_first = or_zero(self.first.memory_used_bytes)
        self.memory_rose = or_zero(self.latest.memory_used_bytes) - bytes_at_first
        """Bytes, from the first sample to the last."""

    @cached_property
    def parts(self) -> Parts:
        """The run taken apart. The start and the warm-up are in neither the work nor the pauses."""
        measured = [row for row in self.rows if row.gpu.utilization_percent is not None]
        body = [row for row in measured if row.phase in (WORK, PAUSE)]
        body = body[first_touch(body) :]
        work_begins = body[0].seconds if body else 0.0
        watching_begins = measured[0].seconds if measured else 0.0
        body = body[warm_up(body) :]
        judged_from = body[0].seconds if body else 0.0
        work = [row for row in body if row.phase == WORK]
        paused = [row for row in body if row.phase == PAUSE]
        after_work: list[Moment] = []
        if self.tally.has_worked:
            # Quiet that no later work has made a pause of yet.
            after_work = [row for row in measured if not row.phase]
        return Parts(
            work=work_of(work),
            body=work_of(body),
            paused=work_of(paused),
            whole=work_of(measured),
            rest=work_of(after_work),
            pauses=[length for since, length in self.tally.pauses if since >= judged_from],
            warm=judged_from - work_begins,
            start_up=work_begins - watching_begins if body else 0.0,
        )

    @cached_property
    def memory(self) -> Memory:
        shares = [row.gpu.memory_percent for row in self.rows]
        known_shares = [share for share in shares if share is not None]
        falls = peaks_before_a_fall(known_shares)
        last_shares = falls or known_shares[-LAST_SAMPLES:]
        return Memory(
            p95=percentile(known_shares, 95) if known_shares else None,
            peak=max(known_shares, default=0.0),
            last=max(last_shares, default=None),
            fell=len(falls) > 0,
            grew=grows_all_the_time(known_shares),
        )

    @cached_property
    def tail(self) -> Tail | None:
        """The last stretch in which it looked busy and drew little; None if there is none.

        Quiet neither begins nor ends it: a hang that was killed is quiet after it.
        """
        at_work = [
            row for row in self.rows if row.gpu.utilization_percent and not is_quiet(row.gpu)
        ]
        # The very last samples may show work again: what was killed ends with some.
        begin = 0
        for number, row in enumerate(at_work[:-LAST_WORKING_SAMPLES], 1):
            if not spins(row.gpu):
                begin = number
        before, spinning = at_work[:begin], at_work[begin:]
        if not spinning:
            return None
        since = spinning[0].seconds
        return Tail(since, spinning[-1].seconds - since, Work(spinning), work_of(before))

    @cached_property
    def processes(self) -> dict[int, ProcessUse]:
        """Every process that was on it, by its pid."""
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


def peaks_before_a_fall(shares: Sequence[float]) -> list[float]:
    """The highest share of the memory before each moment in which a full memory was nearly empty.

    >>> peaks_before_a_fall([80, 99, 99, 2, 1]), peaks_before_a_fall([80, 2])
    ([99, 99], [])
    """
    peaks = []
    for position, share in enumerate(shares):
        recent_shares = shares[max(0, position - LAST_SAMPLES) : position]
        recent_peak = max(recent_shares, default=0.0)
        if share < marks.MEMORY_GONE and recent_peak >= marks.MEMORY_FULL:
            peaks.append(recent_peak)
    return peaks


def grows_all_the_time(shares: Sequence[float]) -> bool:
    """Whether memory grew by much, and in each quarter of the run."""
    if len(shares) < SAMPLES_OF_A_LEAK:
        return False
    last = len(shares) - 1
    positions = [min(last, number * len(shares) // 4) for number in range(5)]
    quarters = [shares[position] for position in positions]
    growth = quarters[-1] - quarters[0]
    least_step = min(later - earlier for earlier, later in pairwise(quarters))
    # An even growth has a quarter of it in each quarter of the run; a third of that is asked for.
    return growth >= marks.LEAK_GROWTH and least_step >= growth / 12


def spins(gpu: GpuSample) -> bool:
    """It looks busy and hardly draws power."""
    limit_watts = gpu.power_limit_watts or rated_watts(gpu.name)
    share = percent(gpu.power_watts, limit_watts)
    is_busy = or_zero(gpu.utilization_percent) >= marks.SPINNING_USE
    return is_busy and below(share, marks.IDLE_POWER + marks.LIGHT_POWER)


def first_touch(body: Sequence[Moment]) -> int:
    """How many of the first moments belong to the start: the GPU was touched, then waited long.

    A program may move its model to the GPU and then load its data for a minute.
    """
    phases = [row.phase for row in body]
    if PAUSE not in phases:
        return 0
    pause_begins = phases.index(PAUSE)
    # Work comes first, and a pause lasts until there is work again.
    if pause_begins == 0 or WORK not in phases[pause_begins:]:
        return 0
    pause_ends = phases.index(WORK, pause_begins)
    touched_seconds = body[pause_begins].seconds - body[0].seconds
    paused_seconds = body[pause_ends].seconds - body[pause_begins].seconds
    is_touch = touched_seconds < marks.TOUCH_SECONDS and touched_seconds < paused_seconds
    return pause_ends if is_touch else 0


def warm_up(body: Sequence[Moment]) -> int:
    """How many of the first moments are a warm-up: much less work than what came later."""
    chunk_length = len(body) // WARM_UP_CHUNKS + 1
    uses = [or_zero(row.gpu.utilization_percent) for row in body]
    chunks = [uses[at : at + chunk_length] for at in range(0, len(uses), chunk_length)]
    levels = [fmean(chunk) for chunk in chunks]
    # The second half of the run is what it is like when it is warm.
    later_levels = levels[len(levels) // 2 :]
    usual_level = percentile(later_levels, 50) if levels else 0.0
    warm_level = usual_level * marks.WARMED_UP_USE
    warm_from = next((position for position, level in enumerate(levels) if level >= warm_level), 0)
    if not warm_from:
        return 0
    works_less = fmean(levels[:warm_from]) < usual_level * marks.WARM_UP_USE
    length = warm_from * chunk_length
    is_plausible = 3 <= length <= len(uses) * marks.LONGEST_WARM_UP / 100
    return length if works_less and is_plausible else 0


def spread(values: Iterable[float | None]) -> Spread | None:
    """How a figure is spread over a run; None if no sample tells it."""
    figures = [float(value) for value in values if value is not None]
    if not figures:
        return None
    return Spread(
        mean=round(fmean(figures), 2),
        p5=percentile(figures, 5),
        p95=percentile(figures, 95),
        peak=max(figures),
    )
