"""Measures the acceleration guide's table: the config unchanged, then one change after another.

A change is kept if it is faster by more than the noise. To find out, the table alternates runs with
and without the change until the result is clear. The last row measures all kept changes together,
alternating with the first row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from gpusetup.model.frozen import replace
from gpusetup.tune.answer import Row, RowName
from gpusetup.tune.batch import divisors
from gpusetup.tune.bench import Bench, Device, Say
from gpusetup.tune.search import Goal, Trial, fastest

Verdict = Literal["gain", "no gain", "open"]
LEAST_GAIN = 1.03
"""The smallest speed-up that counts as a gain: less than 3 % is not worth the trouble."""
CONFIRMED_RUNS = 2
"""The number of runs that both settings need before a gain counts, because other programs may
disturb a single run."""
ENOUGH_RUNS = 3
"""With this many runs, the differences between runs are enough to judge the noise. If two settings
are equally fast, all three runs of the first are faster than all three of the second in one of
twenty cases."""
MOST_RUNS = 5
"""The maximum number of runs of a setting to find out whether it is faster than another one."""
TIMED_SECONDS = (0.5, 1.0, 2.0)
"""How long the runs of a setting time their steps; all later runs like the last one."""
TABLE_SECONDS = 120.0
"""After this many seconds for the whole table, each comparison ends as soon as both settings have
run twice."""
MOST_SECONDS = 30.0
"""After this many seconds for one comparison, it ends as soon as both settings have run twice."""

ALREADY_ON = "it is on already"
WITHIN_NOISE = "within the noise"
UNSTEADY = "slower than in its first run: other programs disturb the measurement"


class Setup(NamedTuple):
    """One combination of settings to train with, as in a row of the table."""

    batch: int = 8
    """8 if no config gives one."""
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    workers: int | None = None
    """The number of loader workers; None keeps the number of the code's DataLoader."""

    def in_words(self) -> str:
        """The settings as words, separated by commas.

        >>> Setup(batch=8, amp="bf16", compile=True, workers=2).in_words()
        'batch 8, bf16, 2 workers, compiled'
        """
        workers = "" if self.workers is None else f"{self.workers} workers"
        words = (f"batch {self.batch}", self.amp, workers, "compiled" if self.compile else "")
        return ", ".join(filter(None, words))


