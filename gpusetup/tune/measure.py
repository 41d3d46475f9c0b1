"""The measuring of one `gpusetup tune`: the batch search, or the acceleration guide's table.

The table: the config as it is, then each step added. A step stays if it is faster by more than both
ranges that are printed; the last row measures all that stayed together, beside a second run of the
first one. What was measured before a Ctrl-C is kept and answered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from gpusetup.configs.settings import switch_value, whole_number
from gpusetup.model.frozen import Frozen, replace
from gpusetup.tune.answer import Row, TuneAnswer
from gpusetup.tune.batch import divisors
from gpusetup.tune.bench import Bench, BenchJob, Say, raise_if_code_fails
from gpusetup.tune.case import Measured, known_settings
from gpusetup.tune.search import FIRST, Goal, Trial, fastest, largest_that_ran, stopped

if TYPE_CHECKING:
    from gpusetup.configs.config import Config

ShowProgress = Callable[[int], AbstractContextManager[Say]]
"""Number of trials expected -> a context whose value is told what is measured."""
EXPECTED_TRIALS = {False: 5, True: 15}
"""How many trials a measuring runs, roughly: of a search, and (True) of the table."""
DEFAULT_BATCH = 8
"""The size that is benchmarked where no config names one."""


class MeasureRequest(Frozen):
    """What is to be measured."""

    benchmark: bool
    job: BenchJob
    finds_fastest: bool = False
    """Whether the fastest size is looked for, in place of the largest."""
    largest: int | None = None
    """No size above this one is tried."""


class Baseline(Frozen):
    """What is measured first: training as the config has it."""

    row: Row = Row(batch=DEFAULT_BATCH)
    effective: int | None = None
    """The batch that a step of the optimizer sees; None if no config says."""


DEFAULT_BASELINE = Baseline()


def baseline_of(config: Config) -> Baseline:
    """The first row of the table, as the config has it."""
    fields: dict[str, Any] = {}
    steps = 1
    for setting, key in known_settings(config):
        number, switch = whole_number(setting), switch_value(setting)
        if number and number > 0:
            fields |= {"batch": number} if key.role == "batch" else {}
            steps = number if key.role == "accumulation" else steps
        if key.role == "compile" and switch is not None:
            fields["compile"] = switch
        elif switch and key.role in ("amp", "bf16", "fp16"):
            fields["amp"] = "fp16" if key.role == "fp16" else "bf16"
    row = replace(DEFAULT_BASELINE.row, **fields)
    return Baseline(row=row, effective=row.batch * steps)


def measure(
    request: MeasureRequest, showing: ShowProgress, baseline: Baseline = DEFAULT_BASELINE
) -> tuple[TuneAnswer, Measured]:
    """Everything that is asked to be measured, and what of it goes into the config."""
    with Bench(request.job) as bench:
        session = Session(request, bench, baseline)
        with showing(EXPECTED_TRIALS[request.benchmark]) as session.say:
            try:
                session.benchmark() if request.benchmark else session.batch_size()
            except KeyboardInterrupt:
                session.interrupted = True
    return session.answer()


class Session:
    """One measuring: it keeps what it has, so that a Ctrl-C loses nothing."""

    def __init__(self, request: MeasureRequest, bench: Bench, baseline: Baseline) -> None:
        self.request, self.bench, self.baseline = request, bench, baseline
        self.say: Say = lambda line: None
        self.device = bench.device()
        self.limit_bytes = self.device.room()
        self.trials: list[Trial] = []
        self.rows: list[Row] = []
        self.interrupted = False

    def goal(self, start: int = FIRST) -> Goal:
        sizes = [size for size in (self.request.largest, self.baseline.effective) if size]
        return Goal(limit_bytes=self.limit_bytes, start=start, largest=min(sizes, default=None))

    def batch_size(self) -> None:
        first = self.baseline.row.batch if self.baseline.effective is not None else FIRST
        self.bench.find(self.goal(first), self.trials, self.say, speed=self.request.finds_fastest)

    # --- the table ---

    def benchmark(self) -> None:
        first = self.baseline.row
        self.rows.append(self.run_row(replace(first, amp=self.bench.job.amp or first.amp)))
        if self.rows[0].status != "ok":
            return
        for name, step, no_change in STEPS:
            before = self.best()
            row = Row(name=name, detail=no_change, **(setup_of(before) | step(self, before)))
            new = setup_of(row) != setup_of(before)
            self.rows.append(self.add_step(row, before) if new else row)
        if self.best().name != "base":
            self.rows.append(self.run_all(replace(self.best(), name="all", kept=False)))

    def best(self) -> Row:
        """The last row that stayed: every step that did is in it."""
        return next(row for row in reversed(self.rows) if row.kept or row.name == "base")

    def run_row(self, row: Row) -> Row:
        """The row's setting, run."""
        from gpusetup.model.codec import to_plain

        self.say(in_words(row))
        trial = self.bench.trial(**setup_of(row))
        base = self.rows[0].samples_per_second if self.rows else trial.samples_per_second
        speed_up = (trial.samples_per_second or 0.0) / base if base else None
        return Row(**(to_plain(trial) | setup_of(row)), name=row.name, speed_up=speed_up)

    def add_step(self, planned: Row, before: Row) -> Row:
        """A step, kept if it gains; mixed precision only if its loss is a number."""
        row = self.run_row(planned)
        if row.name == "+AMP" and row.status == "ok" and before.loss is not None is row.loss:
            return replace(row, detail=f"the loss becomes NaN in {row.amp}")
        return replace(row, kept=gains(row, before))

    def run_all(self, planned: Row) -> Row:
        """The last row; unless it is faster than the first one in both of its runs, nothing is
        kept."""
        row, first = self.run_row(planned), self.rows[0]
        if gains(row, first) and gains(row, self.run_row(first)):
            return row
        self.rows[:] = [
            replace(one, kept=False, detail=NOT_FASTER_AGAIN) if one.kept else one
            for one in self.rows
        ]
        return replace(row, detail=row.detail or UNSTEADY)

    def with_amp(self, before: Row) -> Setup:
        return {"amp": before.amp or self.device.half}

    def with_compile(self, before: Row) -> Setup:
        return {"compile": True}

    def with_batch(self, before: Row) -> Setup:
        """The fastest size that keeps the effective batch."""
        goal, effective = self.goal(before.batch), self.baseline.effective
        setup = {"amp": before.amp, "compile": before.compile}
        self.bench.find(goal, self.trials, self.say, speed=True, **setup)
        fastest_batch = fastest(self.trials, goal) or before.batch
        return {"batch": next(divisors(effective, fastest_batch)) if effective else fastest_batch}

    # --- what was found ---

    def answer(self) -> tuple[TuneAnswer, Measured]:
        """What was measured, and what goes into the config: only what gained on this code."""
        rows, goal, stop = self.rows, self.goal(), None
        raise_if_code_fails(self.bench.job, rows[:1] if self.request.benchmark else self.trials)
        if self.request.benchmark:
            size = self.best().batch if rows else None
        else:
            size = (fastest if self.request.finds_fastest else largest_that_ran)(self.trials, goal)
            stop = stopped(self.trials, goal)
        nothing_gained = rows and rows[0].status == "ok" and not any(row.kept for row in rows)
        answer = TuneAnswer(
            trials=tuple(self.trials),
            batch_size=size,
            limit_bytes=self.limit_bytes,
            stopped=stop,
            benchmark=tuple(rows),
            cause=NO_GAIN if nothing_gained and not self.interrupted else None,
            device=self.device.name,
            interrupted=self.interrupted,
        )
        gained = {row.name.strip("+").lower(): row.kept for row in rows}
        return answer, Measured(batch_size=size, is_faster=gained, interrupted=self.interrupted)


