"""Measures the acceleration guide's table: the config unchanged, then one change after another.

A change is kept if it is faster by more than the noise. To find out, the table alternates runs with
and without the change. The last row measures all kept changes together, alternating with the first
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from gpusetup.model.frozen import replace
from gpusetup.tune.answer import Row, RowName
from gpusetup.tune.batch import divisors
from gpusetup.tune.bench import Bench, Device, Say
from gpusetup.tune.search import Goal, Trial, fastest

LEAST_GAIN = 1.03
"""The smallest speed-up that counts as a gain: less than 3 % is not worth the trouble."""
RUNS = 3
"""How often both settings of a comparison run. If they are equally fast, all three runs of the
first are faster than all three of the second in one of twenty cases."""

ALREADY_ON = "it is on already"
WITHIN_NOISE = "within the noise"
UNSTEADY = "not clearly faster in its second runs: other programs disturb the measurement"


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
        trial = self.bench.trial(
            setup.batch,
            amp=setup.amp,
            compile=setup.compile,
            workers=setup.workers,
            loaded=True,
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
        after, earlier = setup_of(row), setup_of(before)
        # A change that is slower at once needs no more runs.
        if speeds(self.runs[after])[0] < speeds(self.runs[earlier])[0]:
            return row
        self.alternate(after, earlier)
        kept = is_faster(self.runs[after], self.runs[earlier])
        gain = median(speeds(self.runs[after])) / median(speeds(self.runs[earlier]))
        is_open = not kept and gain >= LEAST_GAIN
        return replace(row, kept=kept, detail=WITHIN_NOISE if is_open else None)

    def alternate(self, after: Setup, before: Setup) -> None:
        """Run two settings alternately until both ran often enough or one fails, so that a slowdown
        of the machine affects both."""
        for setup in (before, after) * RUNS:
            runs = self.runs.setdefault(setup, [])
            if len(runs) < RUNS and self.run(setup).status != "ok":
                return

    def all_together(self) -> Row:
        """The last row: all kept changes together, measured again alternately with the first
        row."""
        best, base = setup_of(self.best()), setup_of(self.rows[0])
        del self.runs[best], self.runs[base]
        row = self.first_row("all", best)
        if row.status == "ok":
            self.alternate(best, base)
            row = self.with_all_runs(row)
            if is_faster(self.runs[best], self.runs[base]):
                return row
            row = replace(row, detail=UNSTEADY)
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
        ordered = speeds(runs)
        middle, base_speeds = median(ordered), speeds(self.runs.get(setup_of(self.rows[0]), ()))
        # The spread between runs; the first run of a setting shows only that between its steps.
        between_runs = 100 * (ordered[-1] - ordered[0]) / middle if len(runs) > 1 else 0.0
        spread = row.spread_percent
        return replace(
            row,
            runs=len(runs),
            samples_per_second=middle,
            # If a run timed only one step, its error is unknown.
            spread_percent=None if spread is None else max(spread, between_runs),
            speed_up=middle / median(base_speeds) if base_speeds else None,
            seconds_per_epoch=row.dataset_length / middle if row.dataset_length else None,
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


def speeds(runs: Sequence[Trial]) -> list[float]:
    """The samples per second of several runs, slowest first."""
    return sorted(run.samples_per_second or 0.0 for run in runs)


def is_faster(after: Sequence[Trial], before: Sequence[Trial]) -> bool:
    """Whether one setting is clearly faster than another: each of its runs is faster than all runs
    of the other, and the middle one by `LEAST_GAIN`.

    >>> def runs(*speeds):
    ...     return [Trial(batch=8, status="ok", samples_per_second=one, spread_percent=0.0)
    ...             for one in speeds]
    >>> before = runs(100.0, 99.0, 101.0)
    >>> is_faster(runs(104.0, 105.0, 103.0), before), is_faster(runs(102.0, 102.0, 102.0), before)
    (True, False)
    >>> is_faster(runs(100.0, 140.0, 140.0), before), is_faster(runs(140.0), before)
    (False, False)
    """
    # A run that timed a single step says nothing about noise, and neither do too few runs.
    if min(len(after), len(before)) < RUNS or any(
        run.spread_percent is None for run in (*after, *before)
    ):
        return False
    fast, slow = speeds(after), speeds(before)
    return fast[0] > slow[-1] and median(fast) >= LEAST_GAIN * median(slow)


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
