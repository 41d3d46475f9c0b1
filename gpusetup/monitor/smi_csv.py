"""Reads rows of `nvidia-smi --query-gpu=… --format=csv` as samples. Pure functions.

A value that is missing from a row is None. Source of the column names: `nvidia-smi
--help-query-gpu`.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpusetup.model.units import MIB
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.monitor.links import pcie_limit
from gpusetup.monitor.samples_csv import host_of, tree_of
from gpusetup.monitor.sources import plausible
from gpusetup.readings.nvidia_smi import THROTTLE_BITS, cell, flag, number, throttle_mask
from gpusetup.readings.smi_csv import has_numbers

NAME = "nvidia-smi csv"
Row = Mapping[str, str]
"""Maps each heading to the cell."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "utilization_percent": ("utilization.gpu",),
    "memory_busy_percent": ("utilization.memory",),
    "memory_used_bytes": ("memory.used",),
    "memory_total_bytes": ("memory.total",),
    "temperature_celsius": ("temperature.gpu",),
    "power_watts": ("power.draw", "power.draw.average", "power.draw.instant"),
    "power_limit_watts": ("power.limit", "enforced.power.limit"),
    "power_limit_default_watts": ("power.default_limit",),
    "power_limit_max_watts": ("power.max_limit",),
    "clock_sm_mhz": ("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics"),
    "clock_sm_max_mhz": ("clocks.max.sm", "clocks.max.gr"),
    "pcie_rx_bytes_per_second": ("pcie.rx",),
    "pcie_tx_bytes_per_second": ("pcie.tx",),
    "pcie_generation": ("pcie.link.gen.current", "pcie.link.gen.gpucurrent"),
    "pcie_generation_max": ("pcie.link.gen.max",),
    "pcie_width": ("pcie.link.width.current",),
    "pcie_width_max": ("pcie.link.width.max",),
    "name": ("name", "gpu_name"),
    "uuid": ("uuid", "gpu_uuid"),
}
"""Maps each field to the names that its column may have; the first column with a value counts."""
IDENTITY_COLUMNS = ("index", "uuid", "gpu_uuid", "pci.bus_id")
"""The first of these columns that a row has identifies its GPU."""
GPU_COLUMNS = (*IDENTITY_COLUMNS, "utilization.gpu")
"""Every header line of such a log contains at least one of these columns."""


def headings(line: str) -> list[str]:
    """The column names of a log's header line, without units; [] if the line is not a header.

    >>> headings("Index, memory.used [MiB]"), headings("a, b")
    (['index', 'memory.used'], [])
    """
    names = []
    for column in line.lower().split(","):
        # The unit follows the name in brackets.
        name = column.partition("[")[0]
        names.append(name.strip())
    is_heading = not set(names).isdisjoint(GPU_COLUMNS)
    return names if is_heading else []


def samples(names: Sequence[str], lines: Iterable[str], interval: float) -> Iterator[Sample]:
    """Yields one sample for each moment of the log, `interval` seconds apart if the log has no
    timestamps."""
    start: datetime | None = None
    for count, rows in enumerate(rows_by_moment(names, lines)):
        first_row = next(iter(rows.values()))
        at = first_row.get("timestamp", "")
        time = time_of(at)
        start = start or time
        seconds = count * interval
        if time and start:
            seconds = (time - start).total_seconds()
        yield Sample(
            at=at,
            seconds=max(0.0, seconds),
            gpus=gpus_of(rows),
            tree=tree_of(first_row),
            host=host_of(first_row),
        )


def gpus_of(rows: Mapping[int, Row]) -> tuple[GpuSample, ...]:
    """The GPUs in the rows of one moment; a row without a GPU, from a machine that has none, is
    left out."""
    gpus = []
    for index, row in sorted(rows.items()):
        # `gpu_name` may be an index, a UUID or a bus address.
        if gpu_name(row):
            gpu = gpu_of(index, row)
            gpus.append(gpu)
    return tuple(gpus)


