"""The course of a GPU's run over time: where its process ended or started again, phases of less
work that come back, and a steady rhythm of work and rest. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import fmean, median, pstdev
from typing import NamedTuple

from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample
from gpusetup.monitor.work import Moment, is_quiet, or_zero, percentile

RECENT_SAMPLES = 5
"""Samples before memory is freed in which its peak is looked for: cleaning up may take some."""
LEAST_PHASE_SECONDS = 10.0
"""No batch takes so long; a stretch of this length is a phase of the program."""
SMOOTHING = 5
"""Samples of a moving median: one sample more or less busy neither begins nor ends a phase."""
LENGTH_SPREAD = 2.0
"""Phases of one kind differ less than by this factor in length."""
LEAST_CYCLES = 8
"""Fewer turns of work and rest may be steady by chance."""
LEAST_PHASES = 3
"""Two phases have one distance, which shows no regularity."""
LEAST_STEADY_PART = 0.8
"""Between its phases a GPU works at least at this part of its usual level, in 90 % of the
samples."""
PERIOD_SPREAD = 0.2
"""Standard deviation of the time from phase to phase, as a part of its mean: an epoch of a fixed
number of steps varies less."""
UNEVEN_CYCLES = 0.4
"""Standard deviation of the cycles, as a part of their mean. Requests that come at random reach 0.6
and more; a training behind its loader reaches 0.3, because some batches take longer to load."""
LEAST_WORK_IN_A_CYCLE = 15.0
"""Percent of the time: what works less does so on request, or for a person."""
LONGEST_CYCLE_SECONDS = 25.0
"""Several batches that are loaded ahead and used up take so long together; what takes longer is a
phase of the program."""
CONSTANT_MEMORY = 5.0
"""Points of memory by which a training that waits for its next batch varies."""
SAMPLES_OF_A_LEAK = 8
"""Fewer samples do not show that memory grows all the time."""


class ProcessEnd(NamedTuple):
    """The moment at which a GPU's memory was freed, because the process on it ended."""

    second: float
    peak: float | None
    """How full the memory was just before, in percent; None if its size is unknown."""
    back_after: float | None
    """Seconds until a process held memory again; None if none did."""


class SlowPhases(NamedTuple):
    """Phases in which a GPU works much less, which come back between phases of full work."""

    times: int
    seconds: float
    """The usual length of one."""
    period: float
    """The usual time from the beginning of one to the beginning of the next, in seconds."""
    share: float
    """The percentage of the time that they take."""
    utilization: float
    """The mean utilisation in them, in percent."""
    full_utilization: float
    """The mean utilisation between them, in percent."""


class Stretch(NamedTuple):
    """Neighbouring samples that belong together."""

    since: float
    seconds: float
    rows: Sequence[Moment]


# --- processes that end ---------------------------------------------------------------------------


def process_ends(rows: Sequence[Moment]) -> list[ProcessEnd]:
    """The moments at which the GPU's memory was freed, with the time until it was in use again."""
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
    """Whether a sample has the memory that the GPU's processes hold."""
    # Memory that is shared with the CPU is never free, and a lost GPU tells nothing.
    return gpu.memory_used_bytes is not None and not gpu.memory_is_unified and not gpu.lost


def most_free_bytes(first: GpuSample) -> float:
    """The bytes in use up to which no process holds the GPU: those of the driver or, on a card with
    a desktop, about those of the first sample."""
    first_bytes = or_zero(first.memory_used_bytes)
    first_share = or_zero(first.memory_percent)
    # Before the training starts, a desktop's programs are all that is in memory.
    is_desktop_alone = is_quiet(first) and first_share < marks.DESKTOP_MEMORY
    if not is_desktop_alone:
        return marks.EMPTY_MEMORY
    # 10 % more, because what a desktop holds varies.
    return max(marks.EMPTY_MEMORY, first_bytes * 1.1)


# --- memory that grows ---------------------------------------------------------------------------


QUARTERS = 4


def grows_all_the_time(shares: Sequence[float], least_growth: float = marks.LEAK_GROWTH) -> bool:
    """Whether memory grew by `least_growth` points or more over the run, and in each quarter of
    it."""
    if len(shares) < SAMPLES_OF_A_LEAK:
        return False
    last = len(shares) - 1
    quarters = []
    for number in range(QUARTERS + 1):
        position = number * len(shares) // QUARTERS
        quarters.append(shares[min(last, position)])
    growth = quarters[-1] - quarters[0]
    steps = [later - earlier for earlier, later in pairwise(quarters)]
    # An even growth has a quarter of it in each quarter of the run; a third of that is asked for.
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
    # The work between them has to be full, or they are no exception.
    if full_use < marks.BUSY:
        return None
    is_low = [use < low_mark for use in uses]
    long_stretches = []
    for stretch in stretches_of(rows, is_low):
        # The last may be cut off by the end of the recording.
        is_whole = stretch.rows[-1] is not rows[-1]
        if stretch.seconds >= LEAST_PHASE_SECONDS and is_whole:
            long_stretches.append(stretch)
    lengths = [stretch.seconds for stretch in long_stretches]
    periods = [after.since - before.since for before, after in pairwise(long_stretches)]
    if len(lengths) < LEAST_PHASES or not are_alike(lengths) or not are_even(periods):
        return None
    usual_length = median(lengths)
    usual_period = median(periods)
    # What fills half of a period is no phase between work.
    if usual_length * 2 >= usual_period:
        return None
    low_rows = [row for stretch in long_stretches for row in stretch.rows]
    full_rows = rows_between(rows, long_stretches)
    is_a_drop = mean_use(full_rows) - mean_use(low_rows) >= marks.USE_DIFFERENCE
    # A short cycle of work and rest, smoothed, also has longer stretches of less work by chance.
    if not is_a_drop or not is_steady(full_rows):
        return None
    return SlowPhases(
        times=len(lengths),
        seconds=usual_length,
        period=usual_period,
        # Not of the recording, which may begin or end anywhere in a period.
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
    """The stretches of neighbouring rows that are chosen; each lasts until the next row that is
    not."""
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
    """The samples before the last of these phases that are in none of them."""
    in_phases = {id(row) for phase in phases for row in phase.rows}
    last_phase = phases[-1]
    return [row for row in rows if id(row) not in in_phases and row.seconds < last_phase.since]


def is_steady(rows: Sequence[Moment]) -> bool:
    """Whether the GPU works at about the same level in nearly all of these samples."""
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
    """Whether these figures differ little, as those of phases that a program repeats.

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
    """The seconds of one turn of work and rest, if work and rest take turns steadily and memory
    stays the same; None otherwise."""
    uses = [or_zero(row.gpu.utilization_percent) for row in rows]
    if not uses or not memory_is_constant(rows):
        return None
    if fmean(uses) < LEAST_WORK_IN_A_CYCLE:
        return None
    # Half of the work's level divides work from rest.
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
    """The number of first samples with stray kernels only, before the GPU works most of the time; 0
    if there are none.

    Loading a checkpoint and compiling run a small kernel now and then.
    """
    uses = [or_zero(row.gpu.utilization_percent) for row in rows]
    begin = 0
    while begin < len(uses) and uses[begin] < marks.STRAY_USE:
        begin += 1
    later_uses = [use for use in uses[begin:] if use > marks.QUIET]
    # A GPU that never works much does not start late: it works little.
    works_much = bool(later_uses) and fmean(later_uses) >= marks.LOW
    return begin if works_much else 0
