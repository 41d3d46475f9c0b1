#!/usr/bin/env python3
"""Does verify raise false alarms? The checks of `standard` on a sound CPU, with many seeds.

python scripts/clean_verify.py --seeds 20              all checks that compute, one warm process
python scripts/clean_verify.py --seeds 20 --threads 7  as on a machine with more cores
ATEN_CPU_CAPABILITY=default python scripts/clean_verify.py --only softmax attention
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="clean-"))

from verify_faults.runs import checks, run  # noqa: E402

from gpusetup.verify.values import PASSED, Asked, Outcome, ask_for  # noqa: E402

NO_NUMBERS = ("compile", "dataloader", "memory", "out-of-memory", "copy-within", "speed", "clock")
"""What they take long over does not depend on the seed."""


class Seen(NamedTuple):
    """One check with one seed."""

    name: str
    seed: int
    outcome: Outcome
    seconds: float
    """Of all processors, its own processes with it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="so many seeds (20)")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first seed (1)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of torch")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="these checks")
    options = parser.parse_args()
    chosen = options.only or [name for name in checks() if name not in NO_NUMBERS]
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    seeds = range(options.first, options.first + options.seeds)
    seen = [told(once(name, seed)) for seed in seeds for name in chosen]
    print(table(seen))
    bad = sum(each.outcome.status != PASSED for each in seen)
    print(f"{len(seeds)} seeds, {len(seen)} checks, {bad} did not pass")
    return 1 if bad else 0


def once(name: str, seed: int) -> Seen:
    ask_for(Asked(seed, level="standard"))
    before = sum(os.times()[:4])
    outcome = run(name, None)
    return Seen(name, seed, outcome, sum(os.times()[:4]) - before)


def told(seen: Seen) -> Seen:
    """The same; where it did not pass, it is printed at once."""
    if seen.outcome.status != PASSED:
        said = f"seed {seen.seed}: {seen.name} {seen.outcome.status}: {seen.outcome.detail}"
        print(said, flush=True)
    sys.stderr.write(f"seed {seen.seed} {seen.name} {seen.seconds:.1f} s\n")
    return seen


def table(seen: Iterable[Seen]) -> str:
    """A line a check, the nearest to its limit first: the part of it, the seconds, the place."""
    by_name: dict[str, list[Seen]] = {}
    for each in seen:
        by_name.setdefault(each.name, []).append(each)
    lines = [(part_of_limit(worst(rows)), line(name, rows)) for name, rows in by_name.items()]
    return "\n".join(text for _, text in sorted(lines, reverse=True))


def line(name: str, rows: list[Seen]) -> str:
    """What one check did with all seeds."""
    nearest = worst(rows)
    seconds = sum(each.seconds for each in rows) / len(rows)
    place = f"seed {nearest.seed}: {nearest.outcome.detail}" if nearest.outcome.limit else ""
    return f"{name:20} {part_of_limit(nearest):6.3f} {seconds:6.1f} s  {place}".rstrip()


def worst(rows: list[Seen]) -> Seen:
    return max(rows, key=part_of_limit)


def part_of_limit(seen: Seen) -> float:
    """How near a check came to its limit: 1 at the limit, 0 where it has none."""
    value, limit = seen.outcome.value, seen.outcome.limit
    return value / limit if value is not None and limit else 0.0


if __name__ == "__main__":
    sys.exit(main())
