#!/usr/bin/env python3
"""Hold `gpusetup plan` against a CSV of published memory figures (tests/plan_published_*.csv).

python scripts/compare_published.py rows.csv            the errors, by measure and trainer
python scripts/compare_published.py rows.csv --rows     each figure with its prediction
python scripts/compare_published.py rows.csv --check    only whether every row can be read
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import get_args

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # this tree's gpusetup, whichever one is installed

import fit_published as published  # noqa: E402

from gpusetup.errors import GpuSetupError  # noqa: E402
from gpusetup.plan.memory.constants import shipped_constants  # noqa: E402
from gpusetup.plan.memory.loss import LOSSES  # noqa: E402
from gpusetup.plan.memory.optimizers import OPTIMIZERS  # noqa: E402
from gpusetup.plan.memory.parts import parts  # noqa: E402
from gpusetup.plan.model.workload import (  # noqa: E402
    BYTES,
    STRATEGIES,
    Attention,
    Quantization,
    Step,
    Workload,
)

COLUMNS = (
    "source", "url", "trainer", "kind", "model", "gpus", "context", "batch", "how", "env",
    "measure", "gib", "card", "half", "asked",
)  # fmt: skip
MEASURES = (*published.READ, "fits", "oom")


def faults(path: Path) -> list[str]:
    """What is wrong with which row, as sentences; rows that `asked` leaves out are not read."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            return [f"columns are missing: {', '.join(missing)}"]
        rows = list(reader)
    found = [(number, fault(row)) for number, row in enumerate(rows, 2) if not row["asked"]]
    return [f"line {number}: {text}" for number, text in found if text]


def fault(row: dict[str, str]) -> str | None:
    """What is wrong with a row, or None."""
    if row["measure"] not in MEASURES:
        return f"measure {row['measure']!r} is none of {', '.join(MEASURES)}"
    if bool(row["gib"]) != (row["measure"] in published.READ):
        return "a figure has `gib`, `fits` and `oom` have none"
    if not row["gib"] and not row["card"]:
        return "`fits` and `oom` need the card's GiB"
    try:
        w = published._workload(row)
        if text := meant(w):
            return text
        parts(w, published._recipe(row), shipped_constants())
    except (GpuSetupError, ValueError, KeyError, TypeError) as problem:
        return f"{problem}"
    return None


VALUES: dict[str, tuple[object, ...]] = {
    "strategy": STRATEGIES,
    "loss": tuple(LOSSES),
    "optimizer": tuple(OPTIMIZERS),
    "dtype": tuple(BYTES),
    "amp": (None, *BYTES),
    "adapter_dtype": tuple(BYTES),
    "gradient_dtype": (None, *BYTES),
    "quantize": (None, *get_args(Quantization)),
    "attention": get_args(Attention),
    "step": get_args(Step),
    "lora_targets": ("all", "attention", "qv"),
}


def meant(w: Workload) -> str | None:
    """Which word of a row has a value that means nothing."""
    for name, values in VALUES.items():
        if getattr(w, name) not in values:
            return f"{name}={getattr(w, name)} is none of {', '.join(map(str, values))}"
    inner = w.tensor_parallel * w.pipeline_parallel
    return f"{inner} (TP x PP) does not divide {w.gpus} GPUs" if w.gpus % inner else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    parser.add_argument("--rows", action="store_true", help="each figure with its prediction")
    parser.add_argument("--check", action="store_true", help="only whether rows can be read")
    options = parser.parse_args()
    wrong = faults(options.csv)
    print("\n".join(wrong) or "every row can be read")
    if wrong or options.check:
        return 1 if wrong else 0
    published.SETS["given"] = options.csv
    asked, complete = published.coverage(options.csv)
    print(f"asked {asked} of {complete}")
    published.blind_report("given", shipped_constants(), rows=options.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
