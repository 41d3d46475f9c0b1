"""The largest batch that fits, found in few trials: a line of memory, a jump, a proof.

Pure. A trial is one batch size that really ran (or did not) in a child of its own; `next_batch`
looks at the trials so far and names the next size, or None when the answer stands. Memory grows
along one straight line per phase (forward, backward, optimizer), and the highest line counts. Two
trials that matter give the lines, the third jumps to just below the limit, the last one proves.
Only a size that ran is ever answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from gpusetup.tune.lines import Room, room_above
from gpusetup.tune.trial import Goal, Trial

FAR = 0.86
"""Below this part of the limit a trial is for learning; the next one jumps."""
AIM = 0.9875
"""Where the jump lands at most: workspaces and kinks between phases have room above it."""
CLOSE = 0.012
"""Steps smaller than this part of a size are not worth a trial of their own."""
AFTER_FAILURE = 0.55
"""Right after a failure only this part of the way to the size that failed is gone."""
SETTLED = 0.047
"""The answer may lie this far below a size that failed: a second failure costs more than it can
bring."""
SETTLED_LINE = 0.036
"""And this far below where the lines end."""
SLACK = 0.003
"""Nearer than this to such a size no trial is worth it."""
SURE, LEFT = 0.95, 4
"""This part of the largest size is tried for where a size that failed is at most so many above."""
LOST = 1.05
"""At most so many times the size that failed, lines are believed that promised it."""
NEAR = 0.12
"""Not further above a size that ran, the smallest one that settles the search is tried."""
LIKELY = 0.4
"""Where one sample more counts, this part of the way to the best that the readings allow is
believed."""
BEND = 0.15
"""So many samples a line may be off where the answer is a handful."""
LEAST_STEP = 0.002
"""Steps smaller than this part of a size bring nothing."""
FURTHEST = 128
"""No size is tried that is more than this many times one that ran."""


FURTHEST_ADDRESSES = 8
"""And of addresses, once two sizes ran: small ones fit into holes that are there anyway, and the
line bends upwards."""
SPACE = "space"
"""The phase of a trial that counted addresses: the most so far; more steps average nothing out."""
UNSURE = 0.005
"""Where a second run differs by more than this part, the last few percent are chance."""
ENOUGH, WITHIN = 0.945, 0.97
"""There this part of the largest size is enough, and this one is tried."""
NO_MORE_JUMPS = 0.5
"""From this part on it is tried at once."""

Probe = Callable[[int], Trial]


def search(probe: Probe, goal: Goal, trials: Sequence[Trial] = ()) -> tuple[Trial, ...]:
    """Try sizes until the answer stands; every trial, in order."""
    done = tuple(trials)
    while not hopeless(done) and (batch := next_batch(done, goal)) is not None:
        done = (*done, probe(batch))
    return done


def hopeless(trials: Sequence[Trial]) -> bool:
    """Whether the code itself fails: an error where nothing ran yet, other than by its time limit.

    An error above a size that ran bounds the search, as running out of memory does.

    >>> hopeless([Trial(batch=8, status="error", detail="ValueError: no data")])
    True
    """
    ran = any(trial.status == "ok" for trial in trials)
    errors = [trial for trial in trials if trial.status == "error"]
    return bool(errors) and not ran and not all(_timed_out(one) for one in errors)


def _timed_out(trial: Trial) -> bool:
    return (trial.detail or "").startswith("no answer in")


def leak(trials: Sequence[Trial]) -> str | None:
    """What to say of a training whose memory grows with every step.

    >>> leak([Trial(batch=8, status="ok", leak_bytes=3 << 20)])
    'memory grows by 3.0 MiB with every step: a long run will run out, whatever the batch'
    """
    grows = max((trial.leak_bytes or 0 for trial in trials), default=0)
    told = f"memory grows by {grows / (1 << 20):.1f} MiB with every step"
    return f"{told}: a long run will run out, whatever the batch" if grows else None


def stopped(trials: Sequence[Trial], goal: Goal) -> str | None:
    """What stopped the next larger size than the answer; None where nothing did.

    >>> stopped([Trial(batch=8, status="ok"), Trial(batch=9, status="error", detail="x: y")],
    ...         Goal(limit_bytes=10))
    'batch 9 failed: x: y'
    """
    best = answer(trials, goal) or 0
    above = [one for one in trials if one.batch > best and not fits(one, goal)]
    if not above:
        return None
    one = min(above, key=lambda trial: trial.batch)
    if one.status == "error":
        return f"batch {one.batch} failed: {' '.join((one.detail or '').split())[:160]}"
    how = "ran out of memory" if one.status == "oom" else "is above the limit"
    return f"batch {one.batch} {how}"


def answer(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The largest size that ran within the limit; None where none did.

    >>> answer([Trial(batch=8, status="ok", peak_bytes=5), Trial(batch=9, status="oom")],
    ...        Goal(limit_bytes=10))
    8
    """
    return max((trial.batch for trial in fitting(trials, goal)), default=None)


