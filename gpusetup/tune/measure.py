"""Runs the measurements of `gpusetup tune`: the batch search, or the acceleration guide's table.

If the user presses Ctrl-C, the answer contains what was measured so far.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gpusetup.configs.settings import switch_value, whole_number
from gpusetup.tune.answer import TuneAnswer
from gpusetup.tune.bench import Bench, BenchJob, Say, raise_if_code_fails
from gpusetup.tune.case import known_settings
from gpusetup.tune.search import FIRST, Goal, Trial, largest_that_ran
from gpusetup.tune.table import NO_GAIN, Setup, TrialTable, gains_by_role

if TYPE_CHECKING:
    from gpusetup.configs.config import Config


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
    job: BenchJob,
    say: Say,
    config: Config | None,
    *,
    workers: int,
    largest: int | None,
) -> TuneAnswer:
    """Measure the table with batches up to `largest`; `workers` is the number of loader workers
    that the rules would write."""
    setup, effective = _setup_of(config) if config else (Setup(), None)
    is_interrupted = True
    with Bench(job) as bench:
        device = bench.device()
        # The table stays within the effective batch; the search also tries larger sizes.
        most = min((one for one in (largest, effective) if one), default=None)
        goal = Goal(limit_bytes=device.room(), start=setup.batch, largest=most)
        table = TrialTable(bench, device, goal, setup, effective, say)
        with suppress(KeyboardInterrupt):
            table.measure(workers)
            is_interrupted = False
    rows = [table.row(step) for step in table.steps]
    # The first row is the unchanged code; a later one may fail because of the change that it tries.
    raise_if_code_fails(job, rows[:1])
    ran = bool(rows) and rows[0].status == "ok"
    has_no_gain = ran and not is_interrupted and not any(gains_by_role(rows).values())
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
