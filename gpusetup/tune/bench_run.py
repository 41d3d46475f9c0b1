"""The measuring of one `gpusetup tune`: the batch search, the comparison table, the workers.

What was measured before a Ctrl-C is kept and answered.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.configs import keys
from gpusetup.configs.settings import name_of, truth, whole
from gpusetup.model.frozen import Frozen, replace
from gpusetup.tune.bench_child import shared
from gpusetup.tune.benchmark import (
    Row,
    Runner,
    Setup,
    best_setup,
    best_workers,
    table,
    worker_counts,
)
from gpusetup.tune.causes import cause, marks
from gpusetup.tune.knee import fastest
from gpusetup.tune.measure import (
    Device,
    Job,
    Say,
    check_code,
    device_of,
    find_batch,
    limit_of,
    loader_rate,
    losses_of,
    refuse_errors,
    trial,
)
from gpusetup.tune.rules_batch import largest_divisor
from gpusetup.tune.search import answer, stopped
from gpusetup.tune.trainers import meant
from gpusetup.tune.trial import FIRST, Goal, Trial

if TYPE_CHECKING:
    from gpusetup.configs.config import Config

Showing = Callable[[int], AbstractContextManager[Say]]
"""Given how many children are expected, a context that shows what is measured."""
EXPECTED = {"batch": 5, "benchmark": 20}
"""How many children a measuring starts, roughly: for the time left."""
START = 8
"""The size that is benchmarked where no config names one."""


class Measured(Frozen):
    """What was found out, and what of it goes into the config."""

    device: str
    limit_bytes: int
    trials: tuple[Trial, ...] = ()
    batch: int | None = None
    stopped: str | None = None
    rows: tuple[Row, ...] = ()
    workers: int | None = None
    cause: str | None = None
    marks: str | None = None
    words: tuple[str, ...] = ()
    interrupted: bool = False
    option: Mapping[str, Any] = {}


class Start(Frozen):
    """Where measuring starts, as the config has it."""

    setup: Setup
    effective: int | None = None
    """The batch that a step of the optimizer sees; None where no config says."""
    wish: Mapping[str, int] = {}
    """The numbers of the config: the sizes of a reference model."""


ROWS: Mapping[str, Any] = {"amp": "+AMP", "workers": "+workers", "compile": "+compile"}
"""A part of the setup -> the row of the table that measured it."""
UNTOLD = Start(setup=Setup(batch=START, workers=0))


def start_of(config: Config) -> Start:
    """The sizes of the reference model and the base of the table, as the config has them."""
    wish: dict[str, int] = {}
    setup, steps = UNTOLD.setup, 1
    roles = {(one.document, one.path): key for one, key in meant(config)}
    for setting in config.settings:
        number, switch = whole(setting), truth(setting)
        name = name_of(setting.path)
        key = roles.get((setting.document, setting.path))
        if number is not None and number > 0:
            wish.setdefault(name, number)
        if key and key.role == keys.BATCH and number and number > 0:
            setup = replace(setup, batch=number)
        elif key and key.role == keys.ACCUMULATION and number and number > 0:
            steps = number
        elif key and key.role == keys.WORKERS and number is not None and number >= 0:
            setup = replace(setup, workers=number)
        elif key and key.role == keys.COMPILE and switch is not None:
            setup = replace(setup, compile=switch)
        elif key and switch and key.role in (keys.AMP, keys.BF16, keys.FP16):
            setup = replace(setup, amp="fp16" if key.role == keys.FP16 else "bf16")
    return Start(setup=setup, effective=setup.batch * steps, wish=wish)


def measure(options: argparse.Namespace, showing: Showing, start: Start = UNTOLD) -> Measured:
    """Everything that the options ask to be measured."""
    check_code(options.code)
    job = _job(options, start.wish)
    kind = "benchmark" if options.benchmark else "batch"
    with shared():
        device = device_of(job)
        with showing(EXPECTED[kind]) as say:
            session = Session(options, job, device, start, say)
            return session.benchmark() if options.benchmark else session.batch_size()


def _job(options: argparse.Namespace, wish: Mapping[str, int]) -> Job:
    return Job(
        code=options.code,
        reference=None if options.code else options.reference or reference_for(wish),
        wish=dict(wish),
        amp=options.amp,
        device=options.device,
        memory_limit_bytes=options.gpu_mem,
        steps=options.steps,
        seconds=options.seconds,
        python=_python(options.python),
        folder=str(Path.cwd()),
    )


def _python(named: str | None) -> str | None:
    """The target interpreter: `--python`, the active environment, else our own."""
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System

    return choose_target(System(), named).python


def reference_for(wish: Mapping[str, int]) -> str:
    """The built-in model whose sizes the config names.

    >>> reference_for({"base_channels": 64}), reference_for({"n_embd": 768}), reference_for({})
    ('conv', 'gpt2', 'conv')
    """
    rows = (("gpt2", ("n_embd", "n_layer", "block_size")), ("lstm", ("hidden_size", "num_layers")))
    return next((name for name, words in rows if set(words) & set(wish)), "conv")


class Session:
    """One measuring: it keeps what it has, so that a Ctrl-C loses nothing."""

    def __init__(
        self, options: argparse.Namespace, job: Job, device: Device, start: Start, say: Say
    ) -> None:
        self.options, self.job, self.device, self.say = options, job, device, say
        self.start = start
        self.cuda = device.device.startswith("cuda")
        self.limit_bytes = limit_of(device, options.margin / 100)
        self.most = None if options.grow_batch else start.effective
        self.trials: list[Trial] = []
        self.rows: list[Row] = []
        self.workers: int | None = None
        self.rates: list[tuple[int, float]] = []
        self.interrupted = False

    def goal(self, start: int) -> Goal:
        options = self.options
        largest = [size for size in (options.max, self.most) if size]
        return Goal(
            limit_bytes=self.limit_bytes,
            start=start,
            largest=min(largest, default=None),
            multiple=options.multiple_of,
            power_of_two=options.power_of_two,
        )

    def batch_size(self) -> Measured:
        told = self.start.effective is not None
        goal = self.goal(self.start.setup.batch if told else FIRST)
        try:
            find_batch(
                self.job, goal, objective=self.options.objective, keep=self.trials, say=self.say
            )
        except KeyboardInterrupt:
            self.interrupted = True
        refuse_errors(self.job, self.trials)
        return replace(self.result(self.best(goal)), stopped=stopped(self.trials, goal))

    def best(self, goal: Goal) -> int | None:
        choose = fastest if self.options.objective == "speed" else answer
        return choose(self.trials, goal)

    def benchmark(self) -> Measured:
        first = self.start.setup
        try:
            table(replace(first, amp=self.job.amp or first.amp), self.runner(), self.rows)
        except KeyboardInterrupt:
            self.interrupted = True
        if self.rows and self.rows[0].status == "error":
            failed = Trial(
                batch=self.rows[0].setup.batch, status="error", detail=self.rows[0].detail
            )
            refuse_errors(self.job, [failed])
        return self.result(best_setup(self.rows).batch if self.rows else None)

    def runner(self) -> Runner:
        cuda = self.cuda
        return Runner(
            run=self.run,
            batch=self.better_batch,
            workers=self.better_workers,
            amp=self.device.half if cuda or not self.options.device.startswith("cuda") else None,
            losses=self.losses,
        )

    def losses(self, setup: Setup) -> tuple[float, ...] | None:
        self.say(f"the loss, {setup.amp or 'float32'}")
        return losses_of(replace(self.job, amp=setup.amp, compile=setup.compile), setup.batch)

    def run(self, setup: Setup) -> Trial:
        self.say(in_words(setup))
        job = replace(self.job, amp=setup.amp, workers=setup.workers, compile=setup.compile)
        return trial(job, setup.batch)

    def better_batch(self, setup: Setup) -> int | None:
        """The fastest size that keeps the effective batch, without the loader: that comes next."""
        job = replace(self.job, amp=setup.amp, compile=setup.compile, workers=None)
        goal = self.goal(setup.batch)
        find_batch(job, goal, objective="speed", keep=self.trials, say=self.say)
        found = fastest(self.trials, goal)
        return found if found is None or self.most is None else largest_divisor(self.most, found)

    def better_workers(self, setup: Setup) -> int | None:
        """The loader alone, with more and more workers."""
        for count in worker_counts(usable_cores()):
            self.say(f"the loader with {count} workers")
            rate = loader_rate(self.job, setup.batch, count)
            if rate is None:
                return None
            self.rates.append((count, rate))
        self.workers = best_workers(self.rates)
        return self.workers

    def result(self, batch: int | None) -> Measured:
        return Measured(
            device=self.device.name,
            limit_bytes=self.limit_bytes,
            trials=tuple(self.trials),
            batch=batch,
            rows=tuple(self.rows),
            workers=self.workers,
            cause=None if self.interrupted else cause(self.rows, self.rates, gpu=self.cuda),
            marks=marks(self.rows, self.device.limit_bytes, gpu=self.cuda),
            words=tuple(tensor_cores(batch, self.options.multiple_of, gpu=self.cuda)),
            interrupted=self.interrupted,
            option=self.option(batch),
        )

    def option(self, batch: int | None) -> dict[str, Any]:
        """What goes into the config: only what was measured on this code and gained."""
        found: dict[str, Any] = {"measured": batch}
        kept = {row.name: row.status == "ok" and row.kept for row in self.rows}
        tried = [name for name in ROWS if name != "workers" or self.workers is not None]
        found["no_gain"] = frozenset(name for name in tried if kept.get(ROWS[name]) is False)
        found["interrupted"] = self.interrupted
        if "+workers" in kept and "workers" not in found["no_gain"]:  # more than the loader alone
            found["workers"] = self.workers
        found |= {name: True for name in ("amp", "compile") if kept.get(ROWS[name])}
        return found


def tensor_cores(batch: int | None, multiple: int, *, gpu: bool) -> Iterator[str]:
    """
    >>> list(tensor_cores(252, 1, gpu=True))[0][:40]
    'A multiple of 8 (`--multiple-of 8`: 248)'
    """
    if gpu and batch and batch > 8 and batch % 8 and multiple == 1:
        yield (
            f"A multiple of 8 (`--multiple-of 8`: {batch - batch % 8}) fills the tiles of tensor"
            " cores where the batch is a side of 16-bit products (linear layers on single vectors);"
            " with sequences or pictures the other sides count"
        )


def in_words(setup: Setup) -> str:
    """
    >>> in_words(Setup(batch=8, amp="bf16", workers=4))
    'batch 8, bf16, 4 workers'
    """
    parts = [f"batch {setup.batch}", setup.amp or "", "compiled" if setup.compile else ""]
    parts.append("" if setup.workers is None else f"{setup.workers} workers")
    return ", ".join(part for part in parts if part)


def usable_cores() -> int:
    """The cores of this process: affinity and cgroup, as the probe reads them."""
    from gpusetup.probe.host import read_cpu
    from gpusetup.system.system import System

    return read_cpu(System()).usable_cores or os.cpu_count() or 1