def next_batch(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The size to try next; None when the answer stands or the trials are used up."""
    good = sorted(fitting(trials, goal), key=lambda trial: trial.batch)
    over = [trial for trial in trials if trial.status == "ok" and not fits(trial, goal)]
    bad = min((trial.batch for trial in trials if not fits(trial, goal)), default=None)
    if len(trials) >= goal.trials:
        return None
    if not good:
        return _first(bad, goal)
    best = good[-1].batch
    failed = bad is not None and not over
    if failed and (last := _last_of_few(good, bad or 0, goal)):
        return last
    room = room_above(good, goal, over, wary=failed, bold=failed and _few(best))
    top = ceiling(room, bad, goal)
    least_step = LEAST_STEP if bad is None or over else CLOSE
    if top <= best or best * (1 + least_step) >= (1 - goal.tolerance) * top:
        return None
    unsure = _unsure(good) * (2 if over else 1.25)
    largest = min(top, room.middle) if unsure else math.inf
    if best >= ENOUGH * largest or sum(_at(one, unsure, goal) for one in good) > (not over):
        return None
    enough = _enough(room, bad, top)
    if not over and bad is not None and (best >= (1 - SLACK) * enough or _no_more(best, room)):
        return None
    wanted = _jump(good[-1], room, None if over else bad, goal)
    if bad is None and room.low >= top:  # memory is no limit: `largest` is
        wanted = min(top, best * FURTHEST)
    if wanted is None:
        wanted = _approach(best, top, room, bad, enough, trials[-1].batch == bad, goal)
    if over and wanted > top:  # its lines promise what an over-trial has refuted
        wanted = best + math.ceil((top - best) * AFTER_FAILURE)
    if unsure and (over or best >= NO_MORE_JUMPS * room.middle):
        wanted = math.floor(WITHIN * largest)
    batch = on_grid(min(wanted, top), goal)
    if batch <= best:
        batch = next_on_grid(best, goal)
    return batch if best < batch <= top else None


def fitting(trials: Sequence[Trial], goal: Goal) -> Iterator[Trial]:
    return (trial for trial in trials if fits(trial, goal))


def fits(trial: Trial, goal: Goal) -> bool:
    """Whether it ran and stayed within the limit."""
    return trial.status == "ok" and (trial.peak_bytes or 0) <= goal.limit_bytes


def ceiling(room: Room, bad: int | None, goal: Goal) -> int:
    """The largest size that may still be possible, on the grid."""
    above = [value for value in (goal.largest, None if bad is None else bad - 1) if value]
    high = math.floor(min(room.high + (BEND if bad is None and _few(room.high) else 0), 2**40))
    return on_grid(min([high, *above]) if bad != 1 else 0, goal)


def _first(bad: int | None, goal: Goal) -> int | None:
    """The first size, or a smaller one as long as none ran."""
    least, largest = next_on_grid(0, goal), goal.largest or 1 << 40
    if least > largest or bad == least:
        return None
    return max(least, on_grid(min(goal.start, largest) if bad is None else bad // 8, goal))


def _jump(best: Trial, room: Room, bad: int | None, goal: Goal) -> int | None:
    """From far below, to where even the steepest line that the readings allow stays below `AIM`."""
    if math.isfinite(room.high) and best.batch >= FAR * room.middle:
        return None
    reach = room.low
    if math.isinf(room.high):  # one trial: its line starts too low, which already shortens it
        reach = min(math.sqrt(room.low * room.middle), 4 * room.low)
    curved = SPACE in best.phases and best.batch > goal.start
    reach = min(reach, best.batch * (FURTHEST_ADDRESSES if curved else FURTHEST))
    aimed = best.batch + (reach - best.batch) * AIM
    if bad is not None:
        aimed = min(aimed, best.batch + (bad - best.batch) * AFTER_FAILURE)
    return math.floor(aimed) if aimed >= best.batch + 1 else None


def _unsure(good: Sequence[Trial]) -> float:
    """By which part a second run may differ, where that is much; else 0."""
    noise = max((one.noise or 0 for one in good if SPACE in one.phases), default=0)
    return noise if noise > UNSURE else 0


def _at(one: Trial, unsure: float, goal: Goal) -> bool:
    """Whether another run of this size may reach the limit."""
    return unsure > 0 and (one.peak_bytes or 0) * (1 + unsure) >= goal.limit_bytes


def _few(best: float) -> bool:
    """Whether one sample is more than may be missed."""
    return best * SETTLED < 1


def _no_more(best: int, room: Room) -> bool:
    """Whether one more sample is too much by the line, which one trial alone draws too low."""
    if math.isinf(room.high):
        return room.middle < best + 0.66
    if not _few(best):
        return room.middle < best + 0.985
    return room.middle + LIKELY * (room.high - room.middle) < best + 1


def _last_of_few(good: Sequence[Trial], bad: int, goal: Goal) -> int | None:
    """The size that makes sure of `SURE` below one that failed, where only a few are left.

    Steps of a library between the last two trials make the line through them too steep to say.
    """
    best = good[-1].batch
    last = math.ceil(SURE * (bad - 1))
    if _few(best) or last <= best or bad - best > LEFT or on_grid(last, goal) != last:
        return None
    return last if room_above(good, goal, bold=True).high >= last else None


def _enough(room: Room, bad: int | None, top: int) -> int:
    """The smallest size that settles the search below one that failed.

    Where the lines promise the size that failed, memory was lost between blocks, another part at
    every size: a larger one may run.
    """
    if bad is None:
        return top
    promised = max(0.0, min(room.middle, LOST * bad) - bad) / 2
    return math.ceil(min((1 - SETTLED) * (bad - 1 + promised), (1 - SETTLED_LINE) * room.high))


def _approach(
    best: int, top: int, room: Room, bad: int | None, enough: int, fresh: bool, goal: Goal
) -> int:
    """Near the limit: the size that settles it if it runs, unless it would likely not run."""
    settles = math.ceil((1 - goal.tolerance) * top)
    low, middle = math.floor(min(room.low, settles)), math.floor(min(room.middle, top))
    if math.isinf(room.high):
        return max(low, best + 1)
    if bad is None:
        either_way = best >= (1 - goal.tolerance) * (settles - 1)  # a failure there settles it too
        return settles if either_way else max(low, min(settles, middle))
    if settles - best <= CLOSE * best:
        return settles
    if best < enough <= min((1 + NEAR) * best, room.middle):
        return enough
    if room.low >= bad:  # the lines missed a step: climb from below, since one failure is enough
        return best + max(1, (settles - best) // 3)
    part = AFTER_FAILURE if fresh else 1.0
    return best + max(1, math.ceil((max(low, best) - best) * part), (settles - best) // 3)


# --- the grid of allowed sizes ------------------------------------------------------------------


def on_grid(batch: int, goal: Goal) -> int:
    """The largest allowed size up to this one; 0 where there is none.

    >>> on_grid(100, Goal(limit_bytes=1, multiple=8)), on_grid(100, Goal(limit_bytes=1,
    ...     power_of_two=True))
    (96, 64)
    """
    if batch < 1:
        return 0
    if goal.power_of_two:
        return 1 << (batch.bit_length() - 1)
    return batch - batch % goal.multiple


def next_on_grid(batch: int, goal: Goal) -> int:
    """The smallest allowed size above this one."""
    if goal.power_of_two:
        return 1 << batch.bit_length()
    return (batch // goal.multiple + 1) * goal.multiple
