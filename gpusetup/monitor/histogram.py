"""Figures of many samples in little memory: a histogram of rounded values, and a mean."""

from __future__ import annotations

from collections import Counter

from gpusetup.monitor.values import Spread


class Histogram:
    """Counts of rounded values.

    >>> some = Histogram()
    >>> for value in (1, 2, 3, 10):
    ...     some.add(value)
    >>> some.mean, some.percentile(5), some.percentile(95), some.peak
    (4.0, 1.0, 10.0, 10.0)
    """

    def __init__(self, quantum: float = 1.0) -> None:
        self.quantum = quantum
        self.counts: Counter[int] = Counter()
        self.count = 0
        self.total = 0.0
        self.peak = 0.0

    def add(self, value: float | None) -> None:
        if value is None:
            return
        self.peak = max(self.peak, float(value)) if self.count else float(value)
        self.counts[round(value / self.quantum)] += 1
        self.count += 1
        self.total += value

    def merge(self, other: Histogram) -> None:
        if not other.count:
            return
        self.peak = max(self.peak, other.peak) if self.count else other.peak
        self.counts.update(other.counts)
        self.count += other.count
        self.total += other.total

    @property
    def mean(self) -> float:
        return self.total / self.count

    def percentile(self, percent: float) -> float:
        """The smallest value with at least so many percent of all at or below it."""
        wanted, seen = percent / 100 * self.count, 0
        for step in sorted(self.counts):
            seen += self.counts[step]
            if seen >= wanted:
                return float(step * self.quantum)
        return self.peak

    def spread(self) -> Spread | None:
        if not self.count:
            return None
        p5, p95 = (min(self.percentile(p), self.peak) for p in (5, 95))
        return Spread(mean=round(self.mean, 2), p5=p5, p95=p95, peak=self.peak)

    def mean_or_none(self) -> float | None:
        return self.mean if self.count else None


class Mean:
    """A sum and a count, of what is told."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.count += 1
            self.total += value

    def merge(self, other: Mean) -> None:
        self.count += other.count
        self.total += other.total

    def value(self) -> float | None:
        return self.total / self.count if self.count else None
