"""Clean runs: standard's numeric checks with other seeds, and how near each value comes.

The distance of the greatest value from its limit is what a limit can be set from.
"""

from __future__ import annotations

import time
from typing import Any

from acceptance.checks import numeric, runs
from acceptance.work import Work

LEAST = 3
"""Fewer runs say nothing."""
HALF = 0.5


def run(work: Work) -> None:
    names = numeric(work.device)[: 4 if work.short else None]
    most: dict[str, dict[str, Any]] = {}
    bad: list[str] = []
    count, longest, seed = 0, 0.0, int(work.options["seed"])
    while count < LEAST or work.left(longest + 5) > 0:
        began = time.monotonic()
        for name, outcome in runs(names, work.device, seed + count):
            if outcome.status in ("failed", "crashed"):
                bad.append(f"{name} with seed {seed + count}")
                work.row("failures", check=name, seed=seed + count, detail=outcome.detail)
            _nearest(most, name, outcome, seed + count)
        count, longest = count + 1, max(longest, time.monotonic() - began)
        _said(work, names, count, bad, most)
        if work.short and count >= LEAST:
            break
    for row in most.values():
        work.row("distances", **row, runs=count)


def _nearest(most: dict[str, dict[str, Any]], name: str, outcome: Any, seed: int) -> None:
    if outcome.value is None or not outcome.limit:
        return
    part = outcome.value / outcome.limit
    if name not in most or part > most[name]["part"]:
        most[name] = {"check": name, "part": part, "value": outcome.value, "limit": outcome.limit,
                      "unit": outcome.unit, "seed": seed}  # fmt: skip


def _said(work: Work, names: Any, count: int, bad: list[str], most: dict[str, Any]) -> None:
    """After each run, so that a killed part has said what it knew."""
    told = f"{count} runs of {len(names)} checks, failures: {', '.join(bad) or 'none'}"
    work.claim("clean-runs", "open" if count < LEAST and not bad else not bad, told)
    if most:
        row = max(most.values(), key=lambda each: each["part"])
        told = f"nearest: {row['check']} at {row['part']:.3f} of its limit, seed {row['seed']}"
        work.claim("clean-distance", row["part"] <= HALF, told)
