"""The course of a GPU's run over time: when its process ended or started again, recurring phases of
less work, and a steady rhythm of work and rest. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import fmean, median, pstdev
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample
from gpusetup.monitor.work import Moment, is_quiet, or_zero, percentile

RECENT_SAMPLES = 5
"""How many samples we look back for the memory's peak before a process ended, because freeing the
memory may take several samples."""
LEAST_PHASE_SECONDS = 10.0
"""The shortest phase, in seconds. No batch takes this long, so a stretch of at least this length
must be a phase of the program."""
SMOOTHING = 5
"""The window of a moving median, in samples. It is so long that a single busy or idle sample
neither begins nor ends a phase."""
LENGTH_SPREAD = 2.0
"""Phases of the same kind differ in length by less than this factor."""
LEAST_CYCLES = 8
"""The fewest cycles of work and rest that can show a rhythm; with fewer, their steadiness may be
chance."""
LEAST_PHASES = 3
"""Two phases have only one distance between them, which cannot show regularity."""
LEAST_STEADY_PART = 0.8
"""Between slow phases, the GPU must work at this fraction of its usual level or more in 90 % of the
samples."""
PERIOD_SPREAD = 0.2
"""The largest standard deviation of the time between phases, as a fraction of its mean. Epochs with
a fixed number of steps vary less."""
UNEVEN_CYCLES = 0.4
"""The largest standard deviation of the cycle length that counts as regular, as a fraction of its
mean. Requests that arrive at random reach 0.6 and more; a training that waits for its loader
reaches 0.3, because some batches take longer to load."""
LEAST_WORK_IN_A_CYCLE = 15.0
"""The least share of a cycle in which the GPU works, in percent. A GPU that works less serves
requests or an interactive user."""
LONGEST_CYCLE_SECONDS = 25.0
"""Loading several batches ahead and using them up may take this long. A longer cycle is a phase of
the program."""
CONSTANT_MEMORY = 5.0
"""By how many percentage points memory may vary while a training waits for its next batch."""
SAMPLES_OF_A_LEAK = 8
"""Fewer samples cannot show that memory grows all the time."""


class ProcessEnd(NamedTuple):
    """The moment when a GPU's memory was freed because its process ended."""

    second: float
    peak: float | None
    """How full the memory was just before, in percent; None if the memory size is unknown."""
    back_after: float | None
    """How many seconds later a process used memory again; None if none did."""


class SlowPhases(NamedTuple):
    """Recurring phases in which a GPU works much less, between phases of full work."""

    times: int
    seconds: float
    """The usual length of a phase, in seconds."""
    period: float
    """The usual time from the start of one phase to the start of the next, in seconds."""
    share: float
    """The percentage of the time that the phases take."""
    utilization: float
    """The mean utilisation during the phases, in percent."""
    full_utilization: float
    """The mean utilisation between the phases, in percent."""


class Stretch(NamedTuple):
    """Consecutive samples that belong together."""

    since: float
    seconds: float
    rows: Sequence[Moment]


# --- processes that end ---------------------------------------------------------------------------


def process_ends(rows: Sequence[Moment]) -> list[ProcessEnd]:
    """The moments when the GPU's memory was freed, each with the time until it was used again."""
    known_rows = [row for row in rows if tells_its_memory(row.gpu)]
    if not known_rows:
        return []
    free_bytes = most_free_bytes(known_rows[0].gpu)
    least_held_bytes = free_bytes + marks.CUDA_CONTEXT
    ends: list[ProcessEnd] = []
    is_held = False
    for position, row in enumerate(known_rows):
        used_bytes = or_zero(row.gpu.memory_used_bytes)
        if used_bytes >= least_held_bytes:
            if ends and not is_held:
                absence = row.seconds - ends[-1].second
                ends[-1] = ends[-1]._replace(back_after=absence)
            is_held = True
        elif used_bytes <= free_bytes and is_held:
            recent = known_rows[max(0, position - RECENT_SAMPLES) : position]
            shares = [or_zero(moment.gpu.memory_percent) for moment in recent]
            peak = max(shares) or None
            ends.append(ProcessEnd(row.seconds, peak, None))
            is_held = False
    return ends


def tells_its_memory(gpu: GpuSample) -> bool:
    """Whether a sample shows how much memory the processes on the GPU use."""
    # Exclude memory shared with the CPU, which is never empty, and lost GPUs, which report nothing.
    return gpu.memory_used_bytes is not None and not gpu.memory_is_unified and not gpu.lost


