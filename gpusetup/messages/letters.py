"""Which of thousands of needles a text holds, without a search for each of them.

The needles of all readers are sought together, once a text: its runs of four bytes are gathered,
and a needle is sought only where its rarest run is among them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

from gpusetup.model.frozen import Frozen

RUN = 4
LONG = 200_000
"""From this length on a text has most runs: its needles are sought one by one."""


class Letters(Frozen):
    """Needles in lower case."""

    every: frozenset[str]

    @classmethod
    def of(cls, needles: Iterable[str]) -> Letters:
        every = frozenset(needles)
        ALL.add(every)
        return cls(every=every)

    def found_in(self, low: str) -> frozenset[str]:
        """
        >>> sorted(Letters.of(["xid", "nvrm: xid", "nouveau"]).found_in("nvrm: xid (pci): 79"))
        ['nvrm: xid', 'xid']
        """
        if len(low) > LONG:
            return frozenset([needle for needle in self.every if needle in low])
        return self.every & ALL.found_in(low)


class All:
    """The needles of everybody, and those that the last text holds."""

    def __init__(self) -> None:
        self.needles: set[str] = set()
        self.runs: Runs | None = None
        self.last: tuple[str, frozenset[str]] | None = None
        self.before = False

    def add(self, needles: frozenset[str]) -> None:
        self.needles |= needles
        self.runs = self.last = None

    def found_in(self, low: str) -> frozenset[str]:
        last = self.last
        if last is None or last[0] is not low:
            last = self.last = (low, self._sought(low))
        return last[1]

    def _sought(self, low: str) -> frozenset[str]:
        """For one text alone its runs do not pay."""
        alone, self.before = not self.before, True
        if alone:
            return frozenset([needle for needle in self.needles if needle in low])
        if self.runs is None:
            self.runs = Runs.of(self.needles)
        return self.runs.found_in(low)


ALL = All()


class Runs(Frozen):
    """Needles by one run of theirs each."""

    short: tuple[str, ...]
    """Those that are shorter than a run."""
    by_run: dict[int, tuple[str, ...]]
    runs: frozenset[int]
    """The keys of `by_run`: of two sets the smaller one is gone through."""

    @classmethod
    def of(cls, needles: Iterable[str]) -> Runs:
        """Of each needle the run that the fewest others have."""
        known = {needle: _runs_in(needle) for needle in sorted(needles)}
        often = Counter(run for runs in known.values() for run in set(runs))
        by_run: dict[int, list[str]] = {}
        for needle, runs in known.items():
            if runs:
                by_run.setdefault(min(runs, key=often.__getitem__), []).append(needle)
        return cls(
            short=tuple(needle for needle, runs in known.items() if not runs),
            by_run={run: tuple(each) for run, each in by_run.items()},
            runs=frozenset(by_run),
        )

    def found_in(self, low: str) -> frozenset[str]:
        likely = set(self.short)
        for run in self.runs & runs_of(low):
            likely.update(self.by_run[run])
        return frozenset(filter(low.__contains__, likely))


def _runs_in(needle: str) -> list[int]:
    raw = needle.encode("utf-8", "replace")
    return [int.from_bytes(raw[at : at + RUN], sys.byteorder) for at in range(len(raw) - RUN + 1)]


def runs_of(text: str) -> set[int]:
    """Every run of four bytes, each as the number that this machine reads in it.

    >>> len(runs_of("abcabcab")), len(runs_of("abc")), runs_of("cuda") <= runs_of("the cuda")
    (3, 0, True)
    """
    raw = memoryview(text.encode("utf-8", "replace"))
    found: set[int] = set()
    for first in range(RUN):
        last = first + (len(raw) - first) // RUN * RUN
        found.update(raw[first:last].cast("I"))
    return found