def rows_by_moment(names: Sequence[str], lines: Iterable[str]) -> Iterator[dict[int, Row]]:
    """Yields the rows of each moment by GPU index; a new moment begins when a GPU appears again.

    If no column identifies the GPUs, rows with the same time are different GPUs, in their order.
    """
    if not names_its_gpus(names):
        yield from rows_by_time(names, lines)
        return
    indices: dict[str, int] = {}
    moment: dict[int, Row] = {}
    for row in rows_of(names, lines):
        name = gpu_name(row)
        # UUIDs and bus addresses are numbered in the order in which they appear.
        if name not in indices:
            indices[name] = int(name) if name.isdecimal() else len(indices)
        index = indices[name]
        if index in moment:
            yield moment
            moment = {}
        moment[index] = row
    if moment:
        yield moment


ROWS_APART_SECONDS = 0.05
"""nvidia-smi writes a timestamp for each row, so the rows of one moment are some milliseconds
apart."""


def names_its_gpus(names: Sequence[str]) -> bool:
    """Whether a log with these columns identifies the GPU of each row."""
    return not set(names).isdisjoint(IDENTITY_COLUMNS)


def lacks_its_heading(line: str) -> bool:
    """Whether a line looks like a row of a log that was written with `noheader`.

    >>> lacks_its_heading("2026/11/20 06:03:41.500, 0, 97 %, 8123 MiB"), lacks_its_heading("a, b")
    (True, False)
    """
    cells = [text.strip() for text in line.split(",")]
    units = [text for text in cells if text.endswith((" %", " MiB", " W", " MHz"))]
    begins_with_a_time = time_of(cells[0]) is not None
    return len(cells) > 1 and (begins_with_a_time or len(units) > 0)


def rows_by_time(names: Sequence[str], lines: Iterable[str]) -> Iterator[dict[int, Row]]:
    """Yields the rows that directly follow each other in time, numbered in order. Without
    timestamps, each row is a moment."""
    moment: dict[int, Row] = {}
    last_time: datetime | None = None
    for row in rows_of(names, lines):
        time = time_of(row.get("timestamp", ""))
        is_same_moment = False
        if time and last_time:
            distance = abs((time - last_time).total_seconds())
            is_same_moment = distance < ROWS_APART_SECONDS
        if moment and not is_same_moment:
            yield moment
            moment = {}
        last_time = time
        moment[len(moment)] = row
    if moment:
        yield moment


def rows_of(names: Sequence[str], lines: Iterable[str]) -> Iterator[Row]:
    """Yields the rows of a log, without repeated headers and incomplete rows."""
    # Remove zero bytes, because a log that was interrupted by a crash may end with them.
    clean_lines = (line.replace("\0", "") for line in lines)
    reader = csv.DictReader(clean_lines, names)
    column_count = len(set(names))
    with contextlib.suppress(csv.Error):
        for cells in reader:
            row = {}
            for name, text in cells.items():
                # If a row has more cells than the heading, csv returns the surplus as a list.
                if isinstance(text, str):
                    row[name] = text.strip()
            is_cut_off = len(row) < column_count
            is_heading = bool(headings(gpu_name(row)))
            # Require numbers in the row, because below a pasted log a user may write a sentence
            # with just as many commas.
            if not is_cut_off and not is_heading and has_numbers(row):
                yield row


def gpu_name(row: Row) -> str:
    """The index, UUID or bus address of the GPU in a row; "" if the row has none."""
    for name in GPU_COLUMNS:
        if name in row:
            return row[name]
    return ""


def gpu_of(index: int, row: Row) -> GpuSample:
    """The sample of one GPU, read from its row."""
    values: dict[str, Any] = {}
    for field, names in COLUMNS.items():
        # The column's name depends on nvidia-smi's version; the first one with a value counts.
        texts = [cell(row.get(name)) for name in names]
        told = [text for text in texts if text]
        text = told[0] if told else None
        is_text = field in ("name", "uuid")
        values[field] = text if is_text else figure(field, text)
    values["ecc_uncorrected"] = uncorrected_errors(row)
    for field, names in FAULT_COLUMNS.items():
        values[field] = fault(row, names)
    values["pcie_limit_bytes_per_second"] = pcie_limit(
        values["pcie_generation"], values["pcie_width"]
    )
    # For a GPU that fell off the bus, nvidia-smi prints `[GPU is lost]` in the cells.
    says_lost = any("lost" in text.lower() for text in row.values())
    is_lost = says_lost or answers_nothing(row)
    reasons_told = reasons(row)
    sample = GpuSample(index=index, throttle_reasons=reasons_told, lost=is_lost, **values)
    return plausible(sample)


