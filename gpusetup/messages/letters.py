"""Which of a thousand needles a text holds, without a search for each of them.

All runs of four bytes of the text are gathered once. A needle is sought only where the run in its
middle is among them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache

from gpusetup.model.frozen import Frozen

RUN = 4
LONG = 200_000
"""From this length on a text has most runs: its needles are sought one by one."""


class Letters(Frozen):
    """Needles in lower case, by the run in their middle."""

    every: tuple[str, ...]
    short: tuple[str, ...]
    """Those without a run."""
    by_run: dict[int, tuple[str, ...]]
    runs: frozenset[int]
    """The keys of `by_run`: of two sets the smaller one is gone through."""

    @classmethod
    def of(cls, needles: Iterable[str]) -> Letters:
        every = tuple(dict.fromkeys(needles))
        by_run: dict[int | None, list[str]] = {}
        for needle in every:
            by_run.setdefault(_middle(needle), []).append(needle)
        return cls(
            every=every,
            short=tuple(by_run.pop(None, ())),
            by_run={run: tuple(each) for run, each in by_run.items() if run is not None},
            runs=frozenset(run for run in by_run if run is not None),
        )

    def found_in(self, low: str) -> frozenset[str]:
        """
        >>> sorted(Letters.of(["xid", "nvrm: xid", "nouveau"]).found_in("nvrm: xid (pci): 79"))
        ['nvrm: xid', 'xid']
        """
        if len(low) > LONG:
            return frozenset([needle for needle in self.every if needle in low])
        there = self.runs & runs_of(low)
        likely = [needle for run in there for needle in self.by_run[run]]
        return frozenset([needle for needle in (*self.short, *likely) if needle in low])


def _middle(needle: str) -> int | None:
    raw = needle.encode()
    at = (len(raw) - RUN) // 2
    return int.from_bytes(raw[at : at + RUN], sys.byteorder) if at >= 0 else None


@lru_cache(maxsize=1)
def runs_of(text: str) -> frozenset[int]:
    """All runs of four bytes, each as the number that this machine reads in them; kept for the one
    text that all readers look at.

    >>> len(runs_of("abcab")), len(runs_of("abc")), runs_of("cuda") <= runs_of("no cuda here")
    (2, 0, True)
    """
    raw = memoryview(text.encode("utf-8", "replace"))
    shifted = (raw[at : at + max(len(raw) - at, 0) // RUN * RUN] for at in range(RUN))
    return frozenset().union(*(piece.cast("I") for piece in shifted))
