"""The numeric checks with other seeds: no failure, and how near each value comes to its limit.

The distance of the greatest value from its limit is what a limit can be set from.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from acceptance.conftest import Work
from gpusetup.verify.checks.rows import KNOWN

MANY_ANSWERS = tuple(check.name for check in KNOWN)
"""The checks whose answers are known: each makes dozens of comparisons."""
NUMERIC: tuple[str, ...] = (
    *("matmul", "float64", "float32", "float16", "bfloat16", "chance"),
    *MANY_ANSWERS,
    *("language-model", "repeats"),
)
LEAST = 2
"""Fewer runs say nothing of other seeds."""
KNOWN_ANSWERS = 0.5
"""How much of its limit a check with one known answer may use on a sound device."""
MANY_QUESTIONS = dict.fromkeys(("chance", *MANY_ANSWERS), 1.0)
"""These report the worst of many figures, so half of their limit would be the wrong claim:
`chance` and `dropout` have hundreds of figures that vary by chance, and their limit is 6.5 standard
deviations."""
STARTING_SECONDS = 15.0
"""What one run takes before its numbers: torch and the context."""


def nearest_to_their_limits(rows: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Each check with the greatest part of its limit that a value reached, the greatest first.

    A failed check may have a limit and no value, as a wrong shape has: other claims are about that.

    >>> nearest_to_their_limits([
    ...     {"name": "chance", "value": 1.0, "limit": 2.0},
    ...     {"name": "norms", "value": None, "limit": 1.0},
    ... ])
    [('chance', 0.5)]
    """
    worst: dict[str, float] = {}
    for row in rows:
        if row["limit"] and row["value"] is not None:
            name, share = row["name"], row["value"] / row["limit"]
            worst[name] = max(share, worst.get(name, 0.0))
    return sorted(worst.items(), key=lambda item: -item[1])


@pytest.fixture(scope="module")
def rows(work: Work) -> list[dict[str, Any]]:
    """What each check said with each seed, for as long as there is time for one more run.

    The first runs share the time, so that there are LEAST of them.
    """
    names = NUMERIC if work.on_card else NUMERIC[:4]
    found: list[dict[str, Any]] = []
    for count in range(1000 if work.on_card else LEAST):
        began, seed = time.monotonic(), random.randrange(1 << 31)
        share = max(STARTING_SECONDS, (work.left() - STARTING_SECONDS) / max(1, LEAST - count))
        question = ("verify", "--level", "standard", "--device", work.device, "--seed", str(seed))
        words = (*question, "--json", "--timeout", f"{share:.0f}", "--only", *names)
        said = work.gpusetup(*words, limit=share + STARTING_SECONDS)
        for row in (row for row in said.document["checks"] if row["name"] in names):
            kept = {name: row[name] for name in ("name", "status", "detail", "value", "limit")}
            found.append({"seed": seed, **kept})
        if work.left() < 1.5 * (time.monotonic() - began) + 3 and count + 1 >= LEAST:
            break
    return found


def test_other_random_numbers_raise_no_alarm(work: Work, rows: list[dict[str, Any]]) -> None:
    failed = [row for row in rows if row["status"] in ("failed", "crashed")]
    bad = ", ".join(f"{row['name']} with seed {row['seed']}" for row in failed)
    work.found(f"{len({row['seed'] for row in rows})} runs, failures: {bad or 'none'}")
    assert not bad


def test_each_value_stays_well_below_its_limit(work: Work, rows: list[dict[str, Any]]) -> None:
    nearest = nearest_to_their_limits(rows)
    work.found(", ".join(f"{name} at {share:.3f}" for name, share in nearest) + " of its limit")
    for name, share in nearest:
        assert share <= MANY_QUESTIONS.get(name, KNOWN_ANSWERS), name