Setup = dict[str, Any]
"""Batch, AMP and compile of a row."""
ALREADY_ON = "it is on already"
STEPS: tuple[tuple[Any, Callable[[Session, Row], Setup], str], ...] = (
    ("+AMP", Session.with_amp, ALREADY_ON),
    ("+batch", Session.with_batch, "no other size with the same effective batch is better"),
    ("+compile", Session.with_compile, ALREADY_ON),
)
"""The table's rows: name, how each changes the setup, and its detail if it changes nothing."""
NOT_FASTER_AGAIN = "not faster in the second run of all changes together"
UNSTEADY = "slower than in its first run: other programs disturb the measurement"
NO_GAIN = "Nothing made the training faster: `gpusetup monitor -- COMMAND` shows what it waits for"
LEAST_GAIN = 1.03
"""A step that gains less than 3 % is not worth its trouble."""


def gains(row: Row, before: Row) -> bool:
    """Whether all of a step's range is above the other's, and its speed by the mark.

    >>> quiet = Row(batch=8, samples_per_second=100.0, spread_percent=0.0)
    >>> gains(replace(quiet, samples_per_second=104.0), quiet)
    True
    >>> gains(replace(quiet, samples_per_second=104.0, spread_percent=10.0), quiet)
    False
    """
    if row.spread_percent is None or before.spread_percent is None:
        return False
    speed = row.samples_per_second or 0.0
    fastest_before = (before.samples_per_second or 0.0) * (1 + before.spread_percent / 200)
    return (
        speed * (1 - row.spread_percent / 200) > fastest_before
        and speed >= LEAST_GAIN * fastest_before
    )


def setup_of(row: Row) -> Setup:
    return {"batch": row.batch, "amp": row.amp, "compile": row.compile}


def in_words(row: Row) -> str:
    """
    >>> in_words(Row(batch=8, amp="bf16", compile=True))
    'batch 8, bf16, compiled'
    """
    return ", ".join(filter(None, (f"batch {row.batch}", row.amp, row.compile * "compiled")))
