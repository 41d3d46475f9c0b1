"""Measures the acceleration guide's table: the config unchanged, then one change after another.

A change is kept if it is faster by more than the noise. To find out, the table alternates runs with
and without the change. The last row measures all kept changes together, alternating with the first
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from gpusetup.model.codec import to_plain
from gpusetup.model.frozen import replace
from gpusetup.tune.answer import Row, RowName
from gpusetup.tune.batch import divisors
from gpusetup.tune.bench import Bench, Device, Half, Say
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
    amp: Half | None = None
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


@dataclass
class Step:
    """A change that the table tries on top of those that were kept; first, no change at all."""

    name: RowName
    setup: Setup
    first: Trial | None
    """The result of its first run; None if it did not run."""
    kept: bool = False
    detail: str | None = None
    """Why it was left out."""

    @property
    def ran(self) -> bool:
        return self.first is not None and self.first.status == "ok"


class TrialTable:
    """The steps so far and all their runs, of which `rows` stay after Ctrl-C."""

    def __init__(
        self, bench: Bench, device: Device, goal: Goal, setup: Setup, effective: int | None
    ) -> None:
        """`setup`: the config's own settings. `effective`: its samples in one optimizer step; None
        without a config."""
        self.bench, self.device, self.goal, self.effective = bench, device, goal, effective
        # The option `--amp` also applies to the first row.
        self.setup = setup._replace(amp=bench.job.amp or setup.amp)
        self.steps: list[Step] = []
        self.rows: list[Row] = []
        # Each setting with the results of all its successful runs.
        self.runs: dict[Setup, list[Trial]] = {}
        # The trials of the batch search, which belongs to the row `+batch`.
        self.trials: list[Trial] = []
        # The losses of the first steps, with and without mixed precision.
        self.losses: tuple[Sequence[float | None], Sequence[float | None]] = ((), ())

    def measure(self, workers: int, say: Say) -> None:
        """Measure the rows of the guide's table in order; a change that helps is kept in all later
        rows. `workers`: the number of loader workers to try."""
        self.say = say
        try:
            self.measure_steps(workers)
        finally:
            self.rows = [self.row(step) for step in self.steps]
        if self.best().name != "base":
            together = self.all_together()
            self.rows.append(together)

    def measure_steps(self, workers: int) -> None:
        base = self.first_run("base", self.setup)
        if not base.ran or base.first is None:
            return
        names: tuple[RowName, ...] = ("+AMP", "+batch", "+workers", "+compile")
        for name in names:
            best = self.best()
            to_try = self.next_setup(name, best.setup, workers)
            if isinstance(to_try, str):
                self.steps.append(Step(name, best.setup, None, detail=to_try))
            else:
                self.try_step(self.first_run(name, to_try), best)
        mixed, plain = self.steps[1].first, base.first
        # If the config already uses mixed precision, it runs once more without it.
        if base.setup.amp:
            batch, amp, compile, _ = base.setup._replace(amp=None)
            mixed, plain = plain, self.bench.trial(batch, amp=amp, compile=compile, timed=False)
        self.losses = (mixed.losses if mixed else (), plain.losses)

    def next_setup(self, name: RowName, before: Setup, workers: int) -> Setup | str:
        """The setting to try for a step of the table, or the reason why there is none."""
        if name == "+AMP":
            return ALREADY_ON if before.amp else before._replace(amp=self.device.half)
        if name == "+compile":
            return ALREADY_ON if before.compile else before._replace(compile=True)
        if name == "+workers":
            # If the trial took no batch from a loader, the number of workers is unknown.
            if self.steps[0].setup.workers is None:
                return "not measured: the code returns no `dataset`"
            if before.workers == workers:
                return f"the loader has {workers} already"
            return before._replace(workers=workers)
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

    def best(self) -> Step:
        """The last step that was kept, which includes all changes kept so far; the first step if
        none was."""
        return next((step for step in reversed(self.steps) if step.kept), self.steps[0])

    def run(self, setup: Setup) -> Trial:
        """Run a setting once more and record the result."""
        self.say(setup.in_words())
        trial = self.bench.trial(**setup._asdict(), loaded=True)
        if trial.status == "ok":
            self.runs.setdefault(setup, []).append(trial)
        return trial

    def first_run(self, name: RowName, setup: Setup) -> Step:
        """Run a step. If its setting names no worker count, it takes that of the code's own loader,
        with which it also runs later."""
        trial = self.run(setup)
        known = setup._replace(workers=trial.workers)
        if known != setup and setup in self.runs:
            self.runs[known] = self.runs.pop(setup)
        self.steps.append(Step(name, known, trial))
        return self.steps[-1]

    def try_step(self, step: Step, before: Step) -> None:
        """Keep a step that is clearly faster than the one before it. Mixed precision is not kept if
        its loss becomes NaN."""
        if step.first is None or before.first is None or not step.ran:
            return
        if step.name == "+AMP" and step.first.loss is None and before.first.loss is not None:
            step.detail = f"the loss becomes NaN in {step.setup.amp}"
            return
        # A change that is slower at once needs no more runs.
        if speeds(self.runs[step.setup])[0] < speeds(self.runs[before.setup])[0]:
            return
        self.alternate(step.setup, before.setup)
        after, earlier = self.runs[step.setup], self.runs[before.setup]
        step.kept = is_faster(after, earlier)
        if not step.kept and median(speeds(after)) >= LEAST_GAIN * median(speeds(earlier)):
            step.detail = WITHIN_NOISE

    def alternate(self, after: Setup, before: Setup) -> None:
        """Run two settings alternately until both ran often enough or one fails, so that a slowdown
        of the machine affects both."""
        for setup in (before, after) * RUNS:
            runs = self.runs.setdefault(setup, [])
            if len(runs) < RUNS and self.run(setup).status != "ok":
                return

    def all_together(self) -> Row:
        """The last row: all kept changes together, measured again alternately with the first
        row. If they are not clearly faster, none is kept."""
        best, base = self.best().setup, self.steps[0].setup
        del self.runs[best], self.runs[base]
        step = self.first_run("all", best)
        if step.ran:
            self.alternate(best, base)
            if is_faster(self.runs[best], self.runs[base]):
                return self.row(step)
            step.detail = UNSTEADY
        not_again = "not clearly faster in the second run of all changes together"
        self.rows = [
            replace(row, kept=False, detail=not_again) if row.kept else row for row in self.rows
        ]
        for earlier in self.steps:
            earlier.kept = False
        return self.row(step)

    def row(self, step: Step) -> Row:
        """A step as a row of the table: its first run, the speed of all its runs, and how much
        faster than the first row that is."""
        row = Row(
            **{
                **(to_plain(step.first) if step.first else {"status": "skipped"}),
                **step.setup._asdict(),
                "name": step.name,
                "kept": step.kept,
            }
        )
        if step.first is None:
            row = replace(row, workers=None)
        if step.detail is not None:
            row = replace(row, detail=step.detail)
        count = min(map(len, self.losses))
        if step.name == "+AMP" and count:
            mixed, plain = (losses[count - 1] for losses in self.losses)
            row = replace(row, loss_steps=count, loss=mixed, loss_without_amp=plain)
        runs = self.runs.get(step.setup, [])
        if not step.ran or not runs:
            return row
        ordered = speeds(runs)
        middle, base_speeds = median(ordered), speeds(self.runs.get(self.steps[0].setup, ()))
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
