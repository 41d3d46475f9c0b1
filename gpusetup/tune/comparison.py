"""The rows of the acceleration guide's table, compared. Pure."""

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