def most_free_bytes(first: GpuSample) -> float:
    """How many bytes may be in use while no process uses the GPU: the driver's share or, on a card
    with a desktop, about as much as in the first sample."""
    first_bytes = or_zero(first.memory_used_bytes)
    first_share = or_zero(first.memory_percent)
    # If the GPU is quiet and nearly empty at first, only the desktop's programs are in memory.
    is_desktop_alone = is_quiet(first) and first_share < marks.DESKTOP_MEMORY
    if not is_desktop_alone:
        return marks.EMPTY_MEMORY
    # Allow 10 % more, because the desktop's memory varies.
    return max(marks.EMPTY_MEMORY, first_bytes * 1.1)


# --- memory that grows ---------------------------------------------------------------------------


QUARTERS = 4


def grows_all_the_time(shares: Sequence[float], least_growth: float = marks.LEAK_GROWTH) -> bool:
    """Whether memory grew by at least `least_growth` percentage points over the run, and in every
    quarter of the run."""
    if len(shares) < SAMPLES_OF_A_LEAK:
        return False
    last = len(shares) - 1
    quarters = []
    for number in range(QUARTERS + 1):
        position = number * len(shares) // QUARTERS
        quarters.append(shares[min(last, position)])
    growth = quarters[-1] - quarters[0]
    steps = [later - earlier for earlier, later in pairwise(quarters)]
    # With even growth, each quarter of the run has a quarter of the total. We require a third of
    # that.
    least_step = growth / 12
    grows_in_each = min(steps) >= least_step
    return growth >= least_growth and grows_in_each


# --- phases ---------------------------------------------------------------------------------------


def slow_phases(rows: Sequence[Moment]) -> SlowPhases | None:
    """The regular phases of much less work between phases of full work; None if there are none."""
    if not rows:
        return None
    uses = smoothed([or_zero(row.gpu.utilization_percent) for row in rows])
    full_use = percentile(uses, 90)
    low_mark = full_use - marks.USE_DIFFERENCE
    # If the GPU is not fully busy between the phases, they are not exceptional.
    if full_use < marks.BUSY:
        return None
    is_low = [use < low_mark for use in uses]
    long_stretches = []
    for stretch in stretches_of(rows, is_low):
        # Leave out the last stretch if the recording ends within it, because it may be incomplete.
        is_whole = stretch.rows[-1] is not rows[-1]
        if stretch.seconds >= LEAST_PHASE_SECONDS and is_whole:
            long_stretches.append(stretch)
    lengths = [stretch.seconds for stretch in long_stretches]
    periods = [after.since - before.since for before, after in pairwise(long_stretches)]
    if len(lengths) < LEAST_PHASES or not are_alike(lengths) or not are_even(periods):
        return None
    usual_length = median(lengths)
    usual_period = median(periods)
    # A phase that takes half of the period is not an interruption of the work.
    if usual_length * 2 >= usual_period:
        return None
    low_rows = [row for stretch in long_stretches for row in stretch.rows]
    full_rows = rows_between(rows, long_stretches)
    is_a_drop = mean_use(full_rows) - mean_use(low_rows) >= marks.USE_DIFFERENCE
    # After smoothing, a short cycle of work and rest may also show longer stretches of less work by
    # chance.
    if not is_a_drop or not is_steady(full_rows):
        return None
    return SlowPhases(
        times=len(lengths),
        seconds=usual_length,
        period=usual_period,
        # The share is computed from one period, because the recording may begin or end anywhere in
        # a period.
        share=usual_length / usual_period * 100,
        utilization=mean_use(low_rows),
        full_utilization=mean_use(full_rows),
    )


def smoothed(values: Sequence[float]) -> list[float]:
    """The moving median of these values.

    >>> smoothed([9, 9, 0, 9, 9])
    [9, 9, 9, 9, 9]
    """
    reach = SMOOTHING // 2
    medians = []
    for position in range(len(values)):
        window = values[max(0, position - reach) : position + reach + 1]
        medians.append(percentile(window, 50))
    return medians


