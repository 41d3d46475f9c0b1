"""verify's numeric checks with other random numbers: none may fail on a sound card."""

from __future__ import annotations

import random

from acceptance.conftest import Work
from gpusetup.verify.checks.rows import KNOWN

NUMERIC = (
    *("matmul", "float64", "float32", "float16", "bfloat16", "chance"),
    *(check.name for check in KNOWN),
    *("language-model", "repeats"),
)
LEAST_RUNS = 2
STARTING_SECONDS = 15.0
"""What one run takes before its numbers: torch and the context."""


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
