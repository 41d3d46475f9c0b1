"""Clean runs: standard's numeric checks with other seeds, and how near each value comes.

The distance of the greatest value from its limit is what a limit can be set from. Runs of earlier
calls with the same folder, card, driver, torch and commit count: a later call takes other seeds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from acceptance.checks import numeric, runs
from acceptance.work import Work

LEAST = 3
"""Fewer runs say nothing."""
HALF = 0.5


class Record:
    """What all runs found, those of earlier calls too; `rows` has one row a run."""

    def __init__(self, earlier: dict[str, list[dict[str, Any]]]) -> None:
        self.rows = list(earlier.get("runs", ()))
        self.failures = list(earlier.get("failures", ()))
        self.nearest = {row["check"]: row for row in earlier.get("distances", ())}

    def add(self, name: str, seed: int, outcome: Any) -> None:
        if outcome.status in ("failed", "crashed"):
            row = {"check": name, "seed": seed, "detail": outcome.detail}
            self.failures.append(row)
        if outcome.value is None or not outcome.limit:
            return
        part = outcome.value / outcome.limit
        if name not in self.nearest or part > self.nearest[name]["part"]:
            self.nearest[name] = {
                "check": name, "part": part, "value": outcome.value, "limit": outcome.limit,
                "unit": outcome.unit, "seed": seed,
            }  # fmt: skip

    def say(self, work: Work) -> None:
        """After each run, so that a killed part has said what it knew."""
        work.table("runs", self.rows)
        work.table("failures", self.failures)
        work.table("distances", [{**row, "runs": len(self.rows)} for row in self.nearest.values()])
        bad = ", ".join(f"{row['check']} with seed {row['seed']}" for row in self.failures)
        seeds = spans(row["seed"] for row in self.rows)
        told = f"{len(self.rows)} runs with seeds {seeds}, failures: {bad or 'none'}"
        few = len(self.rows) < LEAST and not bad
        work.claim("clean-runs", "open" if few else not bad, told)
        if self.nearest:
            row = max(self.nearest.values(), key=lambda each: each["part"])
            told = f"nearest: {row['check']} at {row['part']:.3f} of its limit, seed {row['seed']}"
            work.claim("clean-distance", row["part"] <= HALF, told)


def spans(numbers: Any) -> str:
    """
    >>> spans([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    """
    found = sorted(set(numbers))
    groups = itertools.groupby(enumerate(found), lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in group] for _, group in groups]
    return ", ".join(str(a[0]) if len(a) == 1 else f"{a[0]}-{a[-1]}" for a in ends)


def seeds(first: int, used: set[int]) -> Iterator[int]:
    """
    >>> list(itertools.islice(seeds(1, {1, 2, 4}), 3))
    [3, 5, 6]
    """
    return (number for number in itertools.count(first) if number not in used)


def run(work: Work) -> None:
    record = Record(work.earlier())
    if record.rows:
        record.say(work)
    names = numeric(work.device)[: 4 if work.short else None]
    longest = 0.0
    for seed in seeds(int(work.options["seed"]), {row["seed"] for row in record.rows}):
        began = time.monotonic()
        spoilt = _once(record, names, work.device, seed)
        longest = max(longest, time.monotonic() - began)
        row = {"seed": seed, "checks": len(names), "seconds": round(time.monotonic() - began, 2)}
        record.rows.append(row)
        record.say(work)
        enough = len(record.rows) >= LEAST
        if spoilt or (enough and (work.short or work.left(1.2 * longest + 3) <= 0)):
            return


def _once(record: Record, names: tuple[str, ...], device: str, seed: int) -> bool:
    """One run; whether an error of CUDA spoilt this process, after which all would fail."""
    for name, outcome in runs(names, device, seed):
        record.add(name, seed, outcome)
        if outcome.spent:
            return True
    return False
