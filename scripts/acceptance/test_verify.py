"""verify at its three levels, and on a shared card."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from acceptance.conftest import Work
from acceptance.processes import Said, end, started

NEAR, POWER_LIMITED = 0.15, 0.3
"""By which part two measurements of one rate may differ; and below it where `load` says that the
power limit held the clocks, which it does not within the half second of a speed check (an H100 of
700 W: 771 TFLOPS there, 589 under load)."""
TFLOPS = re.compile(r"([\d.]+) TFLOPS")
STANDARD_SECONDS = 120
AFTER = {"quick": 60.0, "standard": 35.0, "stress": 5.0}
"""Level -> the seconds that are left to what comes after it."""
LEVELS = ["quick", *(pytest.param(n, marks=pytest.mark.card) for n in ("standard", "stress"))]
COMPETITOR = """
import sys, torch
a = torch.randn(int(sys.argv[2]), int(sys.argv[2]), device=sys.argv[1])
print("ready", flush=True)
while True:
    a = (a @ a).clamp(-1, 1)
"""


@cache
def at(work: Work, level: str) -> Said:
    """verify's answer, in its part of the time that is left."""
    seconds = max(10, int(work.left() - AFTER[level]))
    words = ["--seconds", str(min(60, seconds // 2))] if level == "stress" else []
    argv = ("verify", "--level", level, "--device", work.device, "--json", "-v", *words)
    return work.gpusetup(*argv, "--timeout", str(seconds), limit=seconds + 5.0)


def checks(work: Work) -> dict[str, dict[str, Any]]:
    """What each check found at the highest level that ran."""
    levels = ("quick", "standard", "stress") if work.on_card else ("quick",)
    return {row["name"]: row for level in levels for row in at(work, level).document["checks"]}


def bad(said: Said) -> list[str]:
    """Skips the test if a check failed for lack of time."""
    rows = [row for row in said.document["checks"] if row["status"] in ("failed", "crashed")]
    if any(row["name"] == "timeout" or "no answer in" in str(row["detail"]) for row in rows):
        pytest.skip("the time was over")
    return [row["name"] for row in rows]


@pytest.mark.parametrize("level", LEVELS)
def test_a_sound_card_passes(work: Work, level: str) -> None:
    said = at(work, level)
    rows, names = said.document["checks"], ", ".join(bad(said))
    work.found(f"{len(rows)} checks in {said.seconds:.1f} s, bad: {names or 'none'}")
    assert said.exit == 0


def test_quick_takes_about_as_long_as_importing_torch(work: Work) -> None:
    quick = at(work, "quick").seconds
    code = "import sys, torch; torch.ones(1, device=sys.argv[1]).sum().item()"
    alone = work.python(code, work.device).seconds
    work.found(f"{quick:.1f} s, import and one tensor {alone:.1f} s")
    assert quick < 2 * alone + 3


@pytest.mark.card
def test_standard_ends_soon(work: Work) -> None:
    said = at(work, "standard")
    work.found(f"{said.seconds:.0f} s, bad: {bad(said)}")
    assert said.seconds < STANDARD_SECONDS


@pytest.mark.card
def test_the_rate_under_load_is_that_of_the_speed_check(work: Work) -> None:
    found = checks(work)
    said = found.get("load", {}).get("detail", "")
    under_load, speed = TFLOPS.search(said), found.get("speed-half", {}).get("value")
    if not under_load or not speed:
        pytest.skip("no rate was measured")
    share = float(under_load[1]) / speed
    work.found(f"{under_load[1]} TFLOPS under load, {speed:.0f} without: {said}")
    least = 1 - (POWER_LIMITED if "power_cap" in said else NEAR)
    assert least <= share <= 1 + NEAR


def test_a_second_process_on_the_card_makes_nothing_look_wrong(work: Work) -> None:
    argv = (sys.executable, "-c", COMPETITOR, work.device, "8192" if work.on_card else "256")
    with started(argv, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout.readline() == b"ready\n"
            found = bad(work.gpusetup("verify", "--device", work.device, "--json"))
        finally:
            end(child)
    work.found(f"bad: {', '.join(found) or 'none'}")
    assert not found