class TrialTable:
    """The rows of the table so far and all their runs, which are kept after Ctrl-C."""

    def __init__(
        self,
        bench: Bench,
        device: Device,
        goal: Goal,
        setup: Setup,
        effective: int | None,
        workers: int,
    ) -> None:
        """`setup`: the config's own settings. `effective`: its samples in one optimizer step; None
        without a config. `workers`: the number of loader workers to try."""
        self.bench, self.device, self.goal = bench, device, goal
        self.setup, self.effective, self.workers = setup, effective, workers
        # Nothing is printed until `say` is replaced by the progress display.
        self.say: Say = lambda line: None
        self.ends = time.monotonic() + TABLE_SECONDS
        self.rows: list[Row] = []
        # Each setting with the results of all its successful runs.
        self.runs: dict[Setup, list[Trial]] = {}
        # The trials of the batch search, which belongs to the row `+batch`.
        self.trials: list[Trial] = []

    def measure(self) -> None:
        """Measure the rows of the guide's table in order; a change that helps is kept in all later
        rows."""
        # The option `--amp` also applies to the first row.
        base = self.first_row("base", self.setup._replace(amp=self.bench.job.amp or self.setup.amp))
        self.rows.append(base)
        if base.status != "ok":
            return
        names: tuple[RowName, ...] = ("+AMP", "+batch", "+workers", "+compile")
        for name in names:
            best = self.best()
            to_try = self.next_setup(name, setup_of(best))
            if isinstance(to_try, Setup):
                self.rows.append(self.added_row(name, to_try, best))
            else:
                self.rows.append(replace(row_of(name, setup_of(best), None), detail=to_try))
        self.show_losses()
        # Some settings ran again during comparisons.
        self.rows[:] = [self.with_all_runs(row) for row in self.rows]
        if self.best().name != "base":
            self.rows.append(self.all_together())

    def next_setup(self, name: RowName, before: Setup) -> Setup | str:
        """The setting to try for a step of the table, or the reason why there is none."""
        if name == "+AMP":
            return ALREADY_ON if before.amp else before._replace(amp=self.device.half)
        if name == "+compile":
            return ALREADY_ON if before.compile else before._replace(compile=True)
        if name == "+workers":
            # If the trial took no batch from a loader, the number of workers is unknown.
            if self.rows[0].workers is None:
                return "not measured: the code returns no `dataset`"
            if before.workers == self.workers:
                return f"the loader has {self.workers} already"
            return before._replace(workers=self.workers)
        goal = replace(self.goal, start=before.batch)
        settings = {"amp": before.amp, "compile": before.compile}
        self.bench.find(goal, self.trials, self.say, speed=True, **settings)
        size = fastest(self.trials, goal) or before.batch
        # Only divisors of the effective batch can be accumulated to it.
        if self.effective and size <= self.effective:
            size = next(divisors(self.effective, size))
        if size == before.batch:
            alike = " with the same effective batch" if self.effective else ""
            return f"no other size{alike} is better"
        return before._replace(batch=size)

    def best(self) -> Row:
        """The last row that was kept, which includes all changes kept so far; the first row if none
        was."""
        return next((row for row in reversed(self.rows) if row.kept), self.rows[0])

    def run(self, setup: Setup) -> Trial:
        """Run a setting once more and record the result."""
        self.say(setup.in_words())
        number = min(len(self.runs.get(setup, ())), len(TIMED_SECONDS) - 1)
        trial = self.bench.trial(
            setup.batch,
            amp=setup.amp,
            compile=setup.compile,
            workers=setup.workers,
            loaded=True,
            least_seconds=TIMED_SECONDS[number],
        )
        if trial.status == "ok":
            self.runs.setdefault(setup, []).append(trial)
        return trial

    def first_row(self, name: RowName, setup: Setup) -> Row:
        """A row after its first run. If the setting names no worker count, the row takes that of
        the code's own loader."""
        row = row_of(name, setup, self.run(setup))
        if row.status == "ok" and row.workers != setup.workers:
            # Later runs use the setting with that worker count.
            self.runs[setup_of(row)] = self.runs.pop(setup)
        return row

    def added_row(self, name: RowName, setup: Setup, before: Row) -> Row:
        """The row for one change, kept if it is faster. Mixed precision is not kept if its loss
        becomes NaN."""
        row = self.first_row(name, setup)
        if row.status != "ok":
            return row
        if name == "+AMP" and row.loss is None and before.loss is not None:
            return replace(row, detail=f"the loss becomes NaN in {row.amp}")
        verdict = self.settle(setup_of(row), setup_of(before))
        if verdict == "open":
            return replace(row, detail=WITHIN_NOISE)
        return replace(row, kept=verdict == "gain")

    def settle(self, setup: Setup, before: Setup) -> Verdict:
        """Run two settings alternately until it is clear whether the first is faster; `open` if
        noise hides the answer."""
        ends = min(self.ends, time.monotonic() + MOST_SECONDS)
        verdict = compare(self.runs[setup], self.runs[before])
        for _ in range(MOST_RUNS - 1):
            is_late = time.monotonic() > ends and len(self.runs[setup]) >= CONFIRMED_RUNS
            if verdict != "open" or is_late:
                break
            # Alternately, so that a temporary slowdown of the machine affects both.
            trials = [self.run(before), self.run(setup)]
            if any(trial.status != "ok" for trial in trials):
                break
            verdict = compare(self.runs[setup], self.runs[before])
        return verdict

    def all_together(self) -> Row:
        """The last row: all kept changes together, measured again alternately with the first
        row."""
        best, base = setup_of(self.best()), setup_of(self.rows[0])
        del self.runs[best], self.runs[base]
        row = self.first_row("all", best)
        if row.status == "ok":
            self.run(base)
            # If the first row's setting fails this time, nothing can be compared.
            verdict = self.settle(best, base) if base in self.runs else "open"
            row = self.with_all_runs(row)
            if verdict == "gain":
                return row
            row = replace(row, detail=WITHIN_NOISE if verdict == "open" else UNSTEADY)
        not_again = "not clearly faster in the second run of all changes together"
        self.rows[:] = [
            replace(step, kept=False, detail=not_again) if step.kept else step for step in self.rows
        ]
        return row

    def with_all_runs(self, row: Row) -> Row:
        """The row updated with the results of all runs of its setting, compared with the
        first row."""
        runs = self.runs.get(setup_of(row), ())
        if row.status != "ok" or not runs:
            return row
        speed = speed_range(runs)
        base_runs = self.runs.get(setup_of(self.rows[0]))
        base_speed = speed_range(base_runs) if base_runs else None
        counted = middle_half(runs)
        middle_speed = counted[len(counted) // 2].samples_per_second
        epoch = None
        if row.dataset_length and middle_speed:
            epoch = row.dataset_length / middle_speed
        return replace(
            row,
            runs=len(runs),
            samples_per_second=middle_speed,
            # If a run timed only one step, its error is unknown.
            spread_percent=100 * (speed.highest - speed.slowest) / speed.middle if speed else None,
            speed_up=speed.middle / base_speed.middle if speed and base_speed else None,
            seconds_per_epoch=epoch,
        )

    def show_losses(self) -> None:
        """Add the losses with and without mixed precision, after the same number of steps, to the
        row for AMP."""
        index = next(index for index, row in enumerate(self.rows) if row.name == "+AMP")
        mixed, plain = self.rows[index], self.rows[0]
        # If the config already uses mixed precision, it runs once more without it.
        if plain.amp:
            mixed = plain
            trial = self.bench.trial(plain.batch, amp=None, compile=plain.compile, timed=False)
            plain = row_of("base", setup_of(plain), trial)
        steps = min(len(mixed.losses), len(plain.losses))
        if steps:
            self.rows[index] = replace(
                self.rows[index],
                loss_steps=steps,
                loss=mixed.losses[steps - 1],
                loss_without_amp=plain.losses[steps - 1],
            )


# --- rows -----------------------------------------------------------------------------------------


def row_of(name: RowName, setup: Setup, trial: Trial | None) -> Row:
    """A row of the table with a setting and the result of one run; `trial` is None if it did not
    run."""
    from gpusetup.model.codec import to_plain

    measured = to_plain(trial) if trial else {"status": "skipped"}
    fields = measured | {"batch": setup.batch, "amp": setup.amp, "compile": setup.compile}
    # If the trial took no batch from a loader, the number of workers is unknown.
    fields.setdefault("workers", None)
    return Row(**fields, name=name)


def setup_of(row: Row) -> Setup:
    """The settings of a row."""
    return Setup(batch=row.batch, amp=row.amp, compile=row.compile, workers=row.workers)


def gains_by_role(rows: Sequence[Row]) -> dict[str, bool]:
    """Change (`amp`, `batch`, `workers`, `compile`, `base`, `all`) -> whether its row was kept;
    skipped rows are left out."""
    return {row.name.removeprefix("+").lower(): row.kept for row in rows if row.status != "skipped"}


# --- whether a difference is noise ----------------------------------------------------------------


def middle_half(runs: Sequence[Trial]) -> list[Trial]:
    """The runs sorted by speed, slowest first; of four or more, only the middle half."""
    ordered = sorted(runs, key=lambda run: run.samples_per_second or 0.0)
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter]


