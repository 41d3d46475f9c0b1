"""What one GPU did in a run: its work, its pauses, its memory and how it ended. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from gpusetup.monitor import course, marks
from gpusetup.monitor.documents import GpuSample, GpuSummary, ProcessUse, Spread
from gpusetup.monitor.holders import big_holders, without_resting
from gpusetup.monitor.programs import is_display
from gpusetup.monitor.tally import PAUSE, WORK, GpuTally
from gpusetup.monitor.work import (
    Moment,
    Work,
    below,
    highest,
    is_quiet,
    mean,
    or_zero,
    percent,
    percentile,
    rated_watts,
    work_of,
)

WARM_UP_CHUNKS = 64
"""How many parts a run is divided into when we look for a warm-up."""
LAST_SAMPLES = 5
"""How many memory samples count as the end of a run."""
LAST_WORKING_SAMPLES = 2
"""How many working samples at the end to ignore, because a killed process may still run kernels."""


class Parts(NamedTuple):
    """One GPU's run, split into start-up, warm-up, work, pauses and the time after that."""

    work: Work | None
    """The work from first to last, without start-up, warm-up and pauses."""
    body: Work | None
    """The same as `work`, but including the pauses."""
    paused: Work | None
    """Only the pauses."""
    whole: Work | None
    """The means over all samples, including the start and the end."""
    rest: Work | None
    """The time after the last work."""
    pauses: Sequence[float]
    """The lengths of the pauses in seconds."""
    warm: float
    """How many seconds the warm-up took, with much less work than later; it is not judged."""
    start_up: float
    """Seconds before the first work; they are not judged."""

    @property
    def pause_share(self) -> float:
        """The percentage of samples between the first and the last work in which the GPU paused."""
        # If the GPU never worked or never paused, there is no share.
        if not self.paused or not self.body:
            return 0.0
        part = self.paused.samples / self.body.samples
        return part * 100

    @property
    def times(self) -> int:
        """The number of pauses."""
        return len(self.pauses)

    @property
    def longest_pause(self) -> float:
        """The length of the longest pause in seconds; 0 if there is none."""
        lengths = self.pauses
        return max(lengths, default=0.0)


class MemoryShare(NamedTuple):
    """How full a GPU's memory was during the run, in percent."""

    p95: float | None
    peak: float
    last: float | None
    """The highest value of the last seconds or, if memory suddenly became empty, of the seconds
    before."""
    fell: bool
    """Whether memory was full and then nearly empty, as if its process had run out of memory."""
    grew: bool
    """Whether memory grew a lot, and in each quarter of the run."""
    first: float
    full_in: float | None
    """Seconds from the end of the run until memory is full, if it keeps growing at this rate."""


class Tail(NamedTuple):
    """The last part of a run, in which a GPU looked busy but drew little power."""

    since: float
    seconds: float
    work: Work
    before: Work | None
    """The GPU's work before that part. It is kept apart because means over the whole run would hide
    a hang."""


