#!/usr/bin/env python3
"""Fit the constants of `gpusetup plan` to the measured cells, and say how good they are.

python scripts/fit_plan.py             fit, judge, and write data/plan/constants.json
python scripts/fit_plan.py --check     exit 1 where the file is not what the fit gives
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this tree's gpusetup, whichever one is installed

from gpusetup.model.codec import to_json  # noqa: E402
from gpusetup.model.frozen import fields, replace  # noqa: E402
from gpusetup.model.units import GIB  # noqa: E402
from gpusetup.plan.answer.calibrate import (  # noqa: E402
    Cell,
    Score,
    cross_validated,
    fit,
    judge,
)
from gpusetup.plan.answer.choose import Limits, choose  # noqa: E402
from gpusetup.plan.answer.measured import CELLS, NONE  # noqa: E402
from gpusetup.plan.memory.capacity import capacity  # noqa: E402
from gpusetup.plan.memory.constants import (  # noqa: E402
    SHIPPED,
    Constants,
    ConstantsFile,
)
from gpusetup.plan.model.named import model_named  # noqa: E402
from gpusetup.plan.model.workload import Recipe, Workload  # noqa: E402

FULL_NAME = {"A100": "A100 80GB", "H20": "H20"}

START = Constants(
    alone=1.0,
    unit=14.0,
    unit_offloaded=11.0,
    checkpoint=1.5,
    logit=8.3,
    exchange=16.0,
    fragmentation=1.7,
    context_bytes=0.5 * GIB,
    nccl_bytes=0.3 * GIB,
)
"""What arithmetic and the public discussion of the cells suggest, before any fit.

A CUDA context with cuBLAS and cuDNN workspaces takes 0.4 to 0.6 GiB, NCCL's channels of one node
0.2 to 0.4 GiB (`nvidia-smi` of a process with nothing else): set beforehand.
"""


def cells() -> list[Cell]:
    with CELLS.open(encoding="utf-8", newline="") as file:
        return [_cell(row) for row in csv.DictReader(file)]


def _cell(row: dict[str, str]) -> Cell:
    w = Workload(
        shape=model_named(row["model"]),
        gpus=int(row["num_gpus"]),
        context=int(row["max_model_len"]),
    )
    total = capacity(FULL_NAME[row["gpu"]], float(row["gpu_mem_gb"]) * GIB)
    recipe = None if row["recipe"] == NONE else Recipe.parse(row["recipe"])
    return Cell(workload=w, limits=Limits(capacity=total), recipe=recipe, group=row["gpu"])


def report(facts: list[Cell], found: Constants) -> None:
    """Print how good the fit is, on its own cells and on cells it has not seen."""
    _show("all cells", judge(facts, found))
    _show("all cells, --safe", judge(facts, found, safe=True))
    clear, right = clear_share(facts, found)
    print(f"  {'clear':32} {clear:6.1%} of the cells, {right:.1%} of them right")
    for gpu in FULL_NAME:
        mine = [cell for cell in facts if cell.group == gpu]
        rest = [cell for cell in facts if cell.group != gpu]
        _show(f"fitted without {gpu}, judged on it", judge(mine, fit(rest, START)))
    by_model = [replace(cell, group=cell.workload.shape.name) for cell in facts]
    _show("one model left out at a time", cross_validated(by_model, START))


def clear_share(cells: list[Cell], c: Constants) -> tuple[float, float]:
    """The share of cells whose answer is clear, and the share of those that is right."""
    fits = [(choose(cell.workload, cell.limits, c), cell.recipe) for cell in cells]
    clear = [(found, recipe) for found, recipe in fits if found.clear]
    right = [1 for found, r in clear if (found.chosen.recipe if found.chosen else None) == r]
    return len(clear) / max(len(cells), 1), len(right) / max(len(clear), 1)


def _show(name: str, score: Score) -> None:
    print(
        f"  {name:32} exact {score.exact:6.1%}, unsafe {score.unsafe:5.1%}, "
        f"fits or not {score.fits_or_not:6.1%}  ({score.cells} cells)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only")
    facts = cells()
    found = fit(facts, START)
    for name in (field.name for field in fields(Constants)):
        print(f"  {name:16} {getattr(found, name):14.4f}")
    report(facts, found)
    text = to_json(ConstantsFile(constants=found), indent=1) + "\n"
    if parser.parse_args().check:
        return int(text != SHIPPED.read_text(encoding="utf-8"))
    SHIPPED.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