LIVE_FIELDS = ("utilization_percent", "memory_used_bytes", "temperature_celsius", "power_watts")
"""Fields that the driver reads from the card each time, whereas it may remember a name or a maximum
clock."""


def answers_nothing(row: Row) -> bool:
    """Whether every live value of a GPU is `[Unknown Error]`, which means that the card no longer
    responds.

    A working card may have this in a single column, such as the power on some laptops.
    """
    texts = []
    for field in LIVE_FIELDS:
        texts += [row[name].lower() for name in COLUMNS[field] if name in row]
    unanswered = [text for text in texts if "unknown error" in text]
    return len(texts) > 1 and len(unanswered) == len(texts)


def figure(field: str, text: str | None) -> float | None:
    """
    >>> figure("memory_used_bytes", "2 MiB"), figure("utilization_percent", "97 %")
    (2097152, 97.0)
    """
    value = number(text)
    if value is None:
        return None
    if field.endswith("_bytes"):
        return round(value * MIB)
    if field.endswith("_bytes_per_second"):
        return value * 1e6  # MB/s, of our own `--csv`
    is_whole_number = field.endswith("_mhz") or field.startswith(("pcie_generation", "pcie_width"))
    return round(value) if is_whole_number else value


UNCORRECTED = ("ecc.errors.uncorrected.volatile.", "ecc.errors.uncorrected.aggregate.")
"""Errors since the driver was loaded, and over the card's whole life; both counts show new errors.
"""


def uncorrected_errors(row: Row) -> int | None:
    """The number of uncorrectable memory errors since the driver was loaded or, if that is missing,
    over the card's life; None if no column reports it."""
    for prefix in UNCORRECTED:
        counts: dict[str, float] = {}
        for name, text in row.items():
            count = number(text) if name.startswith(prefix) else None
            if count is not None:
                counts[name] = count
        if counts:
            total = counts.get(f"{prefix}total")
            # Without a total, add up the errors of all kinds of memory.
            return round(sum(counts.values()) if total is None else total)
    return None


FAULT_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "retired_pending": ("remapped_rows.pending", "retired_pages.pending"),
    "remap_failed": ("remapped_rows.failure",),
}


def fault(row: Row, names: Sequence[str]) -> bool | None:
    """Whether one of these columns contains a yes or 1; None if all of them are empty."""
    answers = []
    for name in names:
        text = cell(row.get(name))
        if text is not None:
            answers.append(flag(text) or text == "1")
    return any(answers) if answers else None


def reasons(row: Row) -> tuple[str, ...] | None:
    """The names of the active throttle reasons; None if the row has no column for them."""
    cells = {}
    for name, text in row.items():
        # The column is `clocks_throttle_reasons.active`, or `clocks_event_reasons.active` since
        # driver 535.
        if "_reasons." in name:
            cells[name.rpartition(".")[2]] = text
    if "active" in cells:
        return throttle_mask(cells["active"])
    if cells:
        # `[Not Supported]` in all columns means that this card reports no reasons.
        if not any(map(cell, cells.values())):
            return None
        active = [name for _, name in THROTTLE_BITS if flag(cells.get(name))]
        return tuple(active)
    # Our own `--csv` writes the reasons' names.
    names = row.get("throttle reasons")
    return None if names is None else tuple(names.split())


def time_of(text: str) -> datetime | None:
    """The timestamp of a row, without a time zone; None if the text is not a time.

    >>> time_of("2026/11/20 06:03:41.500"), time_of("x")
    (datetime.datetime(2026, 11, 20, 6, 3, 41, 500000), None)
    """
    # nvidia-smi writes the date with slashes; our own `--csv` uses dashes and a final `Z`.
    iso_text = text.replace("/", "-").rstrip("Z")
    try:
        time = datetime.fromisoformat(iso_text)
    except ValueError:
        return None
    return time.replace(tzinfo=None)
