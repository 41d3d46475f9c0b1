#!/usr/bin/env python3
"""Would verify catch a sick device? Every mutant against every check, and clean runs.

python scripts/mutants_verify.py                     all mutants, 50 clean runs, on the CPU
python scripts/mutants_verify.py --clean 0 --only ERF  the mutants with ERF in their name
python scripts/mutants_verify.py --from FILE.py --results FILE.json
                                                     the mutants of a file of somebody else's

A file of mutants is Python. Each public function in it without parameters is a mutant (or those
that `MUTANTS` names: functions, or tuples of a name and a function). It is called in a fork of one
warm process, after `import torch`, and makes torch compute wrongly in that process: by
`torch.library.Library("aten", "IMPL").impl(name, wrong, "CPU")` (`torch.library.get_kernel` gives
the right kernel, to be called from the wrong one), by replacing a function of torch, or by
answering with a context manager, such as a `TorchDispatchMode`, which is then entered on every
thread. With float64 left right a fault is one that verify is meant to see: the reference is
computed in it. Each fork has the seed of `--seed`, runs the checks of `--level` on the CPU and ends
at the first that fails (`--every`: at none); what calls a replaced operator of aten runs first.
Where the file writes a file into the folder that `KERNEL_FAULT_HITS` names when the fault takes
effect, a miss is told as met or not. The run named `nothing` has no fault and has to pass.
`--results` keeps each answer, and the same command goes on after an interruption; its last line is
"caught N of M".

`--ranks N` tries each mutant among N ranks (gloo, forked from a warm process, too): a function
may take `rank`, its number. It is called after the ranks met and before the first collective.
`get_kernel(...).call_boxed` holds the interpreter's lock, and with gloo the ranks may then wait for
each other for ever, with or without a fault. What was caught by a hang alone is therefore named:
it counts where the same function without its fault passes (list it as a mutant of its own).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context, set_start_method
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="mutants-"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

from verify_faults.mutants import MUTANTS, Mutant  # noqa: E402
from verify_faults.outside import ask  # noqa: E402
from verify_faults.runs import bad, run_all  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clean", type=int, default=50, metavar="N", help="clean runs (50)")
    parser.add_argument("--no-mutants", action="store_true", help="clean runs alone")
    parser.add_argument("--only", default="", metavar="WORDS", help="mutants so named")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    outside = parser.add_argument_group("mutants of somebody else's")
    outside.add_argument("--from", type=Path, dest="file", metavar="FILE", help="of this file")
    outside.add_argument("--results", type=Path, metavar="FILE", help="keep and go on from here")
    outside.add_argument("--level", choices=("standard", "census"), default="standard")
    outside.add_argument("--seed", type=int, default=1000, metavar="N", help="of all (1000)")
    outside.add_argument("--every", action="store_true", help="every check, after a failure too")
    outside.add_argument("--ranks", type=int, default=0, metavar="N", help="among N ranks")
    options = parser.parse_args()
    if options.file:
        return ask(options.file, options.results, options)
    warm = bad(run_all())  # compiles once, for all processes
    missed = [f"clean run with the usual seed: {each}" for each in warm]
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), _as_usual) as pool:
        missed += false_alarms(pool, 0 if options.only else options.clean)
        if not options.no_mutants:
            missed += survivors(pool, options.only)
    print("\n".join(missed))
    return 1 if missed else 0


def false_alarms(pool: Executor, count: int) -> list[str]:
    """What clean runs with different seeds complain of; there should be nothing."""
    began, found = time.perf_counter(), []
    for seed, names in enumerate(pool.map(_clean, range(1, count + 1)), start=1):
        found += [f"clean run with seed {seed}: {name}" for name in names]
    if count:
        seconds = time.perf_counter() - began
        print(f"{count} clean runs, {len(found)} failures, {seconds:.0f} s", flush=True)
    return found


def survivors(pool: Executor, only: str) -> list[str]:
    """What is wrong with how the mutants are caught."""
    chosen = [each for each in MUTANTS if only.lower() in each.name.lower()]
    missed, alone, good = [], set(), 0
    for mutant, names in zip(chosen, pool.map(_seen, [m.name for m in chosen]), strict=True):
        print(f"{mutant.name}: {', '.join(names) or 'NOT CAUGHT'}", flush=True)
        good += mutant.catcher in names
        alone |= set(names) if len(names) == 1 else set()
        missed += judge(mutant, names)
    caught = f"{good} of {len(chosen)} mutants caught"
    print(f"{caught}; {len(alone)} checks are the only ones to catch one")
    return missed


def judge(mutant: Mutant, names: list[str]) -> list[str]:
    """What is wrong with who sees a mutant."""
    if mutant.catcher not in names:
        return [f"{mutant.name}: {mutant.catcher} does not see it"]
    return []


def _as_usual() -> None:
    """A loader's workers are started as in any program, though this process was spawned."""
    set_start_method(None, force=True)


def _clean(seed: int) -> list[str]:
    return list(bad(run_all(seed=seed)))


def _seen(name: str) -> list[str]:
    return list(bad(run_all(next(each for each in MUTANTS if each.name == name))))


if __name__ == "__main__":
    sys.exit(main())
