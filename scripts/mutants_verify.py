#!/usr/bin/env python3
"""Would verify catch a sick device? Every mutant against every check, and clean runs.

python scripts/mutants_verify.py                     all mutants, 50 clean runs, on the CPU
python scripts/mutants_verify.py --clean 0 --only ERF  the mutants with ERF in their name
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="mutants-"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

from verify_faults.mutants import MUTANTS, Mutant  # noqa: E402
from verify_faults.runs import bad, checks, run_all  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clean", type=int, default=50, metavar="N", help="clean runs (50)")
    parser.add_argument("--no-mutants", action="store_true", help="clean runs alone")
    parser.add_argument("--only", default="", metavar="WORDS", help="mutants so named")
    options = parser.parse_args()
    missed = [] if options.only else false_alarms(options.clean)
    chosen = [each for each in MUTANTS if options.only.lower() in each.name.lower()]
    if options.no_mutants:
        print("\n".join(missed))
        return 1 if missed else 0
    caught: dict[str, list[str]] = {}
    for mutant in chosen:
        problem = judge(mutant, caught)
        missed += [problem] if problem else []
    alone = {catchers[0] for catchers in caught.values() if len(catchers) == 1}
    lonely = [] if options.only else [name for name in checks() if name not in alone]
    missed += [f"{name} is never the only one to see a mutant" for name in lonely]
    good = sum(mutant.catcher in caught.get(mutant.name, ()) for mutant in chosen)
    print(
        f"{good} of {len(chosen)} mutants caught; "
        f"{len(alone)} checks are the only ones to catch one"
    )
    print("\n".join(missed))
    return 1 if missed else 0


def false_alarms(count: int) -> list[str]:
    """What clean runs with different seeds complain of; there should be nothing."""
    began, found = time.perf_counter(), []
    for seed in range(1, count + 1):
        found += [f"clean run with seed {seed}: {each}" for each in bad(run_all(seed=seed))]
    seconds = time.perf_counter() - began
    print(f"{count} clean runs, {len(found)} failures, {seconds:.0f} s", flush=True)
    return found


def judge(mutant: Mutant, caught: dict[str, list[str]]) -> str | None:
    """Run all checks on a mutant; what is wrong with what they said."""
    with contextlib.redirect_stderr(sys.stdout):
        found = run_all(mutant)
    names = list(bad(found))
    caught[mutant.name] = names
    print(f"{mutant.name}: {', '.join(names) or 'NOT CAUGHT'}", flush=True)
    if mutant.catcher not in names:
        return f"{mutant.name}: {mutant.catcher} does not see it"
    if mutant.only and len(names) > 1:
        return f"{mutant.name}: {', '.join(names)} see it, not {mutant.catcher} alone"
    return None


if __name__ == "__main__":
    sys.exit(main())
