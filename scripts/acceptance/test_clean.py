"""The numeric checks with other seeds: no failure, and how near each value comes to its limit.

The distance of the greatest value from its limit is what a limit can be set from. Runs of earlier
calls with the same folder count: a later call takes other seeds.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest

from acceptance.conftest import Work, unknown

NUMERIC = (
    *("matmul", "float64", "float32", "float16", "bfloat16", "chance"),
    *("language-model", "operators", "optimizers"),
)
LEAST = 3
"""Fewer runs say nothing."""
HALF = 0.5
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def record(work: Work) -> Rows:
    """All runs, those of earlier calls too; written after each, so that a killed part keeps it."""
    found: Rows = earlier(work)
    used, longest = {row["seed"] for row in found["runs"]}, 0.0
    for seed in (seed for seed in itertools.count(1) if seed not in used):
        began = time.monotonic()
        add(found, seed, checks(work, seed))
        longest = max(longest, time.monotonic() - began)
        found["runs"].append({"seed": seed, "seconds": round(time.monotonic() - began, 2)})
        for name, rows in found.items():
            work.write({"table": name, "rows": rows})
        is_enough = len(found["runs"]) >= LEAST and (work.short or work.left() < 1.2 * longest + 3)
        if is_enough or work.left() < longest:
            break
    return found


def earlier(work: Work) -> Rows:
    tables: Rows = {}
    if work.folder and (work.folder / "earlier.json").exists():
        tables = json.loads((work.folder / "earlier.json").read_text(encoding="utf-8"))
    return {name: tables.get(name, []) for name in ("runs", "failures", "distances")}


def checks(work: Work, seed: int) -> list[dict[str, Any]]:
    names = NUMERIC[:4] if work.short else NUMERIC
    words = ("verify", "--level", "standard", "--device", work.device, "--seed", str(seed))
    said = work.gpusetup(*words, "--json", "--only", *names, limit=work.left())
    return [row for row in said.document["checks"] if row["name"] in names]


def add(found: Rows, seed: int, rows: list[dict[str, Any]]) -> None:
    nearest = {row["check"]: row for row in found["distances"]}
    for row in rows:
        if row["status"] in ("failed", "crashed"):
            found["failures"].append({"check": row["name"], "seed": seed, "detail": row["detail"]})
        if row["value"] is not None and row["limit"]:
            kept = {name: row[name] for name in ("value", "limit", "unit")}
            new = {"check": row["name"], "part": row["value"] / row["limit"], "seed": seed, **kept}
            old = nearest.get(row["name"], new)
            nearest[row["name"]] = max(old, new, key=lambda each: each["part"])
    found["distances"] = list(nearest.values())


@pytest.mark.claim("clean-runs")
def test_other_random_numbers_raise_no_alarm(work: Work, record: Rows) -> None:
    bad = ", ".join(f"{row['check']} with seed {row['seed']}" for row in record["failures"])
    seeds = " ".join(str(row["seed"]) for row in record["runs"])
    work.found(f"{len(record['runs'])} runs with seeds {seeds}, failures: {bad or 'none'}")
    if not bad and len(record["runs"]) < LEAST:
        unknown("too few runs")
    assert not bad


@pytest.mark.claim("clean-distance")
def test_each_value_stays_below_half_of_its_limit(work: Work, record: Rows) -> None:
    if not record["distances"]:
        unknown("no check has a limit")
    row = max(record["distances"], key=lambda each: each["part"])
    work.found(f"nearest: {row['check']} at {row['part']:.3f} of its limit, seed {row['seed']}")
    assert row["part"] <= HALF
