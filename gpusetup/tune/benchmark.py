"""The acceleration guide's table, measured: base, then each step added. Pure, over a runner.

A step stays when it is faster by more than both ranges that are printed, also once what it is
compared with ran again; the last row measures all that stayed together. What runs a setting, finds
its batch and tries its workers is handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from gpusetup.model.frozen import Frozen, replace
from gpusetup.tune.trial import Trial

GAIN = 1.03
"""A step that gains less than 3 % is not worth its trouble."""
ENOUGH = 0.95
"""So near to the fastest loader, fewer workers are better."""

Name = Literal["base", "+AMP", "+batch", "+workers", "+compile", "all"]


class Setup(Frozen):
    """One way to train."""

    batch: int
    amp: Literal["bf16", "fp16"] | None = None
    workers: int | None = None
    """None: the same batch over and over, no loader."""
    compile: bool = False


class Row(Frozen):
    """One line of the table."""

    name: Name
    setup: Setup
    status: Literal["ok", "oom", "error", "skipped"]
    peak_bytes: int | None = None
    samples_per_second: float | None = None
    spread_percent: float | None = None
    kept: bool = False
    loss: float | None = None
    loss_fp32: float | None = None
    """Of +AMP: the loss after `loss_steps`, and that of as many steps in float32."""
    loss_steps: int = 0
    samples: int | None = None
    """In an epoch, where the code returns a data set that has a length."""
    utilization_percent: float | None = None
    detail: str | None = None


class Runner(Frozen):
    """What the table needs of the machine."""

    run: Callable[[Setup], Trial]
    batch: Callable[[Setup], int | None]
    """The best batch for a setup, or None where none was found."""
    workers: Callable[[Setup], int | None]
    """The best number of workers, or None where there is no data set."""
    amp: Literal["bf16", "fp16"] | None = "bf16"
    """The kind of mixed precision that this device gains by; None: none."""
    losses: Callable[[Setup], tuple[float, ...] | None] = lambda _: None
    """The loss at each of the first steps, the same ones for every setup."""


def table(base: Setup, runner: Runner, keep: list[Row] | None = None) -> tuple[Row, ...]:
    """Every row; each is put into `keep` as soon as it is measured, so that a Ctrl-C loses none."""
    rows: list[Row] = [] if keep is None else keep
    rows.append(_row("base", base, runner.run(base)))
    if rows[0].status != "ok":
        return tuple(rows)
    for name, step in STEPS:
        rows.append(_measured(name, step(best_setup(rows), runner), rows, runner))
    last = best_setup(rows)
    trial = runner.run(last) if last != base else None
    if trial is not None:
        row = _row("all", last, trial)
        if not gains(row, rows[0]):  # a second run does not bear out what was kept
            rows[:] = [
                replace(one, kept=False, detail=TAKEN_BACK) if one.kept else one for one in rows
            ]
            row = replace(row, detail=row.detail or UNSTEADY)
        rows.append(row)
    return tuple(rows)


TAKEN_BACK = "not faster when all was run again"
UNSTEADY = "slower than when it was added: other work disturbs this machine"


def best_setup(rows: Sequence[Row]) -> Setup:
    """The setup with every step that stayed."""
    return next(row.setup for row in reversed(rows) if row.kept or row.name == "base")


def _measured(name: Name, setup: Setup | str, rows: list[Row], runner: Runner) -> Row:
    before = next(row for row in reversed(rows) if row.kept or row.name == "base")
    if isinstance(setup, str):
        return Row(name=name, setup=before.setup, status="skipped", detail=setup)
    row = _row(name, setup, runner.run(setup))
    if gains(row, before):
        before = _again(before, rows, runner)
        row = replace(row, kept=gains(row, before))
    return _with_losses(row, before, runner) if name == "+AMP" and row.status == "ok" else row


def _again(row: Row, rows: list[Row], runner: Runner) -> Row:
    """A row once its setup ran a second time: its range holds both."""
    trial = runner.run(row.setup)
    if not trial.samples_per_second or trial.spread_percent is None:
        return row
    ends = sorted((*reach(row), *reach(_row(row.name, row.setup, trial))))
    speed = (ends[0] + ends[-1]) / 2
    spread = 100 * (ends[-1] - ends[0]) / speed
    wide = replace(row, samples_per_second=speed, spread_percent=spread)
    rows[:] = [wide if one == row else one for one in rows]
    return wide


def _with_losses(row: Row, before: Row, runner: Runner) -> Row:
    """What mixed precision does to the loss; where it breaks it, the step is left out."""
    plain, mixed = runner.losses(before.setup), runner.losses(row.setup)
    if not plain or not mixed:
        return row
    broken = math.isfinite(plain[-1]) and not math.isfinite(mixed[-1])
    return replace(
        row,
        loss=mixed[-1] if math.isfinite(mixed[-1]) else None,
        loss_fp32=plain[-1] if math.isfinite(plain[-1]) else None,
        loss_steps=min(len(plain), len(mixed)),
        kept=row.kept and not broken,
        detail=f"the loss is {mixed[-1]} in {row.setup.amp}" if broken else row.detail,
    )


def gains(row: Row, before: Row) -> bool:
    """Whether a step is faster than the other's range, by the mark and by its own range.

    >>> quiet = Row(name="base", setup=Setup(batch=8), status="ok", samples_per_second=100.0,
    ...     spread_percent=0.0)
    >>> gains(replace(quiet, samples_per_second=104.0), quiet)
    True
    >>> gains(replace(quiet, samples_per_second=104.0, spread_percent=10.0), quiet)
    False
    """
    if row.spread_percent is None or before.spread_percent is None:
        return False
    most = reach(before)[1]
    return reach(row)[0] > most and (row.samples_per_second or 0.0) >= GAIN * most


def reach(row: Row) -> tuple[float, float]:
    """The slowest and the fastest of the range that is printed."""
    speed, part = row.samples_per_second or 0.0, (row.spread_percent or 0.0) / 200
    return speed * (1 - part), speed * (1 + part)


def _row(name: Name, setup: Setup, trial: Trial) -> Row:
    return Row(
        name=name,
        setup=setup,
        status=trial.status,
        peak_bytes=trial.peak_bytes,
        samples_per_second=trial.samples_per_second,
        spread_percent=trial.spread_percent,
        samples=trial.samples,
        utilization_percent=trial.utilization_percent,
        detail=trial.detail,
    )


# --- the steps ----------------------------------------------------------------------------------


def _with_amp(setup: Setup, runner: Runner) -> Setup | str:
    if setup.amp:
        return "it is on already"
    if runner.amp is None:
        return "this device gains nothing by it"
    return replace(setup, amp=runner.amp)


def _with_batch(setup: Setup, runner: Runner) -> Setup | str:
    batch = runner.batch(setup)
    if batch is None or batch == setup.batch:
        return "no other size is better, with the effective batch kept"
    return replace(setup, batch=batch)


def _with_workers(setup: Setup, runner: Runner) -> Setup | str:
    workers = runner.workers(setup)
    if workers is None:
        return "the code returns no `dataset`"
    if workers == setup.workers:
        return f"{workers} is the best number already"
    return replace(setup, workers=workers)


def _with_compile(setup: Setup, _: Runner) -> Setup | str:
    return "it is on already" if setup.compile else replace(setup, compile=True)


STEPS: tuple[tuple[Name, Callable[[Setup, Runner], Setup | str]], ...] = (
    ("+AMP", _with_amp),
    ("+batch", _with_batch),
    ("+workers", _with_workers),
    ("+compile", _with_compile),
)


def worker_counts(cores: int) -> Iterator[int]:
    """What is tried: none, then doubling up to the usable cores.

    >>> list(worker_counts(6))
    [0, 1, 2, 4, 6]
    """
    yield 0
    count = 1
    while count < cores:
        yield count
        count *= 2
    yield cores


def best_workers(rates: Sequence[tuple[int, float]]) -> int | None:
    """The fewest workers that are nearly as fast as the fastest.

    >>> best_workers([(0, 90.0), (1, 80.0), (2, 160.0), (4, 165.0)])
    2
    """
    fastest = max((rate for _, rate in rates), default=0.0)
    return min((count for count, rate in rates if rate >= ENOUGH * fastest > 0), default=None)
