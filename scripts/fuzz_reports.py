#!/usr/bin/env python3
"""Damages rendered reports and reads them: nothing may raise or hang; harmless ways change nothing.

    python scripts/fuzz_reports.py --damaged 200000 --seed 1      no exception, no slow text
    python scripts/fuzz_reports.py --harmless 1000 --seed 1       the same answer after every way

Prints the seeds of what failed, with which the text can be made again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from damage import HARMLESS, damaged  # noqa: E402
from report_messages import MESSAGES  # noqa: E402
from writers import mixture  # noqa: E402

from gpusetup.catalog.file import load_catalog  # noqa: E402
from gpusetup.diagnosis.diagnose import Diagnosis, diagnose  # noqa: E402
from gpusetup.model.codec import to_json  # noqa: E402
from gpusetup.report.read import read_bytes  # noqa: E402

TEXTS = tuple(text for _, text in MESSAGES)
SLOW_SECONDS = 2.0


def answer(raw: bytes) -> Diagnosis:
    return diagnose(read_bytes(raw), load_catalog())


def told(diagnosis: Diagnosis) -> tuple[object, ...]:
    """What must not change: the judgement, the build, and the facts of the machine."""
    machine = diagnosis.snapshot
    return (
        diagnosis.cause,
        tuple(sorted((f.id, f.severity.value) for f in diagnosis.findings)),
        (diagnosis.answer.torch, diagnosis.answer.backend),
        (machine.driver.version, machine.driver.cuda, machine.torch.version, machine.torch.cuda),
        (machine.python.version, machine.os.family),
        tuple(gpu.name for gpu in machine.gpus or ()),
    )


def fuzz(count: int, seed: int) -> int:
    """How many of `count` damaged texts raised, broke a rule, or took too long."""
    bad = 0
    for number in range(seed, seed + count):
        draw = random.Random(number)
        raw = damaged(mixture(number % 5000, TEXTS).encode(), draw)
        began = time.perf_counter()
        try:
            diagnosis = answer(raw)
            to_json(diagnosis.snapshot)
            broken = [f.title for f in diagnosis.findings if f.id == "rule-broken"]
        except Exception:
            broken = [traceback.format_exc().splitlines()[-1]]
        seconds = time.perf_counter() - began
        if broken or seconds > SLOW_SECONDS:
            bad += 1
            print(f"seed {number}: {broken or f'{seconds:.1f} s'}", flush=True)
        if (number - seed) % 20_000 == 19_999:
            print(f"{number - seed + 1} texts, {bad} bad", flush=True)
    return bad


def invariance(count: int, seed: int) -> int:
    """How many answers changed, over `count` reports and every harmless way."""
    changed: Counter[str] = Counter()
    for number in range(seed, seed + count):
        text = mixture(number, TEXTS)
        plain = told(answer(text.encode()))
        for way in HARMLESS:
            after = told(answer(way(text)))
            if after != plain:
                changed[way.__name__] += 1
                if changed[way.__name__] <= 2:
                    print(f"seed {number}, {way.__name__}: {difference(plain, after)}", flush=True)
    for name, times in changed.most_common():
        print(f"{name}: {times} of {count} answers changed")
    return changed.total()


def difference(plain: tuple[object, ...], after: tuple[object, ...]) -> str:
    return "; ".join(f"{a} -> {b}" for a, b in zip(plain, after, strict=True) if a != b)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damaged", type=int, default=0, metavar="N")
    parser.add_argument("--harmless", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    bad = fuzz(options.damaged, options.seed) + invariance(options.harmless, options.seed)
    seconds = time.perf_counter() - began
    print(
        f"seed {options.seed}: {options.damaged} damaged, "
        f"{options.harmless} x {len(HARMLESS)} harmless, {bad} bad, {seconds:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
