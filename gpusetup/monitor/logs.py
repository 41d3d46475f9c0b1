"""A log of `nvidia-smi --query-gpu=… --format=csv` with its heading, as samples. Pure.

What a log does not tell is None. Source of the names: `nvidia-smi --help-query-gpu`.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from gpusetup.model.units import MIB
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.readings.measures import can_be
from gpusetup.readings.nvidia_smi import THROTTLE_BITS, cell, flag, number, throttle_mask

SOURCE = "nvidia-smi csv"
Row = Mapping[str, str]
"""Heading -> cell."""
NAMES = {
    "utilization_percent": "utilization.gpu",
    "memory_busy_percent": "utilization.memory",
    "memory_used_bytes": "memory.used",
    "memory_total_bytes": "memory.total",
    "temperature_celsius": "temperature.gpu",
    "power_watts": "power.draw power.draw.average power.draw.instant",
    "power_limit_watts": "power.limit enforced.power.limit",
    "power_limit_default_watts": "power.default_limit",
    "power_limit_max_watts": "power.max_limit",
    "clock_sm_mhz": "clocks.sm clocks.current.sm clocks.gr clocks.current.graphics",
    "clock_sm_max_mhz": "clocks.max.sm clocks.max.gr",
    "name": "name gpu_name",
    "uuid": "uuid gpu_uuid",
}
"""Field -> its columns; the first that tells something counts."""
WHOLE = ("_bytes", "_mhz")
"""How the names of whole numbers end."""
REASON = re.compile(r"clocks_(?:throttle|event)_reasons\.(\w+)$")
NAMED = ("index", "uuid", "gpu_uuid", "pci.bus_id", "utilization.gpu")
"""One of these is in every heading; the first that a row has says which GPU it is about."""


def headings(line: str) -> list[str]:
    """The columns of a log; [] if the line is not its heading.

    >>> headings("Index, memory.used [MiB]"), headings("a, b")
    (['index', 'memory.used'], [])
    """
    names = [one.partition("[")[0].strip() for one in line.lower().split(",")]
    return names if {*NAMED} & {*names} else []


def samples(lines: Iterable[str], interval: float) -> Iterator[Sample]:
    """Rows of one moment together: a GPU that is there already begins the next. If the log tells
    no time, `interval` seconds lie between."""
    start: datetime | None = None
    for count, rows in enumerate(_moments(lines)):
        at = next(iter(rows.values())).get("timestamp", "")
        now = moment(at)
        start = start or now
        seconds = (now - start).total_seconds() if now and start else count * interval
        gpus = tuple(GpuSample(index=index, **_told(rows[index])) for index in sorted(rows))
        yield Sample(at=at, seconds=max(0.0, seconds), gpus=gpus)


def _moments(lines: Iterable[str]) -> Iterator[dict[int, Row]]:
    """The rows of each moment, by GPU; a heading that comes again is passed over."""
    read = csv.reader(line.replace("\0", "") for line in lines)
    names: list[str] = []
    known: dict[str, int] = {}
    rows: dict[int, Row] = {}
    with contextlib.suppress(csv.Error):
        for cells in read:
            heading = headings(",".join(cells))
            names = heading or names
            if heading or not names or len(cells) < len(names):
                continue
            row = dict(zip(names, map(str.strip, cells), strict=False))
            of = next((row[name] for name in NAMED if name in row), "")
            index = int(of) if re.fullmatch(r"\d{1,4}", of) else known.setdefault(of, len(known))
            if index in rows:
                yield rows
                rows = {}
            rows[index] = row
    if rows:
        yield rows


def _told(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = {"throttle_reasons": throttle(row)}
    for field, names in NAMES.items():
        texts = (row[name] for name in names.split() if cell(row.get(name)))
        values = ((text if field in ("name", "uuid") else quantity(field, text)) for text in texts)
        told[field] = next((one for one in values if one is not None and can_be(field, one)), None)
    return {**told, "lost": any("lost" in text.lower() for text in row.values())}


def quantity(field: str, text: str) -> float | None:
    """
    >>> quantity("memory_used_bytes", "2 MiB"), quantity("utilization_percent", "97 %")
    (2097152, 97.0)
    """
    value = number(text)
    if value is None or not field.endswith(WHOLE):
        return value
    return round(value * MIB if field.endswith("_bytes") else value)


def throttle(row: Row) -> tuple[str, ...] | None:
    """From nvidia-smi's mask, or its columns of reasons."""
    found = {match[1]: text for name, text in row.items() if (match := REASON.match(name))}
    if "active" in found:
        return throttle_mask(found["active"])
    on = {name for name, text in found.items() if flag(text)}
    return tuple(name for _, name in THROTTLE_BITS if name in on) if found else None


def moment(text: str) -> datetime | None:
    """
    >>> moment("2026/11/20 06:03:41.500"), moment("x")
    (datetime.datetime(2026, 11, 20, 6, 3, 41, 500000), None)
    """
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text.replace("/", "-")).replace(tzinfo=None)
    return None
