"""The measuring of one `gpusetup tune`: the batch search, or the acceleration guide's table.

The table: the config as it is, then each step added. A step stays if it is faster by more than both
ranges that are printed; the last row measures all that stayed together, beside a second run of the
first one. What was measured before a Ctrl-C is kept and answered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from gpusetup.configs.settings import name_of, truth, whole
from gpusetup.model.frozen import Frozen, replace
from gpusetup.tune.answer import Row, Setup, TuneAnswer
from gpusetup.tune.bench import Bench, Job, Say, check_code, refuse_errors
from gpusetup.tune.case import Option
from gpusetup.tune.comparison import compared, gains
from gpusetup.tune.search import FIRST, Goal, Trial, answer, fastest, stopped
from gpusetup.tune.trainers import meant

if TYPE_CHECKING:
    from gpusetup.configs.config import Config

Showing = Callable[[int], AbstractContextManager[Say]]
"""Given how many children are expected, a context that shows what is measured."""
EXPECTED = {"batch": 5, "benchmark": 20}
"""How many trials a measuring runs, roughly: for the time left."""
START = 8
"""The size that is benchmarked where no config names one."""
ENOUGH = 0.95
"""So near to the fastest loader, fewer workers are better."""


class Asked(Frozen):
    """What is to be measured."""

    benchmark: bool
    job: Job
    speed: bool = False
    """Whether the fastest size is looked for, in place of the largest."""
    most: int | None = None
    """No size above this one is tried."""


class Start(Frozen):
    """Where measuring starts, as the config has it."""

    setup: Setup = Setup(batch=START, workers=0)
    effective: int | None = None
    """The batch that a step of the optimizer sees; None if no config says."""
    wish: Mapping[str, int] = {}
    """The numbers of the config: the sizes of a reference model."""


UNTOLD = Start()


def start_of(config: Config) -> Start:
    """The sizes of the reference model and the base of the table, as the config has them."""
    numbers = {name_of(one.path): whole(one) or 0 for one in reversed(config.settings)}
    found: dict[str, Any] = {}
    steps = 1
    for setting, key in meant(config):
        number, switch = whole(setting), truth(setting)
        if number is not None and number >= (key.role != "workers"):
            if key.role in ("batch", "workers"):
                found[key.role] = number
            steps = number if key.role == "accumulation" else steps
        if key.role == "compile" and switch is not None:
            found["compile"] = switch
        elif switch and key.role in ("amp", "bf16", "fp16"):
            found["amp"] = "fp16" if key.role == "fp16" else "bf16"
    setup = replace(UNTOLD.setup, **found)
    wish = {name: number for name, number in numbers.items() if number > 0}
    return Start(setup=setup, effective=setup.batch * steps, wish=wish)


def reference_for(wish: Mapping[str, int]) -> str:
    """The built-in model whose sizes the config names.

    >>> reference_for({"base_channels": 64}), reference_for({"n_embd": 768}), reference_for({})
    ('conv', 'gpt2', 'conv')
    """
    rows = (("gpt2", ("n_embd", "n_layer", "block_size")), ("lstm", ("hidden_size", "num_layers")))
    return next((name for name, words in rows if set(words) & set(wish)), "conv")


def measure(asked: Asked, showing: Showing, start: Start = UNTOLD) -> tuple[TuneAnswer, Option]:
    """Everything that is asked to be measured, and what of it goes into the config."""
    check_code(asked.job.code)
    job = replace(asked.job, wish=dict(start.wish))
    if not job.code:
        job = replace(job, reference=job.reference or reference_for(start.wish))
    kind = "benchmark" if asked.benchmark else "batch"
    with Bench(job) as bench:
        session = Session(asked, bench, start)
        with showing(EXPECTED[kind]) as say:
            session.say = say
            try:
                session.benchmark() if asked.benchmark else session.batch_size()
            except KeyboardInterrupt:
                session.interrupted = True
    return session.answer(), session.option()


class Session:
    """One measuring: it keeps what it has, so that a Ctrl-C loses nothing."""

    def __init__(self, asked: Asked, bench: Bench, start: Start) -> None:
        self.asked, self.bench, self.start = asked, bench, start
        self.say: Say = lambda line: None
        self.device = bench.device()
        self.limit_bytes = self.device.room()
        self.effective = start.effective
        self.trials: list[Trial] = []
        self.rows: list[Row] = []
        self.workers: int | None = None
        self.interrupted = False

    def goal(self, start: int) -> Goal:
        sizes = [size for size in (self.asked.most, self.effective) if size]
        return Goal(limit_bytes=self.limit_bytes, start=start, largest=min(sizes, default=None))

    def batch_size(self) -> None:
        first = self.start.setup.batch if self.start.effective is not None else FIRST
        self.bench.find(self.goal(first), self.trials, self.say, speed=self.asked.speed)

    # --- the table ---

    def benchmark(self) -> None:
        first = self.start.setup
        first = replace(first, amp=self.bench.job.amp or first.amp)
        self.rows.append(self.measured("base", first))
        if self.rows[0].status != "ok":
            return
        for name in STEPS:
            setup = self.step(name, setup_of(self.best()))
            if isinstance(setup, str):
                row = replace(self.best(), name=name, status="skipped", detail=setup)
                self.rows.append(replace(row, **dict.fromkeys(FIGURES), kept=False))
            else:
                self.rows.append(self.added(name, setup))
        if self.best().name != "base":
            self.rows.append(self.together(self.measured("all", setup_of(self.best()))))

    def best(self) -> Row:
        """The last row that stayed: every step that did is in it."""
        return next(row for row in reversed(self.rows) if row.kept or row.name == "base")

    def measured(self, name: Any, setup: Setup) -> Row:
        self.say(in_words(setup))
        trial = self.bench.trial(**plain(setup))
        shown = {field: getattr(trial, field) for field in ("status", "detail", *FIGURES)}
        return Row(name=name, **plain(setup), **shown)

    def added(self, name: Any, setup: Setup) -> Row:
        """A step, kept if it gains; mixed precision only if its loss is a number."""
        row, before = self.measured(name, setup), self.best()
        row = replace(row, kept=gains(row, before))
        if name != "+AMP" or row.status != "ok" or before.loss is None:
            return row
        row = replace(row, loss_fp32=before.loss)
        if row.loss is not None:
            return row
        return replace(row, kept=False, detail=f"the loss is no number in {row.amp}")

    def together(self, row: Row) -> Row:
        """The last row; unless it is faster than the first one in both of its runs, nothing is
        kept."""
        first = self.rows[0]
        if gains(row, first) and gains(row, self.measured("base", setup_of(first))):
            return row
        self.rows[:] = [
            replace(one, kept=False, detail=TAKEN_BACK) if one.kept else one for one in self.rows
        ]
        return replace(row, detail=row.detail or UNSTEADY)

    def step(self, name: str, setup: Setup) -> Setup | str:
        """The setup with one step more, or why it has none."""
        if name == "+batch":
            return self.with_batch(setup)
        if name == "+workers":
            return self.with_workers(setup)
        if setup.amp if name == "+AMP" else setup.compile:
            return "it is on already"
        more = {"amp": self.device.half} if name == "+AMP" else {"compile": True}
        return replace(setup, **more)

    def with_batch(self, setup: Setup) -> Setup | str:
        """The fastest size that keeps the effective batch, without the loader: that comes next."""
        goal, how = self.goal(setup.batch), plain(setup)
        del how["batch"]
        self.bench.find(goal, self.trials, self.say, speed=True, **{**how, "workers": None})
        found = fastest(self.trials, goal)
        if found and self.effective:
            found = largest_divisor(self.effective, found)
        if found is None or found == setup.batch:
            return "no other size is better, with the effective batch kept"
        return replace(setup, batch=found)

    def with_workers(self, setup: Setup) -> Setup | str:
        """The loader alone, with more and more workers."""
        rates: dict[int, float] = {}
        for count in worker_counts(usable_cores()):
            self.say(f"the loader with {count} workers")
            seconds = min(self.bench.job.seconds, 3.0)
            said = self.bench.ask("loader", setup.batch, workers=count, seconds=seconds)
            if said["status"] != "ok":
                return "the code returns no `dataset`"
            rates[count] = said["samples_per_second"]
        most = max(rates.values())
        self.workers = min(count for count, rate in rates.items() if rate >= ENOUGH * most)
        if self.workers == setup.workers:
            return f"{self.workers} is the best number already"
        return replace(setup, workers=self.workers)

    # --- what was found ---

    def chosen(self) -> int | None:
        if self.asked.benchmark:
            return self.best().batch if self.rows else None
        goal = self.goal(FIRST)
        return (fastest if self.asked.speed else answer)(self.trials, goal)

    def answer(self) -> TuneAnswer:
        tried = [] if self.asked.benchmark else self.trials
        base = [row for row in self.rows[:1] if row.status == "error"]
        failed = [Trial(batch=row.batch, status="error", detail=row.detail) for row in base]
        refuse_errors(self.bench.job, failed or tried)
        return TuneAnswer(
            trials=tuple(self.trials),
            batch_size=self.chosen(),
            limit_bytes=self.limit_bytes,
            stopped=None if self.asked.benchmark else stopped(self.trials, self.goal(FIRST)),
            benchmark=tuple(compared(self.rows)),
            cause=None if self.interrupted else self.cause(),
            workers=self.workers,
            device=self.device.name,
            interrupted=self.interrupted,
        )

    def cause(self) -> str | None:
        """What to look at if no step was kept."""
        if not self.rows or self.rows[0].status != "ok" or any(row.kept for row in self.rows):
            return None
        return "Nothing made it faster: `gpusetup monitor -- COMMAND` shows what it waits for"

    def option(self) -> Option:
        """What goes into the config: only what was measured on this code and gained."""
        gained = {row.name.strip("+").lower(): row.kept for row in self.rows}
        if self.workers is None:
            gained.pop("workers", None)
        return Option(
            measured=self.chosen(),
            gained=gained,
            workers=self.workers or 0,
            interrupted=self.interrupted,
        )


STEPS: tuple[Literal["+AMP", "+batch", "+workers", "+compile"], ...] = (
    "+AMP", "+batch", "+workers", "+compile",
)  # fmt: skip
FIGURES = (
    "peak_bytes", "samples_per_second", "spread_percent", "utilization_percent", "loss",
    "loss_steps",
)  # fmt: skip
TAKEN_BACK = "not faster when all was run again"
UNSTEADY = "slower than when it was added: other work disturbs this machine"


def plain(setup: Setup) -> dict[str, Any]:
    return {name: getattr(setup, name) for name in ("batch", "amp", "workers", "compile")}


def setup_of(row: Row) -> Setup:
    return Setup(**plain(row))


def in_words(setup: Setup) -> str:
    """
    >>> in_words(Setup(batch=8, amp="bf16", workers=4))
    'batch 8, bf16, 4 workers'
    """
    workers = "" if setup.workers is None else f"{setup.workers} workers"
    parts = (f"batch {setup.batch}", setup.amp, setup.compile and "compiled", workers)
    return ", ".join(part for part in parts if part)


def worker_counts(cores: int) -> Iterator[int]:
    """What is tried: none, then doubling up to the usable cores.

    >>> list(worker_counts(6))
    [0, 1, 2, 4, 6]
    """
    yield 0
    yield from (1 << power for power in range(cores.bit_length()) if 1 << power < cores)
    yield cores


def usable_cores() -> int:
    """The cores of this process: affinity and cgroup, as the probe reads them."""
    from gpusetup.probe.host import read_cpu
    from gpusetup.system.system import System

    return read_cpu(System()).usable_cores or os.cpu_count() or 1


def largest_divisor(number: int, most: int) -> int:
    """
    >>> largest_divisor(96, 40)
    32
    """
    return next(size for size in range(min(most, number), 0, -1) if number % size == 0)
