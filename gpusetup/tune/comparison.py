"""The rows of the acceleration guide's table, compared, and why none was faster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.model.frozen import replace
from gpusetup.tune.answer import Row

GAIN = 1.03
"""A step that gains less than 3 % is not worth its trouble."""


def gains(row: Row, before: Row) -> bool:
    """Whether all of a step's range is above the other's, and its speed by the mark.

    >>> quiet = Row(name="base", batch=8, status="ok", samples_per_second=100.0, spread_percent=0.0)
    >>> gains(replace(quiet, samples_per_second=104.0), quiet)
    True
    >>> gains(replace(quiet, samples_per_second=104.0, spread_percent=10.0), quiet)
    False
    """
    if row.spread_percent is None or before.spread_percent is None:
        return False
    speed = row.samples_per_second or 0.0
    most = (before.samples_per_second or 0.0) * (1 + before.spread_percent / 200)
    return speed * (1 - row.spread_percent / 200) > most and speed >= GAIN * most


def compared(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows, each beside the first."""
    base = rows[0].samples_per_second if rows else None
    for row in rows:
        speed = row.samples_per_second
        yield (
            row
            if not speed
            else replace(
                row,
                seconds_per_1000=1000 / speed,
                speed_up=speed / base if base else None,
            )
        )


BUSY, IDLE = 90, 50
"""Percent of the time from which on a GPU has no time to spare, or below which it waits."""
KEEPS_UP = 0.9
UNSTEADY_PERCENT = 30
"""Between the slowest and the fastest step, from which on 3 % more cannot be seen."""


def cause(rows: Sequence[Row], rates: Sequence[tuple[int, float]], *, gpu: bool) -> str | None:
    """Where no step was kept: the likeliest reason, from what was measured.

    `rates`: (workers, samples a second) of the loader alone.
    """
    if not rows or rows[0].status != "ok" or any(row.kept for row in rows):
        return None
    base = rows[0]
    busy, spread = base.utilization_percent, base.spread_percent or 0
    most = max((rate for _, rate in rates), default=0.0)
    reasons = (
        (
            base.workers is not None and 0 < KEEPS_UP * most <= (base.samples_per_second or 0.0),
            f"the loader gives {most:.4g} samples a second at most, and the steps keep up with it:"
            " cache the data, or prepare it once and keep the result",
        ),
        (
            spread > UNSTEADY_PERCENT,
            f"the steps differ by {spread:.0f} %, more than a gain of 3 % could show: something"
            " else works on this machine, measure again",
        ),
        (
            busy is not None and busy >= BUSY,
            f"the GPU is busy {busy} % of the time already: what is left is a smaller model, or a"
            " faster card",
        ),
        (
            busy is not None and busy < IDLE,
            f"the GPU is busy {busy} % of the time, and neither the loader nor the batch is the"
            " reason: `gpusetup monitor -- COMMAND` shows what it waits for",
        ),
        (not gpu, "this is a CPU, which these steps help little; a GPU is what would"),
        (True, "the steps are limited by computing, which none of these shortens here"),
    )
    return f"Nothing made it faster: {next(said for holds, said in reasons if holds)}"
