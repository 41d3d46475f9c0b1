"""The 560 cells of Trinity-RFT's guide, from plan's table of the longest length of each recipe."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from gpusetup.plan.decide import CELLS

LENGTHS = (*range(4096, 40961, 4096), *range(51200, 153601, 10240))
"""The lengths that the guide measured, each column up to its own longest."""


def cells() -> Iterator[dict[str, str]]:
    column, shortest = "", 0
    with CELLS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            shortest = shortest if column == f"{row['gpu']} {row['num_gpus']} {row['model']}" else 0
            column = f"{row['gpu']} {row['num_gpus']} {row['model']}"
            longest = int(row.pop("longest"))
            for length in LENGTHS:
                if shortest < length <= longest:
                    yield {**row, "max_model_len": str(length)}
            shortest = longest