class GpuRun:
    """What one GPU did in a run, computed from its samples."""

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
        """The mean over all samples; None if it is not reported (MIG)."""
        uses = [or_zero(gpu.utilization_percent) for gpu in gpus]
        self.utilization_p95 = percentile(uses, 95)
        told_heats = [gpu.temperature_celsius for gpu in gpus]
        heats = [heat for heat in told_heats if heat is not None]
        self.heat = percentile(heats, 95) if heats else None
        told_rating = self.latest.power_limit_default_watts
        self.power_default = told_rating or rated_watts(self.name)
        """The card's rated power in watts as the card reports it, otherwise from the catalog."""
        # An idle link is slower, to save power.
        working = [gpu for gpu in gpus if not is_quiet(gpu)]
        limits_at_work = [or_zero(gpu.pcie_limit_bytes_per_second) for gpu in working]
        # We take the 75th percentile, because the first samples after a rest still show the slow
        # link.
        self.link_limit = percentile(limits_at_work, 75) if limits_at_work else 0.0
        """Bytes per second that the GPU's PCIe link can carry one way while the GPU works."""
        self.highest_clock: float | None = highest(gpu.clock_sm_mhz for gpu in working)
        """The highest SM clock in MHz while the GPU worked. The run later replaces it with the
        highest clock of all cards of the same model."""
        # `nvidia-smi dmon` prints no names, but working cards of one model have the same memory
        # clock.
        memory_clock = highest(gpu.clock_memory_mhz for gpu in working)
        self.model = self.name or f"memory at {memory_clock} MHz"
        """Only GPUs with the same `model` can be compared by their clocks."""
        self.lanes: int | None = highest(gpu.pcie_width for gpu in working)
        """The highest number of PCIe lanes that the GPU used while it worked."""
        error_counts = [gpu.ecc_uncorrected for gpu in gpus if gpu.ecc_uncorrected is not None]
        errors_before = error_counts[0] if error_counts else 0
        self.new_memory_errors = max(error_counts, default=0) - errors_before
        """Uncorrectable memory errors since the first sample."""
        bytes_at_first = or_zero(self.first.memory_used_bytes)
        bytes_at_last = or_zero(self.latest.memory_used_bytes)
        self.memory_rose = bytes_at_last - bytes_at_first
        """How many bytes the memory in use grew by, from the first sample to the last."""

    @cached_property
    def parts(self) -> Parts:
        """The run, split into parts. Start-up and warm-up count neither as work nor as pauses."""
        measured = [row for row in self.rows if row.gpu.utilization_percent is not None]
        # Quiet samples have no phase until work follows them; only then do they become a pause.
        body = [row for row in measured if row.phase in (WORK, PAUSE)]
        body = body[first_touch(body) :]
        body = body[course.loading(body) :]
        work_begins = body[0].seconds if body else 0.0
        watching_begins = measured[0].seconds if measured else 0.0
        body = body[warm_up(body) :]
        judged_from = body[0].seconds if body else 0.0
        if self._ends_in_a_pause:
            body = [*body, *(row for row in measured if not row.phase)]
        work = [row for row in body if row.phase == WORK]
        paused = [row for row in body if row.phase != WORK]
        after_work: list[Moment] = []
        if self.tally.has_worked:
            after_work = [row for row in measured if not row.phase]
        # A pause before `judged_from` belongs to the start.
        pauses = [length for since, length in self.tally.pauses if since >= judged_from]
        return Parts(
            work=work_of(work, self.highest_clock),
            body=work_of(body, self.highest_clock),
            paused=work_of(paused),
            whole=work_of(measured),
            rest=work_of(after_work),
            pauses=pauses,
            warm=judged_from - work_begins,
            start_up=work_begins - watching_begins if body else 0.0,
        )

    @property
    def _ends_in_a_pause(self) -> bool:
        """Whether the recording ends in a quiet stretch of about the same length as the earlier
        pauses. If so, it counts as a pause."""
        lengths = [length for _, length in self.tally.pauses]
        since = self.tally.quiet_since
        if since is None or len(lengths) < 2:
            return False
        usual_length = percentile(lengths, 50)
        last_length = self.rows[-1].seconds - since
        return usual_length / 2 <= last_length <= usual_length * 1.5

    @cached_property
    def process_ends(self) -> list[course.ProcessEnd]:
        """The moments when a process on the GPU ended and freed its memory."""
        return course.process_ends(self.rows)

    @property
    def ended_at(self) -> float | None:
        """The second at which the last process ended without a successor, after which the GPU did
        nothing; None if the recording does not show such an end."""
        ends = self.process_ends
        is_over = bool(ends) and ends[-1].back_after is None
        since = self.tally.quiet_since
        if not is_over or since is None:
            return None
        return since

    @property
    def seconds_after_work(self) -> float:
        """Seconds from the GPU's last work to the recording's end; 0 if there is no such rest."""
        since = self.tally.quiet_since
        if since is None or not self.tally.has_worked:
            return 0.0
        return self.rows[-1].seconds - since

    @cached_property
    def memory(self) -> MemoryShare:
        """How full the GPU's memory was during the run."""
        shares = [row.gpu.memory_percent for row in self.rows]
        known_shares = [share for share in shares if share is not None]
        # If memory suddenly became empty, use the peak shortly before.
        falls = peaks_before_a_fall(known_shares)
        last_shares = falls or known_shares[-LAST_SAMPLES:]
        usual_share = percentile(known_shares, 95) if known_shares else None
        shares_at_work = [or_zero(row.gpu.memory_percent) for row in self._rows_since_work]
        return MemoryShare(
            p95=usual_share,
            peak=max(known_shares, default=0.0),
            last=max(last_shares, default=None),
            fell=len(falls) > 0,
            grew=course.grows_all_the_time(shares_at_work),
            first=shares_at_work[0] if shares_at_work else 0.0,
            full_in=self._full_in,
        )

    @property
    def _rows_since_work(self) -> list[Moment]:
        """The samples with known memory since the GPU's first work. Before that, a program loads
        its data, so growing memory is not a leak."""
        begin = self.rows[0].seconds + self.parts.start_up
        known_rows = [row for row in self.rows if row.gpu.memory_percent is not None]
        return [row for row in known_rows if row.seconds >= begin]

    @property
    def _full_in(self) -> float | None:
        """Seconds until memory is full if it keeps growing as in this run; None if it did not grow
        or there are too few samples."""
        known_rows = self._rows_since_work
        if len(known_rows) < course.SAMPLES_OF_A_LEAK:
            return None
        first, last = known_rows[0], known_rows[-1]
        last_share = or_zero(last.gpu.memory_percent)
        growth = last_share - or_zero(first.gpu.memory_percent)
        seconds = last.seconds - first.seconds
        if growth <= 0:
            return None
        return (100 - last_share) / growth * seconds

    @cached_property
    def tail(self) -> Tail | None:
        """The part at the end in which the GPU looked busy but drew little power; None if there is
        none.

        Quiet samples neither begin nor end this part, because after a hang was killed the GPU is
        quiet.
        """
        used = [row for row in self.rows if row.gpu.utilization_percent]
        at_work = [row for row in used if not is_quiet(row.gpu)]
        # The very last samples may show work again, because a process that is killed may still run
        # some kernels.
        without_last = at_work[:-LAST_WORKING_SAMPLES]
        begin = 0
        for number, row in enumerate(without_last, 1):
            if not spins(row.gpu):
                begin = number
        before = at_work[:begin]
        spinning = at_work[begin:]
        if not spinning:
            return None
        since = spinning[0].seconds
        length = spinning[-1].seconds - since
        return Tail(since, length, Work(spinning), work_of(before))

    @cached_property
    def processes(self) -> dict[int, ProcessUse]:
        """All processes that were on the GPU, by pid, each with its last known values."""
        processes = {}
        for row in self.rows:
            for process in row.gpu.processes or ():
                processes[process.pid] = process
        return processes

    @cached_property
    def holders(self) -> dict[int, str]:
        """The names of the processes that compute on the GPU, by pid; "" for a hidden name."""
        holders = {}
        for pid, process in self.processes.items():
            # In a container, names may be hidden.
            if not is_display(process):
                holders[pid] = process.name or ""
        return holders

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs that compute on the GPU, sorted and without duplicates."""
        names = set(self.holders.values())
        # Hidden names cannot distinguish programs.
        names.discard("")
        return tuple(sorted(names))

    @cached_property
    def big_holders(self) -> list[ProcessUse]:
        """The processes that used at least 10 % of the GPU's memory when it was fullest."""
        if not self.rows:
            return []
        fullest = max(self.rows, key=lambda row: or_zero(row.gpu.memory_used_bytes))
        return big_holders(fullest.gpu)

    @cached_property
    def sharers(self) -> list[ProcessUse]:
        """The processes from `big_holders` that may also compute on the GPU."""
        return without_resting(self.big_holders, [row.gpu for row in self.rows])

    @property
    def only_draws(self) -> bool:
        """Whether the GPU has processes, and all of them only draw on a screen."""
        has_processes = bool(self.processes)
        computes = bool(self.holders)
        return has_processes and not computes

    @property
    def has_process(self) -> bool | None:
        """Whether a process computed on the GPU; None if the source never listed processes."""
        for row in self.rows:
            # An empty list means that there are no processes; None means that the source does not
            # list them.
            if row.gpu.processes is not None:
                return bool(self.holders)
        return None

    def summary(self, *, has_worked: bool) -> GpuSummary:
        """This GPU's figures for the summary of the run.

        `has_worked`: whether the GPU did more than run stray kernels. If so, its start and the time
        after its process ended are left out.
        """
        work, first = self.parts.work, self.first
        gpus = [row.gpu for row in self.rows]
        if has_worked:
            # A mean over the program's start would say nothing about the training.
            first_work = self.rows[0].seconds + self.parts.start_up
            work_ends = self.rows[-1].seconds if self.ended_at is None else self.ended_at
            gpus = [row.gpu for row in self.rows if first_work <= row.seconds <= work_ends]
        reasons = work.reasons if work else {}
        throttled = {name: round(share / 100, 4) for name, share in reasons.items()}
        working_samples = work.samples if work else 0
        working_share = working_samples / len(self.rows)
        memory_bytes = self.latest.memory_total_bytes or first.memory_total_bytes
        return GpuSummary(
            index=first.index,
            name=first.name,
            uuid=first.uuid,
            samples=self.tally.moments.count,
            memory_total_bytes=memory_bytes,
            throttled=throttled,
            working_share=round(working_share, 4),
            lost_at=self.lost_at,
            utilization_percent=spread(gpu.utilization_percent for gpu in gpus),
            memory_busy_percent=spread(gpu.memory_busy_percent for gpu in gpus),
            memory_used_bytes=spread(gpu.memory_used_bytes for gpu in gpus),
            temperature_celsius=spread(gpu.temperature_celsius for gpu in gpus),
            power_watts=spread(gpu.power_watts for gpu in gpus),
            clock_sm_mhz=spread(gpu.clock_sm_mhz for gpu in gpus),
        )


