#!/usr/bin/env python3
"""Hold `gpusetup plan` against published memory figures, and fit the shares of the gaps to half.

python scripts/fit_published.py          the table of errors, by half, kind and trainer
python scripts/fit_published.py --rows   each figure with its prediction
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this tree's gpusetup, whichever one is installed

from gpusetup.model.frozen import Frozen, fields, replace  # noqa: E402
from gpusetup.model.units import GIB  # noqa: E402
from gpusetup.plan.memory.constants import Constants, shipped_constants  # noqa: E402
from gpusetup.plan.memory.parts import Parts, parts  # noqa: E402
from gpusetup.plan.model.named import model_named  # noqa: E402
from gpusetup.plan.model.trainers import trainer_settings  # noqa: E402
from gpusetup.plan.model.workload import Recipe, Workload  # noqa: E402

FIGURES = ROOT / "tests" / "plan_published.csv"
LATER = ROOT / "tests" / "plan_published_later.csv"
"""Figures that were looked at only when the formulas stood."""
PAIRS = ROOT / "tests" / "plan_pairs.csv"
SEED = 17


class Figure(Frozen):
    """One published figure, and what was run."""

    source: str
    trainer: str
    kind: str
    measure: str
    gib: float
    workload: Workload
    recipe: Recipe
    fitted: bool


def figures() -> list[Figure]:
    """All figures; a seed decides which half is fitted to."""
    with FIGURES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    order = list(range(len(rows)))
    random.Random(SEED).shuffle(order)
    half = set(order[: len(rows) // 2])
    return [_figure(row, index in half) for index, row in enumerate(rows)]


def later() -> list[Figure]:
    """The figures that nothing was fitted to, nor written with in view."""
    with LATER.open(encoding="utf-8", newline="") as file:
        return [_figure(row, False) for row in csv.DictReader(file)]


def _figure(row: dict[str, str], fitted: bool) -> Figure:
    return Figure(
        source=row["source"],
        trainer=row["trainer"],
        kind=row["kind"],
        measure=row["measure"],
        gib=float(row["gib"]),
        workload=_workload(row),
        recipe=Recipe(env=row["env"] == "yes"),
        fitted=fitted,
    )


def _workload(row: dict[str, str]) -> Workload:
    said = dict(pair.split("=") for pair in row["how"].split())
    settings: dict[str, Any] = {**trainer_settings(row["trainer"]), **map_values(said)}
    if "amp" not in settings and settings.get("dtype") == "bf16":
        settings["amp"] = None
    known = {field.name for field in fields(Workload)}
    return Workload(
        shape=model_named(row["model"]),
        gpus=int(row["gpus"]),
        context=int(row["context"]),
        batch=int(row["batch"]),
        **{name: value for name, value in settings.items() if name in known},
    )


def map_values(said: dict[str, str]) -> dict[str, Any]:
    """
    >>> map_values({"lora": "8", "compile": "yes", "loss": "eager"})
    {'lora': 8, 'compile': True, 'loss': 'eager'}
    """
    plain = {"yes": True, "no": False}
    return {
        name: plain.get(value, int(value) if value.isdigit() and name != "selective" else value)
        for name, value in said.items()
    }


READ: dict[str, Callable[[Parts], float]] = {
    "allocated": lambda found: found.allocated,
    "reserved": lambda found: found.reserved,
    "total": lambda found: found.total,
}


def predicted(figure: Figure, c: Constants) -> float:
    return READ[figure.measure](parts(figure.workload, figure.recipe, c)) / GIB


def errors(rows: Sequence[Figure], c: Constants) -> list[float]:
    """Prediction over measurement, less 1."""
    return [predicted(figure, c) / figure.gib - 1 for figure in rows]


def fit(rows: Sequence[Figure], start: Constants) -> Constants:
    """The shares of the gaps: medians of published pairs; with expandable segments the share of
    least error on the figures of reserved memory."""
    mine = [f for f in rows if f.recipe.env and f.measure != "allocated"]

    def cost(share: float) -> float:
        return sum(abs(error) for error in errors(mine, replace(start, gaps_expandable=share)))

    return replace(
        start,
        gaps=pair_share(sharded=False),
        gaps_sharded=pair_share(sharded=True),
        gaps_expandable=min((n / 100 for n in range(41)), key=cost),
    )


def pair_share(*, sharded: bool) -> float:
    """The median of (reserved - allocated) / (allocated - standing) over published pairs."""
    with PAIRS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["sharded"] == "yes") == sharded]
    shares = [
        (float(row["reserved"]) - float(row["allocated"]))
        / (float(row["allocated"]) - float(row["standing"]))
        for row in rows
    ]
    return round(statistics.median(shares), 2)


def report(rows: Sequence[Figure], c: Constants) -> None:
    groups: dict[str, list[Figure]] = {"all": list(rows)}
    groups["half that was fitted to"] = [f for f in rows if f.fitted]
    groups["half that was not"] = [f for f in rows if not f.fitted]
    groups["looked at afterwards"] = later()
    for name in ("measure", "kind", "trainer"):
        for value in dict.fromkeys(getattr(f, name) for f in rows):
            groups[f"{name} {value}"] = [f for f in rows if getattr(f, name) == value]
    for name, mine in groups.items():
        _line(name, errors(mine, c))


def _line(name: str, found: Sequence[float]) -> None:
    sizes = sorted(abs(error) for error in found)
    p90 = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
    print(
        f"  {name:26} {len(found):3} figures, median error {statistics.median(sizes):6.1%}, "
        f"P90 {p90:6.1%}, bias {statistics.median(found):+6.1%}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", action="store_true", help="each figure with its prediction")
    rows, start = figures(), shipped_constants()
    found = fit([f for f in rows if f.fitted], start)
    print(f"gaps {found.gaps}, sharded {found.gaps_sharded}, expandable {found.gaps_expandable}")
    if parser.parse_args().rows:
        shown = rows + later()
        for figure, error in zip(shown, errors(shown, found), strict=True):
            said = figure.gib * (1 + error)
            mark = "fit" if figure.fitted else "   "
            print(f"{mark} {figure.gib:7.2f} {said:7.2f} {error:+6.1%} {figure.measure:9} "
                  f"{figure.trainer} {figure.kind} {figure.workload.shape.name}, "
                  f"{figure.source}")  # fmt: skip
    report(rows, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
