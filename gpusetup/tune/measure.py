"""The measuring of one `gpusetup tune`: the batch search, or the acceleration guide's table.

The table: the config as it is, then each step added. A step stays if it is faster by more than the
noise: it runs in turn with what it is compared with until that is clear. The last row measures all
that stayed together, beside another run of the first one. What was measured before a Ctrl-C is kept
and answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpusetup.configs.settings import switch_value, whole_number
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.tune.answer import Row, RowName, TuneAnswer
from gpusetup.tune.batch import divisors
from gpusetup.tune.bench import Bench, BenchJob, Say, raise_if_code_fails
from gpusetup.tune.case import Measured, known_settings
from gpusetup.tune.search import FIRST, Goal, Trial, fastest, largest_that_ran, stopped

if TYPE_CHECKING:
    from gpusetup.configs.config import Config

ShowProgress = Callable[[int], AbstractContextManager[Say]]
"""Number of trials expected -> a context whose value is told what is measured."""
EXPECTED_TRIALS = {False: 5, True: 25}
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
    grows: bool = False
    """Whether the config may get a larger effective batch."""
    workers: int = 0
    """How many loader workers the table tries: what the rules would write for this machine."""


class Setup(Frozen):
    """One way to train: what a row of the table sets."""

    batch: int = DEFAULT_BATCH
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    workers: int | None = None
    """Of the loader; None: as the code's own DataLoader has it."""

    def in_words(self) -> str:
        """
        >>> Setup(batch=8, amp="bf16", compile=True, workers=2).in_words()
        'batch 8, bf16, 2 workers, compiled'
        """
        words = [f"batch {self.batch}"]
        if self.amp:
            words.append(self.amp)
        if self.workers is not None:
            words.append(f"{self.workers} workers")
        if self.compile:
            words.append("compiled")
        return ", ".join(words)


class Baseline(Frozen):
    """What is measured first: training as the config has it."""

    setup: Setup = Setup()
    effective: int | None = None
    """The batch that a step of the optimizer sees; None if no config says."""


DEFAULT_BASELINE = Baseline()


def baseline_of(config: Config) -> Baseline:
    """The first row of the table, as the config has it."""
    setup, steps = DEFAULT_BASELINE.setup, 1
    for setting, key in known_settings(config):
        number, switch = whole_number(setting), switch_value(setting)
        if key.role == "batch" and number and number > 0:
            setup = replace(setup, batch=number)
        elif key.role == "accumulation" and number and number > 0:
            steps = number
        elif key.role == "workers" and number is not None and number >= 0:
            setup = replace(setup, workers=number)
        elif key.role == "compile" and switch is not None:
            setup = replace(setup, compile=switch)
        elif key.role in ("amp", "bf16", "fp16") and switch:
            setup = replace(setup, amp="fp16" if key.role == "fp16" else "bf16")
    return Baseline(setup=setup, effective=setup.batch * steps)


def measure(
    request: MeasureRequest, showing: ShowProgress, baseline: Baseline = DEFAULT_BASELINE
) -> tuple[TuneAnswer, Measured]:
    """Everything that is asked to be measured, and what of it goes into the config."""
    with Bench(request.job) as bench:
        session = Session(request, bench, baseline)
        with showing(EXPECTED_TRIALS[request.benchmark]) as session.say:
            try:
                if request.benchmark:
                    session.benchmark()
                else:
                    session.batch_size()
            except KeyboardInterrupt:
                session.interrupted = True
    return session.answer()


# --- is it faster, or is that the noise? ----------------------------------------------------------

Verdict = Literal["gain", "no gain", "open"]
LEAST_GAIN = 1.03
"""A step that gains less than 3 % is not worth its trouble."""
CONFIRMED_RUNS = 2
"""Runs of both settings before a gain counts: other programs come and go between two runs."""
MOST_RUNS = 5
"""Runs of a setting, at most, to find out whether it is faster than another one."""
FIRST_SECONDS, LONGEST_SECONDS = 0.5, 2.0
"""How long steps are timed in the first run of a setting, and at most in a later one."""
MOST_SECONDS = 45.0
"""After this time a comparison ends where it is."""


def timed_seconds(runs: int) -> float:
    """How long the next run of a setting times its steps: longer if the first ones left it open.

    >>> [timed_seconds(runs) for runs in range(4)]
    [0.5, 1.0, 2.0, 2.0]
    """
    doubled: float = FIRST_SECONDS * 2**runs
    return min(doubled, LONGEST_SECONDS)


def middle_half(runs: Sequence[Trial]) -> list[Trial]:
    """The runs that count, the slowest first: of four or more, the middle half."""
    ordered = sorted(runs, key=lambda run: run.samples_per_second or 0.0)
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter]