def stretches_of(rows: Sequence[Moment], chosen: Sequence[bool]) -> list[Stretch]:
    """The stretches of consecutive chosen rows; each lasts until the next row that is not
    chosen."""
    stretches = []
    positions = range(len(rows))
    for is_chosen, group in groupby(positions, lambda position: chosen[position]):
        members = [rows[position] for position in group]
        if is_chosen:
            stretches.append(members)
    timed = []
    next_seconds = {id(before): after.seconds for before, after in pairwise(rows)}
    for members in stretches:
        begin = members[0].seconds
        end = next_seconds.get(id(members[-1]), members[-1].seconds)
        timed.append(Stretch(begin, end - begin, members))
    return timed


def rows_between(rows: Sequence[Moment], phases: Sequence[Stretch]) -> list[Moment]:
    """The samples outside these phases, up to the beginning of the last phase."""
    in_phases = {id(row) for phase in phases for row in phase.rows}
    last_phase = phases[-1]
    return [row for row in rows if id(row) not in in_phases and row.seconds < last_phase.since]


def is_steady(rows: Sequence[Moment]) -> bool:
    """Whether the GPU's utilisation is about the same in nearly all of these samples."""
    uses = [or_zero(row.gpu.utilization_percent) for row in rows]
    if not uses:
        return False
    return percentile(uses, 10) >= percentile(uses, 50) * LEAST_STEADY_PART


def are_even(periods: Sequence[float]) -> bool:
    """Whether these times vary little around their mean.

    >>> are_even([120, 121, 118]), are_even([46, 160, 61])
    (True, False)
    """
    return pstdev(periods) <= fmean(periods) * PERIOD_SPREAD


def are_alike(figures: Sequence[float]) -> bool:
    """Whether these values are similar, like those of phases that a program repeats.

    >>> are_alike([40, 41, 39]), are_alike([10, 12, 60])
    (True, False)
    """
    usual = median(figures)
    is_short_enough = max(figures) <= usual * LENGTH_SPREAD
    is_long_enough = min(figures) >= usual / LENGTH_SPREAD
    return is_short_enough and is_long_enough


def mean_use(rows: Sequence[Moment]) -> float:
    """The mean utilisation in these samples, in percent; 0 if there are none."""
    uses = [or_zero(row.gpu.utilization_percent) for row in rows]
    return fmean(uses) if uses else 0.0


# --- rhythm ---------------------------------------------------------------------------------------


def rhythm(rows: Sequence[Moment]) -> float | None:
    """The length of one cycle of work and rest in seconds, if the two alternate steadily and memory
    stays the same; None otherwise."""
    uses = [or_zero(row.gpu.utilization_percent) for row in rows]
    if not uses or not memory_is_constant(rows):
        return None
    if fmean(uses) < LEAST_WORK_IN_A_CYCLE:
        return None
    # Half of the level at work separates work from rest.
    mark = percentile(uses, 95) / 2
    beginnings = []
    for before, after in pairwise(rows):
        was_low = or_zero(before.gpu.utilization_percent) < mark
        is_high = or_zero(after.gpu.utilization_percent) >= mark
        if was_low and is_high:
            beginnings.append(after.seconds)
    cycles = [after - before for before, after in pairwise(beginnings)]
    if len(cycles) < LEAST_CYCLES:
        return None
    usual = fmean(cycles)
    is_regular = pstdev(cycles) <= usual * UNEVEN_CYCLES
    return usual if is_regular and usual <= LONGEST_CYCLE_SECONDS else None


def memory_is_constant(rows: Sequence[Moment]) -> bool:
    """Whether the memory in use hardly varies; true if it is unknown."""
    shares = [row.gpu.memory_percent for row in rows]
    known_shares = [share for share in shares if share is not None]
    if not known_shares:
        return True
    variation = percentile(known_shares, 95) - percentile(known_shares, 5)
    return variation <= CONSTANT_MEMORY


# --- the beginning --------------------------------------------------------------------------------


def loading(rows: Sequence[Moment]) -> int:
    """How many samples at the start show only stray kernels, before the GPU works most of the time;
    0 if there are none.

    While a program loads a checkpoint or compiles, it runs a small kernel now and then.
    """
    uses = [or_zero(row.gpu.utilization_percent) for row in rows]
    begin = 0
    while begin < len(uses) and uses[begin] < marks.STRAY_USE:
        begin += 1
    later_uses = [use for use in uses[begin:] if use > marks.QUIET]
    # A GPU that never works much is not a late starter: it simply works little.
    works_much = bool(later_uses) and fmean(later_uses) >= marks.LOW
    return begin if works_much else 0
