"""Figures of many samples in little memory: a mean, and a histogram of rounded values."""

from __future__ import annotations

from collections import Counter

from gpusetup.monitor.values import Spread


class Mean:
    """A sum and a count, of what is told."""

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.count += 1
            self.total += value

    def merge(self, other: Mean) -> None:
        self.count += other.count
        self.total += other.total

    def value(self) -> float | None:
        return self.total / self.count if self.count else None


class Histogram(Mean):
    """Counts of rounded values.

    >>> some = Histogram()
    >>> for value in (1, 2, 3, 10):
    ...     some.add(value)
    >>> some.value(), some.percentile(5), some.p95, some.peak
    (4.0, 1.0, 10.0, 10.0)
    """

    def __init__(self, quantum: float = 1.0) -> None:
        super().__init__()
        self.quantum, self.peak = quantum, 0.0
        self.counts: Counter[int] = Counter()

    def add(self, value: float | None) -> None:
        if value is not None:
            self.peak = max(self.peak, float(value)) if self.count else float(value)
            self.counts[round(value / self.quantum)] += 1
            super().add(value)

    def merge(self, other: Mean) -> None:
        if other.count and isinstance(other, Histogram):
            self.peak = max(self.peak, other.peak) if self.count else other.peak
            self.counts.update(other.counts)
            super().merge(other)

    def percentile(self, percent: float) -> float:
        """The smallest value with at least so many percent of all at or below it."""
        wanted, seen = percent / 100 * self.count, 0
        for step in sorted(self.counts):
            seen += self.counts[step]
            if seen >= wanted:
                return float(step * self.quantum)
        return self.peak

    @property
    def p95(self) -> float | None:
        return self.percentile(95) if self.count else None

    def spread(self) -> Spread | None:
        if not self.count:
            return None
        p5, p95 = (min(self.percentile(p), self.peak) for p in (5, 95))
        return Spread(mean=round(self.total / self.count, 2), p5=p5, p95=p95, peak=self.peak)