class SpeedRange(NamedTuple):
    """The speed of one setting over several runs, in samples per second."""

    slowest: float
    middle: float
    highest: float


def speed_range(runs: Sequence[Trial]) -> SpeedRange | None:
    """The range of speeds over several runs; None if a run timed only one step.

    With one or two runs, the differences between runs say little, so the spread of the steps within
    each run counts too.

    >>> def run(speed):
    ...     return Trial(batch=8, status="ok", samples_per_second=speed, spread_percent=2.0)
    >>> quiet, disturbed = run(100.0), run(50.0)
    >>> speed_range([quiet, disturbed])
    SpeedRange(slowest=49.5, middle=100.0, highest=101.0)
    >>> speed_range([quiet, quiet, quiet, disturbed])
    SpeedRange(slowest=100.0, middle=100.0, highest=100.0)
    """
    counted = middle_half(runs)
    ends = []
    for run in counted:
        speed, spread = run.samples_per_second, run.spread_percent
        if speed is None or spread is None:
            return None
        # Half of the spread lies on each side.
        half = spread / 200 if len(runs) < ENOUGH_RUNS else 0.0
        ends += [speed * (1 - half), speed * (1 + half)]
    return SpeedRange(min(ends), counted[len(counted) // 2].samples_per_second or 0.0, max(ends))


def compare(after: Sequence[Trial], before: Sequence[Trial]) -> Verdict:
    """Whether one setting is faster than another, judged by several runs of both: `gain` if all its
    runs are faster and the middle one by `LEAST_GAIN`, `no gain` if that can be ruled out, or
    `open` if noise hides the answer.

    >>> def runs(speed, spread=0.0):
    ...     trial = Trial(batch=8, status="ok", samples_per_second=speed, spread_percent=spread)
    ...     return [trial, trial]
    >>> compare(runs(104.0), runs(100.0)), compare(runs(102.0), runs(100.0))
    ('gain', 'no gain')
    >>> compare(runs(104.0, spread=10.0), runs(100.0)), compare(runs(104.0)[:1], runs(100.0))
    ('open', 'open')
    """
    speed, speed_before = speed_range(after), speed_range(before)
    if speed is None or speed_before is None:
        return "no gain"
    if speed.highest < LEAST_GAIN * speed_before.slowest:
        return "no gain"
    if min(len(after), len(before)) < CONFIRMED_RUNS:
        return "open"
    if speed.middle < speed_before.middle:
        return "no gain"
    is_apart = speed.slowest > speed_before.highest
    is_worth_it = speed.middle >= LEAST_GAIN * speed_before.highest
    return "gain" if is_apart and is_worth_it else "open"


# --- what the table says --------------------------------------------------------------------------

NO_GAIN = "Nothing made the training faster: `gpusetup monitor -- COMMAND` shows what it waits for"
TOO_NOISY = (
    "The runs of one setting differed by more than the gains, so the table cannot tell: close "
    "other programs and run the same command again"
)
LOADER_FIRST = (
    "The training waited for its data until the workers were added, so mixed precision could not "
    "show its gain: run the same command once more with the tuned config"
)


def cause_of(rows: Sequence[Row]) -> str | None:
    """A sentence that explains why no change made the training faster, or suggests what to measure
    next; None if neither is known."""
    if not rows or rows[0].status != "ok":
        return None
    gains = gains_by_role(rows)
    if not any(gains.values()):
        # With these details, a machine with fewer other programs may show a gain.
        is_open = not {WITHIN_NOISE, UNSTEADY}.isdisjoint(row.detail for row in rows)
        return TOO_NOISY if is_open else NO_GAIN
    return LOADER_FIRST if gains.get("workers") and gains.get("amp") is False else None
