#!/usr/bin/env python3
"""Hold `gpusetup plan` against published memory figures, in tests/plan_published.csv.

python scripts/published.py     by set, and together

An empty cell, but of `gib`, says what the cell above it says; `-` says nothing. A row has `gib` of
a `measure` (allocated, reserved, total), or says that the run ended (`fits`) or not (`oom`) on a
`card`. `how` are settings of the run by their names in `TrainingJob`.
"""

from __future__ import annotations

import csv
import itertools
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this tree's gpusetup, whichever one is installed

from gpusetup.configs.keys import name_in_plan  # noqa: E402
from gpusetup.model.frozen import fields  # noqa: E402
from gpusetup.model.units import GIB  # noqa: E402
from gpusetup.plan import models, trainers  # noqa: E402
from gpusetup.plan.job import Recipe, Shape, TrainingJob  # noqa: E402
from gpusetup.plan.memory import JobMemory, memory  # noqa: E402

PUBLISHED = ROOT / "tests" / "plan_published.csv"
PLAIN = {"yes": True, "no": False}
NAMED = {"optimizer": name_in_plan("optimizer"), "strategy": name_in_plan("strategy")}
KNOWN = {field.name for field in fields(TrainingJob)}
BESIDE = {"offload", "sp", "accumulation"}
"""Words of `how` that are no settings of a job."""
LEFT = {
    "adapter_dtype", "dora", "fused_activation", "kept_inputs", "lora_dropout", "lora_targets",
    "reference", "reshard", "trained_embeddings", "varied",
}  # fmt: skip
"""Settings that the model does not tell apart."""
LOSSES = {"eager-32": "eager", "eager-16": "eager-old", "half": "in-graph", "dpo": "eager",
          "in-place-shifted": "in-graph"}  # fmt: skip


class Met(NamedTuple):
    """One row, and what plan says of it."""

    row: dict[str, str]
    error: float | None = None
    """Of a figure: prediction over measurement, less 1."""
    needs: float | None = None
    """Of a run on a card: the share of it that is needed."""

    @property
    def right(self) -> bool:
        return ((self.needs or 0) > 1) == (self.row["measure"] == "oom")

    @property
    def missed(self) -> bool:
        return not self.right and self.row["measure"] == "oom"


def met() -> list[Met]:
    above: dict[str, str] = {}
    found = []
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            above |= {name: text for name, text in row.items() if text or name == "gib"}
            said = {name: text.removeprefix("-") for name, text in above.items()}
            found.append(judged(said))
    return found


def judged(row: dict[str, str]) -> Met:
    found = memory(job(row), recipe(row))
    card = float(row.get("card") or 0) * GIB
    if row["measure"] not in ("fits", "oom") and not row["gib"]:
        raise ValueError(f"no figure of {row['measure']}")
    error = predicted(found, row["measure"], card) / float(row["gib"]) - 1 if row["gib"] else None
    return Met(row, error, found.total / card if card else None)


def predicted(found: JobMemory, measure: str, card: float) -> float:
    """In GiB; gaps are never more than the card has room for."""
    cached = found.total + found.cached if measure == "total" else found.reserved
    if measure == "allocated" or not card:
        return (found.allocated if measure == "allocated" else cached) / GIB
    room = max(card, found.total) - (found.runtime if measure == "reserved" else 0)
    return min(cached, room) / GIB


def words(row: dict[str, str]) -> dict[str, str]:
    return dict(pair.split("=") for pair in row["how"].split())


def recipe(row: dict[str, str]) -> Recipe:
    said = words(row)
    offload = said.get("offload") == "yes"
    return Recipe(env=row["env"] == "yes", sp=int(said.get("sp", 1)), offload=offload)


def job(row: dict[str, str]) -> TrainingJob:
    """The run that a row describes, by the trainer's defaults and what it says."""
    said = words(row)
    if unknown := set(said) - KNOWN - BESIDE - LEFT:
        raise ValueError(f"how: no such word: {', '.join(sorted(unknown))}")
    shape, trainer = model(row["model"]), trainers.trainer_named(row["trainer"]) or ""
    values = settings(said)
    if values.get("attention") == "written":
        values["attention"] = "eager"
    chosen = trainers.trainer_defaults(trainer, shape.kind, 1, values)
    chosen |= {
        "amp": chosen.get("amp") or None,
        "loss": LOSSES.get(chosen["loss"]) or name_in_plan("loss")(chosen["loss"]),
    }
    return TrainingJob(
        shape=shape,
        gpus=int(row["gpus"]),
        context=int(row["context"]),
        batch=int(row["batch"]),
        accumulate=2 if said.get("accumulation") == "yes" else 1,
        **{name: value for name, value in chosen.items() if name in KNOWN},
    )


def settings(said: dict[str, str]) -> dict[str, Any]:
    """Words of a row as settings of a workload; checkpointing is of every unit, as it is said."""
    values: dict[str, Any] = {
        name: NAMED[name](text) if name in NAMED else value_of(text) for name, text in said.items()
    }
    values |= {"selective": said["selective"] == "op"} if "selective" in said else {}
    if "checkpointing" not in values:
        return values
    return (
        {"selective": False} | values | {"checkpointing": said["checkpointing"] in ("yes", "full")}
    )


def value_of(text: str) -> Any:
    if text.replace(".", "", 1).isdigit():
        return float(text) if "." in text else int(text)
    return PLAIN.get(text, text)


def model(name: str) -> Shape:
    """By its name, its `config.json` in this repository, or its size: `params=7B`."""
    if name.startswith("params="):
        return models.model_of_size(models.parameter_count(name.removeprefix("params=")))
    return models.model_in(ROOT / name) if name.endswith(".json") else models.model_named(name)


def summary(name: str, rows: Iterable[Met]) -> str:
    rows = list(rows)
    errors = [one.error for one in rows if one.error is not None] or [0.0]
    ran = [one for one in rows if one.needs is not None]
    out = sum(one.row["measure"] == "oom" for one in ran)
    error, bias = statistics.median(map(abs, errors)), statistics.median(errors)
    right, missed = (sum(getattr(one, name) for one in ran) for name in ("right", "missed"))
    return (
        f"{name:24} {len(errors):4} figures, median error {error:5.1%}, bias {bias:+5.1%}; fits or"
        f" not {right} of {len(ran)}, out of memory missed {missed} of {out}"
    )


def main() -> int:
    together: list[Met] = []
    sets = itertools.groupby(met(), lambda one: one.row["set"])
    for name, rows in ((name, list(its)) for name, its in sets):
        together += rows
        print(summary(name, rows))
    print(summary("together", together))
    return 0


if __name__ == "__main__":
    sys.exit(main())
