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
SEEDS = random.sample(range(1 << 31), 3)
LIMIT_SECONDS = 90
"""For one run of verify."""
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
    words = ("--seconds", "45") if level == "stress" else ()
    argv = ("verify", "--level", level, "--device", work.device, "--json", "-v", *words)
    said = work.gpusetup(*argv, "--timeout", str(LIMIT_SECONDS))
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


@pytest.mark.parametrize("seed", SEEDS)
def test_other_random_numbers_raise_no_alarm(work: Work, seed: int) -> None:
    names = NUMERIC if work.on_card else NUMERIC[:4]
    said = work.gpusetup(
        *("verify", "--level", "standard", "--device", work.device, "--json"),
        *("--seed", str(seed), "--timeout", str(LIMIT_SECONDS), "--only", *names),
    )
    rows = said.document["checks"]
    failed = [row["name"] for row in rows if row["status"] in ("failed", "crashed")]
    work.found(f"with seed {seed} these failed: {failed or 'none'}")
    assert not failed
