"""Runs the measurements of `gpusetup tune`: the batch search, or the acceleration guide's table,
which tries the config unchanged, then one change after another.

A change is kept if it is faster by more than the noise. To find out, the table alternates runs with
and without the change. If the user presses Ctrl-C, the answer contains what was measured so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from gpusetup.configs.config import Config
from gpusetup.configs.settings import switch_value, whole_number
from gpusetup.model.codec import to_plain
from gpusetup.model.frozen import replace
from gpusetup.tune.answer import Row, RowName, TuneAnswer
from gpusetup.tune.batch import divisors
from gpusetup.tune.bench import (
    FIRST,
    Bench,
    BenchJob,
    Device,
    Goal,
    Half,
    Say,
    Trial,
    fastest,
    largest_that_ran,
    raise_if_code_fails,
)
from gpusetup.tune.case import known_settings

LEAST_GAIN = 1.03
"""The smallest speed-up that counts as a gain: less than 3 % is not worth the trouble."""
RUNS = 3
"""How often both settings of a comparison run. If they are equally fast, all three runs of the
first are faster than all three of the second in one of twenty cases."""

ALREADY_ON = "it is on already"
NO_GAIN = "Nothing made the training faster: `gpusetup monitor -- COMMAND` shows what it waits for"


class Setup(NamedTuple):
    """One combination of settings to train with, as in a row of the table."""

    batch: int = 8
    """8 if no config gives one."""
    amp: Half | None = None
    compile: bool = False
    workers: int | None = None
    """The number of loader workers; None keeps the number of the code's DataLoader."""


@dataclass
class Step:
    """A change that the table tries on top of those that were kept; first, no change at all."""

    name: RowName
    setup: Setup
    runs: list[Trial] = field(default_factory=list)
    """The first run, whatever its result, and the later ones that succeeded; empty if the step does
    not apply."""
    kept: bool = False
    detail: str | None = None
    """Why it was left out."""

    @property
    def ran(self) -> bool:
        return bool(self.runs) and self.runs[0].status == "ok"


@dataclass
class TrialTable:
    """The steps so far with their runs, which stay after Ctrl-C."""

    bench: Bench
    device: Device
    goal: Goal
    setup: Setup
    """The config's own settings."""
    effective: int | None
    """The config's samples in one optimizer step; None without a config."""
    say: Say
    steps: list[Step] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    """The trials of the batch search, which belongs to the row `+batch`."""

    def measure(self, workers: int) -> None:
        """Measure the rows of the guide's table in order; a change that helps is kept in all later
        rows. `workers`: the number of loader workers to try."""
        base = self.first_run("base", self.setup)
        if not base.ran:
            return
        names: tuple[RowName, ...] = ("+AMP", "+batch", "+workers", "+compile")
        for name in names:
            best = self.best()
            to_try = self.next_setup(name, best.setup, workers)
            if isinstance(to_try, str):
                self.steps.append(Step(name, best.setup, detail=to_try))
            else:
                self.compare(self.first_run(name, to_try), best)

    def next_setup(self, name: RowName, before: Setup, workers: int) -> Setup | str:
        """The setting to try for a step of the table, or the reason why there is none."""
        if name == "+AMP":
            return ALREADY_ON if before.amp else before._replace(amp=self.device.half)
        if name == "+compile":
            return ALREADY_ON if before.compile else before._replace(compile=True)
        if name == "+workers":
            # If the trial took no batch from a loader, the number of workers is unknown.
            if before.workers is None:
                return "not measured: the code returns no `dataset`"
            if before.workers == workers:
                return f"the loader has {workers} already"
            return before._replace(workers=workers)
        # What is left is `+batch`: the fastest size.
        goal = replace(self.goal, start=before.batch)
        settings = {"amp": before.amp, "compile": before.compile}
        self.bench.find(goal, self.trials, self.say, speed=True, **settings)
        size = fastest(self.trials, goal) or before.batch
        # Only divisors of the effective batch can be accumulated to it.
        if self.effective and size <= self.effective:
            size = next(divisors(self.effective, size))
        if size == before.batch:
            return "no other size with the same effective batch is better"
        return before._replace(batch=size)

    def best(self) -> Step:
        """The last step that was kept, which includes all changes kept so far; the first step if
        none was."""
        return next((step for step in reversed(self.steps) if step.kept), self.steps[0])

    def run(self, setup: Setup) -> Trial:
        """Run one trial, whose batches come from the code's data set if it returns one."""
        words = (f"batch {setup.batch}", setup.amp, "compiled" if setup.compile else "")
        workers = "" if setup.workers is None else f"{setup.workers} workers"
        self.say(", ".join(filter(None, (*words, workers))))
        return self.bench.trial(**setup._asdict(), loaded=True)

    def first_run(self, name: RowName, setup: Setup) -> Step:
        """Run a step. If its setting names no worker count, it takes that of the code's own loader,
        with which it also runs later."""
        trial = self.run(setup)
        self.steps.append(Step(name, setup._replace(workers=trial.workers), [trial]))
        return self.steps[-1]

    def compare(self, step: Step, before: Step) -> None:
        """Keep a step that is clearly faster than `before`, the best so far. Mixed precision is not
        kept if its loss becomes NaN."""
        if not step.ran:
            return
        if step.name == "+AMP" and step.runs[0].loss is None and before.runs[0].loss is not None:
            step.detail = f"the loss becomes NaN in {step.setup.amp}"
            return
        # A change whose only run is slower than all runs before it needs no more runs.
        if speeds(step.runs)[0] < speeds(before.runs)[0]:
            return
        # Alternately, so that a slowdown of the machine affects both.
        for one in (before, step) * RUNS:
            # The best step may have all its runs from an earlier comparison.
            if len(one.runs) < RUNS:
                trial = self.run(one.setup)
                if trial.status != "ok":
                    break
                one.runs.append(trial)
        step.kept = is_faster(step.runs, before.runs)
        if not step.kept and median(speeds(step.runs)) >= LEAST_GAIN * median(speeds(before.runs)):
            step.detail = "within the noise"

    def row(self, step: Step) -> Row:
        """A step as a row of the table: its first run, the speed of all its runs, and how much
        faster than the first row that is."""
        first, base = (step.runs[0] if step.runs else None), self.steps[0]
        fields = to_plain(first) if first else {"status": "skipped"}
        fields |= {**step.setup._asdict(), "name": step.name, "kept": step.kept}
        # A row that was not measured shows no workers, which were another row's.
        if first is None:
            fields["workers"] = None
        if step.detail:
            fields["detail"] = step.detail
        row = Row(**fields)
        if first is None or not step.ran:
            return row
        mixed, plain = first.losses, base.runs[0].losses
        if step.name == "+AMP" and mixed and plain:
            # Compare the losses after the last step that both runs read.
            count = min(len(mixed), len(plain))
            losses = {"loss": mixed[count - 1], "loss_without_amp": plain[count - 1]}
            row = replace(row, loss_steps=count, **losses)
        ordered = speeds(step.runs)
        middle = median(ordered)
        # The spread between runs; the first run of a setting shows only that between its steps.
        between_runs = 100 * (ordered[-1] - ordered[0]) / middle
        spread = row.spread_percent
        return replace(
            row,
            runs=len(step.runs),
            samples_per_second=middle,
            # If a run timed only one step, its error is unknown.
            spread_percent=None if spread is None else max(spread, between_runs),
            speed_up=middle / median(speeds(base.runs)),
            seconds_per_epoch=row.dataset_length / middle if row.dataset_length else None,
        )


