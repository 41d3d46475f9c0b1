"""Rows of a run of any length, kept in bounded memory."""

from __future__ import annotations

from typing import Generic, TypeVar

MOST = 1000
"""Rows that are kept."""
Row = TypeVar("Row")


class Kept(Generic[Row]):
    """Every first, second, fourth … row of what comes, and the last one."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self.count, self._every = 0, 1

    def add(self, row: Row) -> None:
        if self.count % self._every == 0:
            self._rows.append(row)
        self.last = row
        self.count += 1
        if len(self._rows) >= MOST:
            self._rows, self._every = self._rows[::2], self._every * 2

    def all(self) -> list[Row]:
        there = not self.count or self._rows[-1] is self.last
        return self._rows if there else [*self._rows, self.last]
