"""W&B's system events, as rows and as what they say of GPUs and of the machine. Pure."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpusetup.monitor import columns

Row = Mapping[str, str]
"""Name in lower case -> cell."""


def json_rows(lines: Iterable[str]) -> Iterator[Row]:
    """`wandb-events.jsonl`, or rows of `run.history(stream='events')`, one a line."""
    for line in lines:
        try:
            plain = json.loads(line)
        except ValueError:
            continue
        if isinstance(plain, dict):
            told = {k: v for k, v in plain.items() if isinstance(v, int | float)}
            yield {name.lower(): str(value) for name, value in told.items()}


def csv_rows(lines: Iterable[str]) -> Iterator[Row]:
    names: list[str] = []
    try:
        for cells in csv.reader(line.replace("\0", "") for line in lines):
            if names:
                yield dict(zip(names, cells, strict=False))
            names = names or [cell.strip().lower() for cell in cells]
    except csv.Error:
        return


def moment(row: Row) -> float | None:
    return next((columns.quantity(row[n]) for n in ("_runtime", "_timestamp") if n in row), None)


def gpus(row: Row) -> Iterator[tuple[int, dict[str, Any]]]:
    found: dict[int, dict[str, tuple[str, str]]] = {}
    for name, cell in row.items():
        if match := columns.WANDB_NAME.match(name):
            found.setdefault(int(match[1][:5]), {})[match[2]] = (cell, "")
    for index, cells in sorted(found.items()):
        yield index, columns.gpu_fields(cells, columns.WANDB)


CORE = re.compile(r"(?:system\.)?cpu\.(\d+)\.cpu_percent$")
RATES = {
    "network.recv": ("network_receive_bytes_per_second", 1.0),
    "network.sent": ("network_send_bytes_per_second", 1.0),
    "disk.in": ("disk_read_bytes_per_second", 1e6),
    "disk.out": ("disk_write_bytes_per_second", 1e6),
}
"""Counted since the start -> a rate. Source: docs.wandb.ai/ref/system-metrics."""


class Host:
    """The machine as W&B sees it: `cpu` is percent of all cores together."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def fields(self, row: Row, at: float | None) -> dict[str, Any]:
        told: dict[str, Any] = {}
        busy = _number(row, "cpu")
        cores = len({match[1] for name in row if (match := CORE.match(name))})
        if busy is not None and 0 <= busy <= 100:
            told = {"busy_percent": busy}
            if cores:
                told |= {"cores": cores, "cpu_percent": busy * cores}
        return {**told, **_memory(row), **self._rates(row, at)}

    def _rates(self, row: Row, at: float | None) -> dict[str, float]:
        told: dict[str, float] = {}
        for name, (field, factor) in RATES.items():
            value = _number(row, name)
            if value is None or at is None:
                continue
            since, before = self._before.get(name, (at, value))
            if at > since and value >= before:
                told[field] = (value - before) * factor / (at - since)
            self._before[name] = at, value
        return told


def _memory(row: Row) -> dict[str, int]:
    """The total follows from what is free and its share."""
    share, free = _number(row, "memory_percent"), _number(row, "proc.memory.availablemb")
    if share is None or free is None or not 0 <= share < 100:
        return {}
    total = free * (1 << 20) / (1 - share / 100)
    return {"memory_total_bytes": round(total), "memory_used_bytes": round(total * share / 100)}


def _number(row: Row, name: str) -> float | None:
    cell = row.get(f"system.{name}", row.get(name, ""))
    return columns.quantity(cell)
