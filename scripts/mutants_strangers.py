#!/usr/bin/env python3
"""How many of a stranger's faults does verify catch? Each in a run of its own, with its own seed.

    python scripts/mutants_strangers.py --results FILE          all 60, resumable
    python scripts/mutants_strangers.py --results FILE --only softmax

A fault is caught where a check fails; a run that only crashed or ran out of time is an error and
is asked again by the next call. `noop` replaces kernels by themselves and has to pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests/kernel_faults"
LIMIT_SECONDS = 1800


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, required=True, metavar="FILE")
    parser.add_argument("--only", default="", metavar="WORDS", help="faults so named")
    parser.add_argument("--level", choices=("standard", "census"), default="standard")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    if options.results.exists():
        results = json.loads(options.results.read_text(encoding="utf-8"))
    for number, name in enumerate(("noop", *names())):
        done = results.get(name, {}).get("word") in ("caught", "missed")
        if done or options.only not in name:
            continue
        results[name] = judged(name, options.level, seed=1000 + number)
        options.results.write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(name, *results[name].values(), flush=True)
    return concluded(results)


def names() -> list[str]:
    """The faults by name, without importing torch here."""
    program = "import kernel_faults; print(*(row[0] for row in kernel_faults.MUTANTS))"
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=FAULTS, capture_output=True, text=True, check=True
    )
    return said.stdout.split()


def judged(name: str, level: str, seed: int) -> dict[str, Any]:
    """One run of verify with this fault: caught, missed or error, by which checks, and how long."""
    began = time.monotonic()
    words = ("--level", level, "--device", "cpu", "--seed", str(seed), "--json")
    with tempfile.TemporaryDirectory() as hits:
        about = {"PYTHONPATH": str(FAULTS), "KERNEL_FAULT": name, "KERNEL_FAULT_HITS": hits}
        try:
            said = subprocess.run(
                [sys.executable, "-m", "gpusetup.verify", *words],
                env={**os.environ, **about},
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            rows = json.loads(said.stdout)["checks"]
        except (subprocess.TimeoutExpired, ValueError, KeyError) as problem:
            return {"word": "error", "checks": [type(problem).__name__], "met": False}
        met = any(Path(hits).iterdir())
    failed = [row["name"] for row in rows if row["status"] == "failed"]
    crashed = [row["name"] for row in rows if row["status"] == "crashed"]
    word = "caught" if failed else "error" if crashed else "missed"
    seconds = round(time.monotonic() - began)
    return {"word": word, "checks": failed or crashed, "met": met, "seconds": seconds}


def concluded(results: dict[str, dict[str, Any]]) -> int:
    """The figure; 1 where a run without a fault fails."""
    faults = {name: row["word"] for name, row in results.items() if name != "noop"}
    caught, missed = (list(faults.values()).count(word) for word in ("caught", "missed"))
    print(f"caught {caught}, missed {missed}, errors {len(faults) - caught - missed}")
    return int(results.get("noop", {}).get("word", "missed") != "missed")


if __name__ == "__main__":
    sys.exit(main())
