"""Runs the measurements of `gpusetup tune`: the batch search, or the acceleration guide's table.

If the user presses Ctrl-C, the answer contains what was measured so far.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from gpusetup.tune.answer import TuneAnswer
from gpusetup.tune.baseline import DEFAULT_BASELINE, Baseline, MeasureRequest, search_goal
from gpusetup.tune.bench import Bench, Say, raise_if_code_fails
from gpusetup.tune.case import Measured
from gpusetup.tune.search import FIRST, Trial, fastest, largest_that_ran, stopped
from gpusetup.tune.table import TrialTable, cause_of, gains_by_role

ShowProgress = Callable[[int], AbstractContextManager[Say]]
"""A function from the expected number of trials to a context manager, whose value is called with a
line about each trial."""
SEARCH_TRIALS = 5
"""The approximate number of trials in a search, for the progress bar."""
TABLE_TRIALS = 25
"""The approximate number of trials for the table, for the progress bar."""


def measure(
    request: MeasureRequest, showing: ShowProgress, baseline: Baseline = DEFAULT_BASELINE
) -> tuple[TuneAnswer, Measured]:
    """Run the requested measurement; returns the answer, and the results that may be written into
    the config."""
    with Bench(request.job) as bench:
        if not request.benchmark:
            return search_batch(request, bench, showing, baseline)
        # The table includes a batch search as one of its rows, so no separate search is needed.
        table = TrialTable(request, bench, baseline)
        return fill_table(table, showing)


def fill_table(table: TrialTable, showing: ShowProgress) -> tuple[TuneAnswer, Measured]:
    """Measure the table; returns the answer, and which changes made this code faster."""
    is_interrupted = True
    with showing(TABLE_TRIALS) as table.say, suppress(KeyboardInterrupt):
        table.measure()
        is_interrupted = False
    rows = table.rows
    raise_if_code_fails(table.bench.job, rows[:1])
    batch_size = table.best().batch if rows else None
    answer = TuneAnswer(
        trials=tuple(table.trials),
        batch_size=batch_size,
        limit_bytes=table.device.room(),
        benchmark=tuple(rows),
        cause=None if is_interrupted else cause_of(rows),
        device=table.device.name,
        interrupted=is_interrupted,
    )
    return answer, Measured(
        batch_size=batch_size,
        is_faster=gains_by_role(rows),
        interrupted=is_interrupted,
    )


def search_batch(
    request: MeasureRequest, bench: Bench, showing: ShowProgress, baseline: Baseline
) -> tuple[TuneAnswer, Measured]:
    """Search for the largest batch that runs, or the fastest; sizes above the config's batch are
    tried too."""
    device = bench.device()
    has_config = baseline.effective is not None
    start = baseline.setup.batch if has_config else FIRST
    goal = search_goal(request, start, device.room())
    trials: list[Trial] = []
    is_interrupted = True
    with showing(SEARCH_TRIALS) as say, suppress(KeyboardInterrupt):
        bench.find(goal, trials, say, speed=request.finds_fastest)
        is_interrupted = False
    raise_if_code_fails(request.job, trials)
    # After Ctrl-C, this is the best size among those that have run.
    choose = fastest if request.finds_fastest else largest_that_ran
    batch_size = choose(trials, goal)
    answer = TuneAnswer(
        trials=tuple(trials),
        batch_size=batch_size,
        limit_bytes=goal.limit_bytes,
        stopped=stopped(trials, goal),
        device=device.name,
        interrupted=is_interrupted,
    )
    return answer, Measured(batch_size=batch_size, interrupted=is_interrupted)
