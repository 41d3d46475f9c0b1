"""The output of `nvidia-smi --query-gpu=… --format=csv`, with or without units.

All functions are pure: lines in, values out. Source of the column names: `nvidia-smi
--help-query-gpu`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpusetup.model.frozen import fields as fields_of
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.readings.nvidia_smi import (
    Smi,
    cell,
    compute_mode,
    dotted,
    driver_model,
    flag,
    integer,
    memory,
    number,
    recovery_action,
    throttle_mask,
)
from gpusetup.readings.sources import UNNAMED

MAX_ROWS = 256
"""The most rows that are read of one output: enough for 16 GPUs at 16 moments. `monitor --replay`
reads longer logs."""

MAX_OUTPUTS = 8
"""The most outputs that are read of one text. A forum thread shows a few, and a log with a thousand
outputs adds nothing."""

Reader = Callable[[str], Any]


def capability(text: str) -> Capability | None:
    """
    >>> str(capability("8.9")), capability("[N/A]")
    ('8.9', None)
    """
    version = cell(text) or ""
    if re.fullmatch(r"\d{1,2}\.\d", version) is None:
        return None
    return Capability.parse(version)


def fault(text: str) -> bool | None:
    """Whether a cell contains a yes or a count of faults; None if it contains no value."""
    count = integer(text)
    return flag(text) if count is None else count > 0


COLUMNS: Mapping[str, tuple[str, Reader]] = {
    "index": ("nvml_index", integer),
    **dict.fromkeys(("name", "gpu_name"), ("name", cell)),
    **dict.fromkeys(("uuid", "gpu_uuid"), ("uuid", cell)),
    **dict.fromkeys(("pci.bus_id", "gpu_bus_id"), ("pci_bus_id", cell)),
    "compute_cap": ("compute_capability", capability),
    "memory.total": ("memory_total_bytes", memory),
    "memory.used": ("memory_used_bytes", memory),
    "utilization.gpu": ("utilization_percent", integer),
    "utilization.memory": ("memory_busy_percent", number),
    "temperature.gpu": ("temperature_celsius", integer),
    **dict.fromkeys(
        ("power.draw", "power.draw.average", "power.draw.instant"), ("power_watts", number)
    ),
    **dict.fromkeys(("power.limit", "enforced.power.limit"), ("power_limit_watts", number)),
    "power.default_limit": ("power_limit_default_watts", number),
    **dict.fromkeys(
        ("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics"),
        ("clock_sm_mhz", integer),
    ),
    **dict.fromkeys(("clocks.max.sm", "clocks.max.gr"), ("clock_sm_max_mhz", integer)),
    **dict.fromkeys(
        ("pcie.link.gen.current", "pcie.link.gen.gpucurrent"), ("pcie_generation", integer)
    ),
    **dict.fromkeys(
        ("pcie.link.gen.max", "pcie.link.gen.gpumax"), ("pcie_generation_max", integer)
    ),
    "pcie.link.width.current": ("pcie_width", integer),
    "pcie.link.width.max": ("pcie_width_max", integer),
    "mig.mode.current": ("mig_enabled", flag),
    "compute_mode": ("compute_mode", compute_mode),
    "ecc.mode.current": ("ecc_enabled", flag),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", integer),
    **dict.fromkeys(("remapped_rows.pending", "retired_pages.pending"), ("retired_pending", fault)),
    "remapped_rows.failure": ("remap_failed", fault),
    "driver_model.current": ("driver_model", driver_model),
    "vbios_version": ("vbios_version", cell),
    "gpu_recovery_action": ("recovery_action", recovery_action),
    **dict.fromkeys(
        ("clocks_throttle_reasons.active", "clocks_event_reasons.active"),
        ("throttle_reasons", throttle_mask),
    ),
}
"""A column -> the field of `Gpu` or of the monitor's samples, and the function that reads the
column's cells. If a field has several columns, the first one with a value counts."""

DRIVER, PERSISTENCE, MOMENT, PROCESS = "driver_version", "persistence_mode", "timestamp", "pid"
OF_THE_QUERY = {*COLUMNS, DRIVER, PERSISTENCE}