def peaks_before_a_fall(shares: Sequence[float]) -> list[float]:
    """The memory's recent peak, in percent, at each sample where memory had been full and was
    suddenly nearly empty.

    >>> peaks_before_a_fall([80, 99, 99, 2, 1]), peaks_before_a_fall([80, 2])
    ([99, 99], [])
    """
    peaks = []
    for position, share in enumerate(shares):
        is_nearly_empty = share < marks.MEMORY_GONE
        # The fall may take several samples, while a program cleans up.
        earliest = max(0, position - LAST_SAMPLES)
        recent_shares = shares[earliest:position]
        recent_peak = max(recent_shares, default=0.0)
        was_full = recent_peak >= marks.MEMORY_FULL
        if is_nearly_empty and was_full:
            peaks.append(recent_peak)
    return peaks


def spins(gpu: GpuSample) -> bool:
    """Whether the GPU looks busy but draws hardly any power, as if it waits in a collective."""
    limit_watts = gpu.power_limit_watts or rated_watts(gpu.name)
    power_share = percent(gpu.power_watts, limit_watts)
    utilization = or_zero(gpu.utilization_percent)
    is_busy = utilization >= marks.SPINNING_USE
    # What light kernels draw comes on top of the card's idle power.
    light_power = marks.IDLE_POWER + marks.LIGHT_POWER
    return is_busy and below(power_share, light_power)


