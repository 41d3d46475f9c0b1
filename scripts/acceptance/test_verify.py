"""verify at its three levels; each check's value becomes a row, and decides what it can."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from acceptance.claims import of_part
from acceptance.conftest import Work, unknown
from acceptance.processes import Said

STRESS_SECONDS, LEAST_STRESS = 60, 20
NEAR = 0.15
"""By which part two measurements of one rate may differ."""
STANDARD_SECONDS = 120
KEPT = ("name", "device", "status", "detail", "value", "limit", "unit", "seconds")
BY_CHECKS = [
    pytest.param(known.checks, id=known.id, marks=pytest.mark.claim(known.id))
    for known in of_part("verify")
    if known.checks
]
LEVELS = [
    pytest.param(level, marks=[pytest.mark.claim(f"verify-{level}"), *marks])
    for level, marks in (
        ("quick", []),
        ("standard", [pytest.mark.whole]),
        ("stress", [pytest.mark.whole]),
    )
]


@cache
def at(work: Work, level: str) -> Said:
    """verify's answer; what the levels need beside their load is left free for stress."""
    seconds = max(1, int(work.left(5)))
    words = ["--timeout", str(seconds)]
    if level == "standard" and work.left(4 * LEAST_STRESS) > 0:
        words = ["--timeout", str(seconds - LEAST_STRESS)]
    if level == "stress":
        words += ["--seconds", str(max(5, min(STRESS_SECONDS, seconds - LEAST_STRESS)))]
    argv = ("verify", "--level", level, "--device", work.device, "--json", "-v", *words)
    said = work.gpusetup(*argv, limit=seconds + 5.0)
    for row in said.document.get("checks", ()):
        work.row("checks", level=level, **{key: row.get(key) for key in KEPT})
    return said


def checks(work: Work) -> dict[str, dict[str, Any]]:
    """What each check found at the highest level that ran."""
    levels = ("quick",) if work.short else ("quick", "standard", "stress")
    return {row["name"]: row for level in levels for row in at(work, level).document["checks"]}


def was_cut(row: dict[str, Any]) -> bool:
    """A check that was not begun, or ended, for lack of time."""
    return row["name"] == "timeout" or "no answer in" in str(row["detail"])


@pytest.mark.parametrize("level", LEVELS)
def test_a_sound_card_passes(work: Work, level: str) -> None:
    said = at(work, level)
    rows = said.document["checks"]
    bad = [row for row in rows if row["status"] in ("failed", "crashed")]
    names = ", ".join(row["name"] for row in bad) or "none"
    work.found(f"{len(rows)} checks in {said.seconds:.1f} s, bad: {names}")
    if bad and all(map(was_cut, bad)):
        unknown("the time was over")
    assert said.exit == 0


@pytest.mark.claim("doubt-44")
def test_quick_takes_about_as_long_as_importing_torch(work: Work) -> None:
    quick = at(work, "quick").seconds
    code = "import sys, torch; torch.ones(1, device=sys.argv[1]).sum().item()"
    alone = work.python(code, work.device, limit=60).seconds
    work.found(f"{quick:.1f} s, import and one tensor {alone:.1f} s")
    assert quick < 2 * alone + 3


@pytest.mark.whole
@pytest.mark.claim("doubt-20")
def test_standard_ends_soon(work: Work) -> None:
    said = at(work, "standard")
    work.found(f"{said.seconds:.0f} s")
    if any(map(was_cut, said.document["checks"])):
        unknown("the time was over")
    assert said.seconds < STANDARD_SECONDS


@pytest.mark.whole
@pytest.mark.claim("doubt-22")
def test_the_rate_under_load_is_that_of_the_speed_check(work: Work) -> None:
    found = checks(work)
    load, speed = (found.get(name, {}).get("value") for name in ("load", "speed-half"))
    if not load or not speed:
        unknown("no rate was measured")
    work.found(f"load {load:.4g} {found['load']['unit']}, speed-half {speed:.4g}")
    assert abs(load / speed - 1) <= NEAR


@pytest.mark.parametrize("names", BY_CHECKS)
def test_the_checks_that_decide_a_doubt_pass(work: Work, names: tuple[str, ...]) -> None:
    found = checks(work)
    rows = [found[name] for name in names if name in found]
    if len(rows) < len(names) or any(row["status"] == "skipped" or was_cut(row) for row in rows):
        unknown(f"{', '.join(names)} did not run")
    work.found("; ".join(f"{row['name']} {row['status']}: {row['detail']}" for row in rows))
    assert all(row["status"] == "passed" for row in rows)
