"""Measures the acceleration guide's table: the config unchanged, then one change after another.

A change is kept if it is faster by more than the noise. To find out, the table alternates runs with
and without the change until the result is clear. The last row measures all kept changes together,
alternating with the first row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpusetup.model.frozen import replace
from gpusetup.tune.answer import Row, RowName
from gpusetup.tune.baseline import Baseline, MeasureRequest, Setup, search_goal
from gpusetup.tune.batch import divisors
from gpusetup.tune.bench import Bench, Device, Say
from gpusetup.tune.noise import (
    CONFIRMED_RUNS,
    MOST_RUNS,
    MOST_SECONDS,
    TABLE_SECONDS,
    Verdict,
    compare,
    middle_half,
    speed_range,
    timed_seconds,
)
from gpusetup.tune.search import Trial, fastest


class TrialTable:
    """The rows of the table so far and all their runs, which are kept after Ctrl-C."""

    def __init__(self, request: MeasureRequest, bench: Bench, baseline: Baseline) -> None:
        self.request = request
        self.bench = bench
        self.baseline = baseline
        # Print nothing until `say` is replaced by the progress display.
        self.say: Say = lambda line: None
        self.device: Device = bench.device()
        self.ends = 0.0
        """The time (`time.monotonic`) at which the comparisons should end."""
        self.rows: list[Row] = []
        self.runs: dict[Setup, list[Trial]] = {}
        """Setting -> the results of all its successful runs."""
        self.trials: list[Trial] = []
        """The trials of the batch search, which belongs to the row `+batch`."""

    def measure(self) -> None:
        """Measure the rows of the guide's table in order; a change that helps is kept in all later
        rows."""
        self.ends = time.monotonic() + TABLE_SECONDS
        setup = self.baseline.setup
        # The option `--amp` also applies to the first row.
        base_setup = replace(setup, amp=self.bench.job.amp or setup.amp)
        base_row = self.first_row("base", base_setup)
        self.rows.append(base_row)
        if base_row.status != "ok":
            return
        for step in STEPS:
            row = self.row_of_step(step)
            self.rows.append(row)
        self.show_losses()
        # Some settings ran again during comparisons, so update their rows.
        self.rows[:] = [self.with_all_runs(row) for row in self.rows]
        if self.best().name != "base":
            self.rows.append(self.all_together())

    def row_of_step(self, step: TableStep) -> Row:
        """The row for one step of the table, with the reason if there is nothing to measure."""
        before = self.best()
        setup_before = setup_of(before)
        setup_or_reason = step.change(self, setup_before)
        if isinstance(setup_or_reason, Setup):
            return self.added_row(step.name, setup_or_reason, before)
        skipped = row_of(step.name, setup_before, None)
        return replace(skipped, detail=setup_or_reason)

    def best(self) -> Row:
        """The last row that was kept, which includes all changes kept so far; the first row if none
        was."""
        last = self.rows[0]
        for row in self.rows:
            if row.kept:
                last = row
        return last

    def run(self, setup: Setup) -> Trial:
        """Run a setting once more and record the result."""
        self.say(setup.in_words())
        trial = self.bench.trial(
            setup.batch,
            amp=setup.amp,
            compile=setup.compile,
            workers=setup.workers,
            loaded=True,
            least_seconds=timed_seconds(len(self.runs.get(setup, ()))),
        )
        if trial.status == "ok":
            self.runs.setdefault(setup, []).append(trial)
        return trial

    def first_row(self, name: RowName, setup: Setup) -> Row:
        """A row after its first run. If the setting names no worker count, the row takes that of
        the code's own loader."""
        trial = self.run(setup)
        row = row_of(name, setup, trial)
        has_other_workers = row.workers != setup.workers
        if trial.status == "ok" and has_other_workers:
            # Store the runs under the setting with that worker count, because later runs use it.
            runs = self.runs.pop(setup)
            self.runs[setup_of(row)] = runs
        return row

    def added_row(self, name: RowName, setup: Setup, before: Row) -> Row:
        """The row for one change, kept if it is faster. Mixed precision is not kept if its loss
        becomes NaN."""
        row = self.first_row(name, setup)
        if row.status != "ok":
            return row
        loses_its_loss = row.loss is None and before.loss is not None
        if name == "+AMP" and loses_its_loss:
            return replace(row, detail=f"the loss becomes NaN in {row.amp}")
        setup_before = setup_of(before)
        verdict = self.settle(setup_of(row), setup_before)
        if verdict == "open":
            return replace(row, detail=WITHIN_NOISE)
        is_kept = verdict == "gain"
        return replace(row, kept=is_kept)

    def settle(self, setup: Setup, before: Setup) -> Verdict:
        """Run two settings alternately until it is clear whether the first is faster; `open` if
        noise hides the answer."""
        ends = min(self.ends, time.monotonic() + MOST_SECONDS)
        verdict = compare(self.runs[setup], self.runs[before])
        for _ in range(MOST_RUNS - 1):
            is_confirmed = len(self.runs[setup]) >= CONFIRMED_RUNS
            is_late = time.monotonic() > ends and is_confirmed
            if verdict != "open" or is_late:
                break
            # Alternate between the two settings, so that a temporary slowdown of the machine
            # affects both.
            trial_before = self.run(before)
            trial = self.run(setup)
            both_ran = trial_before.status == "ok" and trial.status == "ok"
            if not both_ran:
                break
            verdict = compare(self.runs[setup], self.runs[before])
        return verdict

    def all_together(self) -> Row:
        """The last row: all kept changes together, measured again alternately with the first
        row."""
        best = setup_of(self.best())
        base = setup_of(self.rows[0])
        del self.runs[best], self.runs[base]
        row = self.first_row("all", best)
        if row.status == "ok":
            self.run(base)
            # If the first row's setting fails this time, nothing can be compared.
            has_base = base in self.runs
            verdict = self.settle(best, base) if has_base else "open"
            row = self.with_all_runs(row)
            if verdict == "gain":
                return row
            reason = WITHIN_NOISE if verdict == "open" else UNSTEADY
            row = replace(row, detail=reason)
        for index, step_row in enumerate(self.rows):
            if step_row.kept:
                self.rows[index] = replace(step_row, kept=False, detail=NOT_FASTER_AGAIN)
        return row

    def with_all_runs(self, row: Row) -> Row:
        """The row updated with the results of all runs of its setting, compared with the
        first row."""
        runs = self.runs.get(setup_of(row), ())
        base_runs = self.runs.get(setup_of(self.rows[0]), ())
        if row.status != "ok" or not runs:
            return row
        counted = middle_half(runs)
        middle = counted[len(counted) // 2]
        speed = speed_range(runs)
        base_speed = speed_range(base_runs) if base_runs else None
        # If a run timed only one step, its error is unknown, so show no speed-up.
        speed_up = speed.middle / base_speed.middle if speed and base_speed else None
        middle_speed = middle.samples_per_second
        return replace(
            row,
            runs=len(runs),
            samples_per_second=middle_speed,
            spread_percent=speed.spread_percent if speed else None,
            speed_up=speed_up,
            seconds_per_epoch=epoch_seconds(row.dataset_length, middle_speed),
        )

    def show_losses(self) -> None:
        """Add the losses with and without mixed precision, after the same number of steps, to the
        row for AMP."""
        names = [row.name for row in self.rows]
        index = names.index("+AMP")
        row = self.rows[index]
        mixed = row
        plain = self.rows[0]
        # If the config already uses mixed precision, run once more without it.
        if plain.amp:
            mixed = plain
            trial = self.bench.trial(plain.batch, amp=None, compile=plain.compile, timed=False)
            plain = row_of("base", setup_of(plain), trial)
        steps = min(len(mixed.losses), len(plain.losses))
        if not steps:
            return
        last = steps - 1
        self.rows[index] = replace(
            row,
            loss_steps=steps,
            loss=mixed.losses[last],
            loss_without_amp=plain.losses[last],
        )

    # --- the steps of the table: the setting to try, or why there is none ---

    def with_amp(self, before: Setup) -> Setup | str:
        """The setting with mixed precision in the device's 16-bit type, or the reason why there is
        nothing to try."""
        if before.amp:
            return ALREADY_ON
        return replace(before, amp=self.device.half)

    def with_batch(self, before: Setup) -> Setup | str:
        """The setting with the fastest batch at the same effective batch, or the reason why there
        is none."""
        effective = self.baseline.effective
        room = self.device.room()
        goal = search_goal(self.request, before.batch, room, effective)
        settings = {"amp": before.amp, "compile": before.compile}
        self.bench.find(goal, self.trials, self.say, speed=True, **settings)
        size = fastest(self.trials, goal) or before.batch
        # Use the largest divisor of the effective batch, because only divisors can be accumulated
        # to it.
        if effective and size <= effective:
            size = next(divisors(effective, size))
        if size == before.batch:
            return NO_OTHER_SPLIT if effective else NO_OTHER_SIZE
        return replace(before, batch=size)

    def with_workers(self, before: Setup) -> Setup | str:
        """The setting with the number of loader workers that the rules would write, or the reason
        why there is nothing to try."""
        # If the trial took no batch from a loader, the number of workers is unknown.
        if self.rows[0].workers is None:
            return NO_DATASET
        workers = self.request.workers
        if before.workers == workers:
            return f"the loader has {workers} already"
        return replace(before, workers=workers)

    def with_compile(self, before: Setup) -> Setup | str:
        """The setting with `torch.compile`, or the reason why there is nothing to try."""
        if before.compile:
            return ALREADY_ON
        return replace(before, compile=True)


class TableStep(NamedTuple):
    """A row of the table after the first: its name, and a function that returns the setting to try
    or a reason."""

    name: RowName
    change: Callable[[TrialTable, Setup], Setup | str]


STEPS = (
    TableStep("+AMP", TrialTable.with_amp),
    TableStep("+batch", TrialTable.with_batch),
    TableStep("+workers", TrialTable.with_workers),
    TableStep("+compile", TrialTable.with_compile),
)
"""The steps in the order of the acceleration guide."""
ALREADY_ON = "it is on already"
NO_OTHER_SIZE = "no other size is better"
NO_OTHER_SPLIT = "no other size with the same effective batch is better"
NO_DATASET = "not measured: the code returns no `dataset`"
WITHIN_NOISE = "within the noise"
NOT_FASTER_AGAIN = "not clearly faster in the second run of all changes together"
UNSTEADY = "slower than in its first run: other programs disturb the measurement"
NO_GAIN = "Nothing made the training faster: `gpusetup monitor -- COMMAND` shows what it waits for"
TOO_NOISY = (
    "The runs of one setting differed by more than the gains, so the table cannot tell: close "
    "other programs and run the same command again"
)
LOADER_FIRST = (
    "The training waited for its data until the workers were added, so mixed precision could not "
    "show its gain: run the same command once more with the tuned config"
)


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
    """The combination of settings that a row measured."""
    # Take only these fields; the row's other fields are its results.
    return Setup(
        batch=row.batch,
        amp=row.amp,
        compile=row.compile,
        workers=row.workers,
    )


def epoch_seconds(samples: int | None, speed: float | None) -> float | None:
    """The seconds per epoch, from its number of samples and the samples per second; None if either
    is unknown.

    >>> epoch_seconds(1000, 50.0)
    20.0
    """
    if not samples or not speed:
        return None
    return samples / speed


def gains_by_role(rows: Iterable[Row]) -> dict[str, bool]:
    """Change (`amp`, `batch`, `workers`, `compile`, `base`, `all`) -> whether its row was kept;
    skipped rows are left out.

    >>> gains_by_role([row_of("+AMP", Setup(), None)])
    {}
    """
    gains = {}
    for row in rows:
        if row.status != "skipped":
            role = row.name.removeprefix("+").lower()
            gains[role] = row.kept
    return gains


def cause_of(rows: Sequence[Row]) -> str | None:
    """A sentence that explains why no change made the training faster, or suggests what to measure
    next; None if neither is known."""
    if not rows or rows[0].status != "ok":
        return None
    gains = gains_by_role(rows)
    if not any(gains.values()):
        details = {row.detail for row in rows}
        # With these details, noise hid the result, so a machine with fewer other programs may show
        # a gain.
        is_open = WITHIN_NOISE in details or UNSTEADY in details
        return TOO_NOISY if is_open else NO_GAIN
    amp_brought_nothing = gains.get("amp") is False
    if gains.get("workers") and amp_brought_nothing:
        return LOADER_FIRST
    return None
