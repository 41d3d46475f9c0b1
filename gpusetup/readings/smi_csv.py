"""The output of `nvidia-smi --query-gpu=… --format=csv`, with or without units.

All functions are pure: lines in, values out. Source of the column names: `nvidia-smi
--help-query-gpu`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpusetup.readings.nvidia_smi import (
    GPU_VALUES,
    Smi,
    dotted,
    flag,
    gpu_with,
    integer,
    memory,
    number,
)

MAX_ROWS = 256
"""The most rows that are read of one output: enough for 16 GPUs at 16 moments. `monitor --replay`
reads longer logs."""
COLUMNS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    column: (field, reader)
    for field, columns, _, reader in GPU_VALUES
    for column in columns.split()
}
"""A column -> the field of `Gpu` or of the monitor's samples, and the function that reads the
column's cells."""


def rate(text: str) -> float | None:
    """A cell in MB/s, in bytes per second; None if it has no value."""
    value = number(text)
    return None if value is None else value * 1e6


DMON_COLUMNS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "pwr": ("power_watts", number),
    "gtemp": ("temperature_celsius", integer),
    "sm": ("utilization_percent", integer),
    "mem": ("memory_busy_percent", number),
    "pclk": ("clock_sm_mhz", integer),
    "fb": ("memory_used_bytes", memory),
    "rxpci": ("pcie_rx_bytes_per_second", rate),
    "txpci": ("pcie_tx_bytes_per_second", rate),
    "dbecc": ("ecc_uncorrected", integer),
}
"""The same for the columns of `nvidia-smi dmon`, whose words are too common for a heading of CSV.
"""
DRIVER, PERSISTENCE, MOMENT, PROCESS = "driver_version", "persistence_mode", "timestamp", "pid"
OF_THE_QUERY = {*COLUMNS, DRIVER, PERSISTENCE}

# `memory.total [MiB]`.
HEADING_CELL = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*(?: \[[A-Za-z%]{1,5}\])?")
NAMED_GPU = re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN)\b.{1,60}")


def cells_of(line: str) -> list[str]:
    """The cells of a line, without surrounding spaces."""
    return [cell.strip() for cell in line.split(",")]


def heading_of(line: str) -> list[str]:
    """The column names in a heading, without units; empty for any other line.

    >>> heading_of("name, memory.total [MiB]"), heading_of("a name, a version")
    (['name', 'memory.total'], [])
    """
    cells = cells_of(line)
    if not all(map(HEADING_CELL.fullmatch, cells)):
        return []
    names = [cell.partition(" [")[0] for cell in cells]
    # A query of processes, which has a column `pid`, has some columns with the same names.
    return names if OF_THE_QUERY.intersection(names) and PROCESS not in names else []


def row_in(names: Sequence[str], line: str) -> dict[str, str] | None:
    """The cells of a line by column; None for a repeated heading or a line with another number of
    cells.

    >>> row_in(["index", "power.draw"], "0, [N/A]"), row_in(["index", "name"], "Thanks!")
    ({'index': '0', 'power.draw': '[N/A]'}, None)
    """
    cells = cells_of(line)
    if len(cells) != len(names) or heading_of(line) == names:
        return None
    return dict(zip(names, cells, strict=True))


def outputs_of(lines: Sequence[str]) -> Iterator[tuple[int, Smi]]:
    """Each output of `nvidia-smi --query-gpu` in a text, with the index of its heading."""
    index = 0
    while index < len(lines):
        names, below = heading_of(lines[index]), index + 1
        output = output_of(names, lines[below : below + MAX_ROWS]) if names else None
        if output is not None:
            rows, smi = output
            yield index, smi
            below += rows
        index = below


def values_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The values of a row by field, without those that it does not tell.

    >>> values_of({"power.draw": "[N/A]", "power.draw.instant": "72 W", "memory.used": "[N/A]"})
    {'power_watts': 72.0}
    """
    values: dict[str, Any] = {}
    for column, (field, read) in (*COLUMNS.items(), *DMON_COLUMNS.items()):
        value = read(row[column]) if column in row else None
        if value is not None:
            values.setdefault(field, value)
    return values


def output_of(names: Sequence[str], lines: Sequence[str]) -> tuple[int, Smi] | None:
    """The number of rows with these columns at the beginning of the lines, and their values; None
    if the first line is no such row.

    Of a log over time, the first moment counts.
    """
    rows: list[dict[str, str]] = []
    for line in lines:
        row = row_in(names, line)
        name = row and (row.get("name") or row.get("gpu_name"))
        # A sentence may have as many commas as a row, but no GPU's name in that place.
        if row is None or (name and not NAMED_GPU.fullmatch(name)):
            break
        rows.append(row)
    if not rows:
        return None
    of_first_moment = [row for row in rows if row.get(MOMENT) == rows[0].get(MOMENT)]
    # Without a column `index`, the GPUs are in the order of their indices.
    gpus = tuple(
        gpu_with({"nvml_index": index, **values_of(row)})
        for index, row in enumerate(of_first_moment)
    )
    # All GPUs have the same driver and the same persistence setting.
    driver, persistence = dotted(rows[0].get(DRIVER)), flag(rows[0].get(PERSISTENCE))
    return len(rows), Smi(driver_version=driver, gpus=gpus, persistence=persistence)