def first_touch(body: Sequence[Moment]) -> int:
    """How many samples at the start to leave out because the program touched the GPU briefly and
    then paused for longer.

    For example, a program may move its model to the GPU and then load its data for a minute.
    """
    phases = [row.phase for row in body]
    if PAUSE not in phases:
        return 0
    pause_begins = phases.index(PAUSE)
    later_phases = phases[pause_begins:]
    # There must be work both before and after the pause.
    if pause_begins == 0 or WORK not in later_phases:
        return 0
    pause_ends = phases.index(WORK, pause_begins)
    pause_begins_at = body[pause_begins].seconds
    touched_seconds = pause_begins_at - body[0].seconds
    paused_seconds = body[pause_ends].seconds - pause_begins_at
    is_short = touched_seconds < marks.TOUCH_SECONDS
    # If the work took longer than the pause, this is a training that pauses now and then.
    is_touch = is_short and touched_seconds < paused_seconds
    return pause_ends if is_touch else 0


LEAST_WARM_UP_SAMPLES = 3
"""The shortest warm-up in samples; in fewer samples, low utilisation may be chance."""


def warm_up(body: Sequence[Moment]) -> int:
    """How many samples at the start are warm-up, in which the GPU works much less than later; 0 if
    there are none."""
    chunk_length = len(body) // WARM_UP_CHUNKS + 1
    uses = [or_zero(row.gpu.utilization_percent) for row in body]
    levels = []
    for begin in range(0, len(uses), chunk_length):
        chunk = uses[begin : begin + chunk_length]
        levels.append(fmean(chunk))
    # The second half of the run shows how the GPU works when it is warm.
    later_levels = levels[len(levels) // 2 :]
    usual_level = percentile(later_levels, 50) if levels else 0.0
    warm_level = usual_level * marks.WARMED_UP_USE
    warm_chunks = (position for position, level in enumerate(levels) if level >= warm_level)
    warm_from = next(warm_chunks, 0)
    # The GPU was warm from the beginning, or never warmed up.
    if not warm_from:
        return 0
    cold_level = fmean(levels[:warm_from])
    works_less = cold_level < usual_level * marks.WARM_UP_USE
    length = warm_from * chunk_length
    longest = len(uses) * marks.LONGEST_WARM_UP / 100
    is_plausible = LEAST_WARM_UP_SAMPLES <= length <= longest
    return length if works_less and is_plausible else 0


def spread(values: Iterable[float | None]) -> Spread | None:
    """The mean, 5th and 95th percentile and peak of these values; None if all are unknown."""
    figures = [float(value) for value in values if value is not None]
    if not figures:
        return None
    return Spread(
        mean=round(fmean(figures), 2),
        p5=percentile(figures, 5),
        p95=percentile(figures, 95),
        peak=max(figures),
    )