class SpeedRange(NamedTuple):
    """The samples a second that several runs of one setting show."""

    slowest: float
    middle: float
    highest: float

    @property
    def spread_percent(self) -> float:
        return 100 * (self.highest - self.slowest) / self.middle


def speed_range(runs: Sequence[Trial]) -> SpeedRange | None:
    """From the slowest rounds of the slowest run to the fastest of the fastest; None if one of them
    timed a single step.

    >>> quiet = Trial(batch=8, status="ok", samples_per_second=100.0, spread_percent=2.0)
    >>> disturbed = replace(quiet, samples_per_second=50.0)
    >>> speed_range([quiet, disturbed])
    SpeedRange(slowest=49.5, middle=100.0, highest=101.0)
    >>> speed_range([quiet, quiet, quiet, disturbed])
    SpeedRange(slowest=99.0, middle=100.0, highest=101.0)
    """
    counted = middle_half(runs)
    slowest, highest = [], []
    for run in counted:
        if run.samples_per_second is None or run.spread_percent is None:
            return None
        half = run.spread_percent / 200
        slowest.append(run.samples_per_second * (1 - half))
        highest.append(run.samples_per_second * (1 + half))
    middle = counted[len(counted) // 2].samples_per_second or 0.0
    return SpeedRange(min(slowest), middle, max(highest))


def compare(after: Sequence[Trial], before: Sequence[Trial]) -> Verdict:
    """Whether the runs of one setting are faster than those of another, as far as the noise shows.

    A gain has its whole range above the other's, and its speed by `LEAST_GAIN`. Nothing is gained
    if even the best of it is less than that above the worst of the other.

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
    is_apart = speed.slowest > speed_before.highest
    is_worth_it = speed.middle >= LEAST_GAIN * speed_before.highest
    is_confirmed = min(len(after), len(before)) >= CONFIRMED_RUNS
    return "gain" if is_apart and is_worth_it and is_confirmed else "open"


# --- one measuring --------------------------------------------------------------------------------


class Session:
    """One measuring: it keeps what it has, so that a Ctrl-C loses nothing."""

    def __init__(self, request: MeasureRequest, bench: Bench, baseline: Baseline) -> None:
        self.request, self.bench, self.baseline = request, bench, baseline
        self.say: Say = lambda line: None
        self.device = bench.device()
        self.limit_bytes = self.device.room()
        self.trials: list[Trial] = []
        """Of the search for a batch."""
        self.runs: dict[Setup, list[Trial]] = {}
        """Of the table: each setting with what it took, each time it ran."""
        self.rows: list[Row] = []
        self.interrupted = False

    def goal(self, start: int, *, keeps_effective: bool) -> Goal:
        """What the search looks for."""
        bounds = [self.request.largest]
        if keeps_effective:
            bounds.append(self.baseline.effective)
        largest = min((bound for bound in bounds if bound), default=None)
        return Goal(limit_bytes=self.limit_bytes, start=start, largest=largest)

    def batch_size(self) -> None:
        """The search: above the config's batch too, because only what runs is worth knowing."""
        self.bench.find(self.search_goal(), self.trials, self.say, speed=self.request.finds_fastest)

    def search_goal(self) -> Goal:
        has_config = self.baseline.effective is not None
        start = self.baseline.setup.batch if has_config else FIRST
        return self.goal(start, keeps_effective=False)

    # --- the table ---

    def benchmark(self) -> None:
        """Each row of the guide's table in its order; what gains is in all rows after it."""
        setup = self.baseline.setup
        base = replace(setup, amp=self.bench.job.amp or setup.amp)
        self.rows.append(self.first_row("base", base))
        if self.rows[0].status != "ok":
            return
        for step in STEPS:
            before = self.best()
            setup_or_reason = step.change(self, setup_of(before))
            if isinstance(setup_or_reason, Setup):
                self.rows.append(self.added_row(step.name, setup_or_reason, before))
            else:
                skipped = row_of(step.name, setup_of(before), None)
                self.rows.append(replace(skipped, detail=setup_or_reason))
        self.show_losses()
        self.rows[:] = [self.with_all_runs(row) for row in self.rows]
        if self.best().name != "base":
            self.rows.append(self.all_together())

    def best(self) -> Row:
        """The last row that stayed: every step that did is in it."""
        return next(row for row in reversed(self.rows) if row.kept or row.name == "base")

    def run(self, setup: Setup) -> Trial:
        """The setting, run once more."""
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
        """A row after one run. The base's workers are those of the code's own loader, if no config
        names any."""
        trial = self.run(setup)
        row = row_of(name, setup, trial)
        if trial.status == "ok" and row.workers != setup.workers:
            self.runs[setup_of(row)] = self.runs.pop(setup)
        return row

    def added_row(self, name: RowName, setup: Setup, before: Row) -> Row:
        """A step: kept if it gains; mixed precision only if its loss is a number."""
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
        """Run two settings in turn until it is clear whether the first is faster; `open` if the
        machine is too noisy to tell."""
        ends = time.monotonic() + MOST_SECONDS
        verdict = compare(self.runs[setup], self.runs[before])
        most_runs = len(self.runs[setup]) + MOST_RUNS - 1
        while verdict == "open" and len(self.runs[setup]) < most_runs:
            again = [self.run(before), self.run(setup)]
            if any(trial.status != "ok" for trial in again) or time.monotonic() > ends:
                break
            verdict = compare(self.runs[setup], self.runs[before])
        return verdict

    def all_together(self) -> Row:
        """The last row: everything that stayed, beside the first row, both measured afresh."""
        best, base = setup_of(self.best()), setup_of(self.rows[0])
        del self.runs[best], self.runs[base]
        row = self.first_row("all", best)
        if row.status == "ok":
            self.run(base)
            if base in self.runs and self.settle(best, base) == "gain":
                return self.with_all_runs(row)
            row = replace(self.with_all_runs(row), detail=UNSTEADY)
        for index, step_row in enumerate(self.rows):
            if step_row.kept:
                self.rows[index] = replace(step_row, kept=False, detail=NOT_FASTER_AGAIN)
        return row

    def with_all_runs(self, row: Row) -> Row:
        """The row with what all runs of its setting say together, and of the base."""
        runs = self.runs.get(setup_of(row), ())
        base_runs = self.runs.get(setup_of(self.rows[0]), ())
        if row.status != "ok" or not runs:
            return row
        middle = middle_half(runs)[len(middle_half(runs)) // 2]
        speed_up = None
        speed, base_speed = speed_range(runs), speed_range(base_runs) if base_runs else None
        if speed and base_speed:
            speed_up = speed.middle / base_speed.middle
        return replace(
            row,
            runs=len(runs),
            samples_per_second=middle.samples_per_second,
            spread_percent=speed.spread_percent if speed else None,
            speed_up=speed_up,
            seconds_per_epoch=epoch_seconds(row.dataset_length, middle.samples_per_second),
        )

    def show_losses(self) -> None:
        """The loss with and without mixed precision, after as many steps, in the row of AMP."""
        index, row = next(pair for pair in enumerate(self.rows) if pair[1].name == "+AMP")
        mixed, plain = row, self.rows[0]
        if plain.amp:  # the config has it on: one more run, without it
            mixed = plain
            trial = self.bench.trial(plain.batch, amp=None, compile=plain.compile, timed=False)
            plain = row_of("base", setup_of(plain), trial)
        steps = min(len(mixed.losses), len(plain.losses))
        if steps:
            self.rows[index] = replace(
                row,
                loss_steps=steps,
                loss=mixed.losses[steps - 1],
                loss_without_amp=plain.losses[steps - 1],
            )

    # --- the steps of the table: the setting to try, or why there is none ---

    def with_amp(self, before: Setup) -> Setup | str:
        return ALREADY_ON if before.amp else replace(before, amp=self.device.half)

    def with_batch(self, before: Setup) -> Setup | str:
        """The fastest size; without `--grow-batch` one that keeps the effective batch."""
        effective = self.baseline.effective
        goal = self.goal(before.batch, keeps_effective=not self.request.grows)
        self.bench.find(
            goal, self.trials, self.say, speed=True, amp=before.amp, compile=before.compile
        )
        size = fastest(self.trials, goal) or before.batch
        if effective and size <= effective:
            size = next(divisors(effective, size))
        if size == before.batch:
            return NO_OTHER_SIZE[self.request.grows]
        return replace(before, batch=size)

    def with_workers(self, before: Setup) -> Setup | str:
        """As many loader workers as the rules would write for this machine."""
        if self.rows[0].workers is None:
            return NO_DATASET
        if before.workers == self.request.workers:
            return f"the loader has {before.workers} already"
        return replace(before, workers=self.request.workers)

    def with_compile(self, before: Setup) -> Setup | str:
        return ALREADY_ON if before.compile else replace(before, compile=True)

    # --- what was measured ---

    def answer(self) -> tuple[TuneAnswer, Measured]:
        """What was measured, and what goes into the config: only what gained on this code."""
        rows, stop = self.rows, None
        raise_if_code_fails(self.bench.job, rows[:1] if self.request.benchmark else self.trials)
        if self.request.benchmark:
            size = self.best().batch if rows else None
        else:
            goal = self.search_goal()
            choose = fastest if self.request.finds_fastest else largest_that_ran
            size = choose(self.trials, goal)
            stop = stopped(self.trials, goal)
        ran = [trial for trial in (*self.trials, *rows) if trial.batch == size]
        answer = TuneAnswer(
            recommendations=tuple(allocator_notes(ran, self.limit_bytes)),
            trials=tuple(self.trials),
            batch_size=size,
            limit_bytes=self.limit_bytes,
            stopped=stop,
            benchmark=tuple(rows),
            cause=None if self.interrupted else cause_of(rows),
            device=self.device.name,
            interrupted=self.interrupted,
        )
        return answer, Measured(
            batch_size=size,
            grows=self.request.grows,
            is_faster=gains_by_role(rows),
            interrupted=self.interrupted,
        )


class Step(NamedTuple):
    """One row of the table after the first: its name, and the setting that it tries."""

    name: RowName
    change: Callable[[Session, Setup], Setup | str]


STEPS = (
    Step("+AMP", Session.with_amp),
    Step("+batch", Session.with_batch),
    Step("+workers", Session.with_workers),
    Step("+compile", Session.with_compile),
)
"""In the acceleration guide's order."""
ALREADY_ON = "it is on already"
NO_OTHER_SIZE = {
    False: "no other size with the same effective batch is better",
    True: "no other size is better",
}
"""Whether the batch may grow -> why the row of the batch has no other size."""
NO_DATASET = "not measured: the code returns no `dataset`"
WITHIN_NOISE = "within the noise"
NOT_FASTER_AGAIN = "not faster in the second run of all changes together"
UNSTEADY = "slower than in its first run: other programs disturb the measurement"
NO_GAIN = "Nothing made the training faster: `gpusetup monitor -- COMMAND` shows what it waits for"
LOADER_FIRST = (
    "The training waited for its data until the workers were added, so mixed precision could not "
    "show its gain: run the same command once more with the tuned config"
)


def row_of(name: RowName, setup: Setup, trial: Trial | None) -> Row:
    """A row of the table: what was set, and what one run of it took (None: it did not run)."""
    from gpusetup.model.codec import to_plain

    measured = to_plain(trial) if trial else {"status": "skipped"}
    fields = measured | {"batch": setup.batch, "amp": setup.amp, "compile": setup.compile}
    # A trial that took no batch of a loader says nothing about workers.
    fields.setdefault("workers", None)
    return Row(**fields, name=name)


def setup_of(row: Row) -> Setup:
    """What a row sets."""
    return Setup(batch=row.batch, amp=row.amp, compile=row.compile, workers=row.workers)


def allocator_notes(ran: Iterable[Trial], limit_bytes: int) -> Iterator[str]:
    """That torch's allocator took more of the card than the margin leaves, for a size that ran.

    A trial counts the bytes of its tensors, and it runs under the allocator's own limit: that it
    ran proves that these very shapes fit, with the gaps between blocks. It proves nothing of the
    shapes of other batches, which leave other gaps.
    """
    reserved = [trial for trial in ran if (trial.reserved_bytes or 0) > limit_bytes]
    if reserved:
        tightest = max(reserved, key=lambda trial: trial.reserved_bytes or 0)
        gaps = 100 * ((tightest.reserved_bytes or 0) / (tightest.peak_bytes or 1) - 1)
        yield (
            f"Batch {tightest.batch} ran, but torch's allocator reserved"
            f" {(tightest.reserved_bytes or 0) / GIB:.1f} GiB for it, {gaps:.0f} % more than its"
            f" tensors take, so less stays free than planned. If your samples differ in size, take"
            f" a smaller batch or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        )


def epoch_seconds(samples: int | None, speed: float | None) -> float | None:
    """
    >>> epoch_seconds(1000, 50.0)
    20.0
    """
    return samples / speed if samples and speed else None


def gains_by_role(rows: Iterable[Row]) -> dict[str, bool]:
    """`amp`, `batch`, `workers`, `compile` -> whether it was faster; none that was not tried.

    >>> gains_by_role([row_of("+AMP", Setup(), None)])
    {}
    """
    return {row.name.removeprefix("+").lower(): row.kept for row in rows if row.status != "skipped"}


def cause_of(rows: Sequence[Row]) -> str | None:
    """Why a training got no faster, or not as fast as it may get."""
    if not rows or rows[0].status != "ok":
        return None
    gains = gains_by_role(rows)
    if not any(gains.values()):
        return NO_GAIN
    if gains.get("workers") and gains.get("amp") is False:
        return LOADER_FIRST
    return None