HEADING_CELL = lazy(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*(?: \[[A-Za-z%]{1,5}\])?")
NAMED_GPU = lazy(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN)\b.{1,60}")


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
    # A query of processes has some columns with the same names.
    return names if OF_THE_QUERY.intersection(names) and PROCESS not in names else []


OF_NUMBERS = re.compile(
    r"index|count|utilization\.|temperature|memory\.|power\.(?!management)|clocks\.(?!_)(?!event)"
    r"|fan\.speed|ecc\.errors|pcie\."
)
"""The beginnings of the names of columns that contain numbers."""
NUMBER = re.compile(r"-?\d|\[|N/A|ERR|Unknown|Not |GPU |$", re.IGNORECASE)
"""The beginning of a number, or of nvidia-smi's words for a missing number: `[Not Supported]`, `GPU
is lost`."""


def has_numbers(row: Mapping[str, str]) -> bool:
    """Whether each column for numbers contains a number or nvidia-smi's reason why there is none.

    >>> has_numbers({"index": "0", "power.draw": "[N/A]"}), has_numbers({"index": "Any ideas"})
    (True, False)
    """
    return not any(OF_NUMBERS.match(name) and not NUMBER.match(text) for name, text in row.items())


MEASURED = ("utilization_percent", "memory_used_bytes", "power_watts", "throttle_reasons")
"""Fields that change from moment to moment. `gpusetup monitor --replay` reads logs of them."""


def outputs_of(lines: Sequence[str]) -> Iterator[tuple[int, Smi]]:
    """Each output of `nvidia-smi --query-gpu` in a text, with the index of its first
    line."""
    first_unread = seen = 0
    for index, line in enumerate(lines):
        if index < first_unread or seen == MAX_OUTPUTS:
            continue
        names, first = heading_of(line), index + 1
        output = output_of(names, lines[first : first + MAX_ROWS]) if names else None
        if output is not None:
            seen += 1
            first_unread = first + output[0]
            yield index, output[1]


def values_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The values of a row by field, without those that it does not tell.

    >>> values_of({"power.draw": "[N/A]", "power.draw.instant": "72 W", "memory.used": "[N/A]"})
    {'power_watts': 72.0}
    """
    values: dict[str, Any] = {}
    for column, (field, read) in COLUMNS.items():
        value = read(row[column]) if column in row else None
        if value is not None:
            values.setdefault(field, value)
    return values


def output_of(names: Sequence[str], lines: Sequence[str]) -> tuple[int, Smi] | None:
    """The number of rows with these columns at the beginning of the lines, and their values; None
    if the first line is no such row.

    If the output is a log over time, measurements that change from moment to moment are left out.
    """
    rows: list[dict[str, str]] = []
    for line in lines:
        row = dict(zip(names, cells_of(line), strict=False))
        # A sentence may have as many commas as a row, and a repeated heading begins another output.
        is_row = line.count(",") + 1 == len(names) and heading_of(line) != names
        name = row.get("name") or row.get("gpu_name")
        if not is_row or not has_numbers(row) or (name and not NAMED_GPU.fullmatch(name)):
            break
        rows.append(row)
    if not rows:
        return None
    of_first_moment = [row for row in rows if row.get(MOMENT) == rows[0].get(MOMENT)]
    is_a_log = len(of_first_moment) < len(rows)
    # A log covers many moments, so its measurements do not show the GPU's state now.
    left_out = MEASURED if is_a_log else ()
    gpus = []
    # Some columns are only for the monitor's samples.
    kept = {field.name for field in fields_of(Gpu)}.difference(left_out)
    for place, row in enumerate(of_first_moment):
        values = {field: value for field, value in values_of(row).items() if field in kept}
        # Without a column `index`, the GPUs are in the order of their indices.
        gpus.append(Gpu(**{"nvml_index": place, "name": UNNAMED, **values}))
    # All GPUs have the same driver and the same persistence setting.
    driver, persistence = dotted(rows[0].get(DRIVER)), flag(rows[0].get(PERSISTENCE))
    return len(rows), Smi(driver_version=driver, gpus=tuple(gpus), persistence=persistence)
