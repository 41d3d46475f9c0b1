"""verify at its three levels, on a shared card, and with other random numbers."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from acceptance.conftest import Work
from acceptance.processes import Said, end, started
from gpusetup.verify.checks.rows import KNOWN

NUMERIC = (
    *("matmul", "float64", "float32", "float16", "bfloat16", "chance"),
    *(check.name for check in KNOWN),
    *("language-model", "repeats"),
)
LEAST_RUNS = 2
STARTING_SECONDS = 15.0
"""What one run takes before its numbers: torch and the context."""

AFTER = {"quick": 140.0, "standard": 115.0, "stress": 85.0}
"""Level -> the seconds that are left to what comes after it."""
LEVELS = ["quick", *(pytest.param(n, marks=pytest.mark.card) for n in ("standard", "stress"))]
COMPETITOR = """
import sys, torch
a = torch.randn(int(sys.argv[2]), int(sys.argv[2]), device=sys.argv[1])
print("ready", flush=True)
while True:
    a = (a @ a).clamp(-1, 1)
"""


def bad(said: Said) -> list[str]:
    """Skips the test if a check failed for lack of time."""
    rows = [row for row in said.document["checks"] if row["status"] in ("failed", "crashed")]
    if any(row["name"] == "timeout" or "no answer in" in str(row["detail"]) for row in rows):
        pytest.skip("the time was over")
    return [row["name"] for row in rows]


@pytest.mark.parametrize("level", LEVELS)
def test_a_sound_card_passes(work: Work, level: str) -> None:
    # Its part of the time that is left.
    seconds = max(10, int(work.left() - AFTER[level]))
    words = ["--seconds", str(min(60, seconds // 2))] if level == "stress" else []
    argv = ("verify", "--level", level, "--device", work.device, "--json", "-v", *words)
    said = work.gpusetup(*argv, "--timeout", str(seconds), limit=seconds + 5.0)
    rows, names = said.document["checks"], ", ".join(bad(said))
    work.found(f"{len(rows)} checks in {said.seconds:.1f} s, bad: {names or 'none'}")
    assert said.exit == 0


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


def test_other_random_numbers_raise_no_alarm(work: Work) -> None:
    names = NUMERIC if work.on_card else NUMERIC[:4]
    seeds: list[int] = []
    longest_seconds = 0.0
    while len(seeds) < LEAST_RUNS or (work.on_card and work.left() > 1.5 * longest_seconds + 3):
        seeds.append(random.randrange(1 << 31))
        limit = max(STARTING_SECONDS, work.left() / LEAST_RUNS)
        said = work.gpusetup(
            *("verify", "--level", "standard", "--device", work.device, "--json"),
            *("--seed", str(seeds[-1]), "--timeout", f"{limit:.0f}", "--only", *names),
            limit=limit + STARTING_SECONDS,
        )
        longest_seconds = max(longest_seconds, said.seconds)
        rows = said.document["checks"]
        failed = [row["name"] for row in rows if row["status"] in ("failed", "crashed")]
        work.found(f"{len(seeds)} runs; with seed {seeds[-1]} these failed: {failed or 'none'}")
        assert not failed