def gains_by_role(rows: Sequence[Row]) -> dict[str, bool]:
    """Change (`amp`, `batch`, `workers`, `compile`, `base`) -> whether its row was kept; skipped
    rows are left out."""
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


def search(job: BenchJob, say: Say, config: Config | None, *, largest: int | None) -> TuneAnswer:
    """Search for the largest batch size that fits, up to `largest`."""
    trials: list[Trial] = []
    is_interrupted = True
    with Bench(job) as bench:
        device = bench.device()
        start = _setup_of(config)[0].batch if config else FIRST
        goal = Goal(limit_bytes=device.room(), start=start, largest=largest)
        with suppress(KeyboardInterrupt):
            bench.find(goal, trials, say)
            is_interrupted = False
    raise_if_code_fails(job, trials)
    return TuneAnswer(
        trials=tuple(trials),
        # After Ctrl-C, this is the best size among those that have run.
        batch_size=largest_that_ran(trials, goal),
        limit_bytes=goal.limit_bytes,
        device=device.name,
        interrupted=is_interrupted,
    )


def benchmark(
    job: BenchJob, say: Say, config: Config | None, *, workers: int, largest: int | None
) -> TuneAnswer:
    """Measure the table with batches up to `largest`; `workers` is the number of loader workers
    that the rules would write."""
    setup, effective = _setup_of(config) if config else (Setup(), None)
    is_interrupted = True
    with Bench(job) as bench:
        device = bench.device()
        # The table stays within the effective batch; only `search` also tries larger sizes.
        most = min((one for one in (largest, effective) if one), default=None)
        goal = Goal(limit_bytes=device.room(), start=setup.batch, largest=most)
        table = TrialTable(bench, device, goal, setup, effective, say)
        with suppress(KeyboardInterrupt):
            table.measure(workers)
            is_interrupted = False
    rows = [table.row(step) for step in table.steps]
    # The first row is the unchanged code; a later one may fail because of the change that it tries.
    # After an early Ctrl-C there is none.
    raise_if_code_fails(job, rows[:1])
    ran = bool(rows) and rows[0].status == "ok"
    has_no_gain = ran and not is_interrupted and not any(row.kept for row in rows)
    return TuneAnswer(
        trials=tuple(table.trials),
        batch_size=table.best().setup.batch if rows else None,
        limit_bytes=goal.limit_bytes,
        benchmark=tuple(rows),
        cause=NO_GAIN if has_no_gain else None,
        device=device.name,
        interrupted=is_interrupted,
    )


def _setup_of(config: Config) -> tuple[Setup, int]:
    """The settings of the first measurement, read from the config, and its effective batch: the
    samples in one optimizer step."""
    setup, steps = Setup(), 1
    for setting, key in known_settings(config):
        number, switch = whole_number(setting), switch_value(setting)
        if key.role == "batch" and number and number > 0:
            setup = setup._replace(batch=number)
        elif key.role == "accumulation" and number and number > 0:
            steps = number
        # With 0 workers, the process loads the data itself.
        elif key.role == "workers" and number is not None and number >= 0:
            setup = setup._replace(workers=number)
        elif key.role == "compile" and switch is not None:
            setup = setup._replace(compile=switch)
        elif key.role in ("amp", "bf16", "fp16") and switch:
            setup = setup._replace(amp="fp16" if key.role == "fp16" else "bf16")
    return setup, setup.batch * steps
