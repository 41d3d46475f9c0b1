"""Recordings read back: ours, and logs of `nvidia-smi --query-gpu=… --format=csv` with a heading.

What a log does not tell is None. Source of its names: `nvidia-smi --help-query-gpu`.
"""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import TextIOWrapper
from itertools import chain
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import Frozen
from gpusetup.model.units import MIB
from gpusetup.monitor.documents import GpuSample, Sample, Summary
from gpusetup.monitor.nvml import plausible
from gpusetup.readings.nvidia_smi import THROTTLE_BITS, cell, flag, number, throttle_mask

SCHEMA, CSV = "gpusetup.monitor/1", "nvidia-smi csv"
FORMAT_HINT = (
    "a log of nvidia-smi needs --format=csv and its heading; for nvidia-smi's table or a "
    "program's output use `gpusetup doctor --report FILE`"
)
Row = Mapping[str, str]
"""Heading -> cell."""
COLUMNS = {
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
GPU_COLUMNS = ("index", "uuid", "gpu_uuid", "pci.bus_id", "utilization.gpu")
"""One of these is in every heading; the first that a row has says which GPU it is about."""


class RecordedRun(Frozen):
    """A recording: where it comes from, whether its times are assumed, and its documents."""

    source: str | None = None
    has_times: bool = True
    documents: Iterable[Any]


def read_recording(path: str, interval: float = 1.0) -> RecordedRun:
    """A recording, read while it is asked for.

    `interval`: seconds between the samples of a log that tells no time. A last line that is cut
    off is left out.
    """
    lines = _lines(path)
    first = next(lines, "")
    if names := headings(first):
        read = samples(names, lines, interval)
        return RecordedRun(source=CSV, has_times="timestamp" in names, documents=read)
    return RecordedRun(documents=_documents(path, chain([first], lines)))


def _lines(path: str) -> Iterator[str]:
    try:
        with named_file.opened(path) as file:
            encoding = named_file.encoding_of(file.read(named_file.SAMPLE))
        with TextIOWrapper(named_file.opened(path), encoding=encoding) as file:
            yield from file
    except OSError as problem:
        raise BadInput(f"Cannot read {path}: {problem.strerror}") from problem
    except UnicodeError as problem:
        raise BadInput(f"{path} is not UTF-8 text: {problem}") from problem


def _documents(path: str, lines: Iterable[str]) -> Iterator[Sample | Summary]:
    for place, line in enumerate(lines, 1):
        where = f"{path}, line {place}"
        try:
            plain = json.loads(line) if line.strip() else None
        except ValueError as problem:
            if not line.endswith("\n"):
                return  # the recorder was killed in the middle of it
            raise BadInput(f"{where} is no JSON: {problem}", hint=FORMAT_HINT) from problem
        if plain is not None:
            yield _document(plain, where)


def _document(plain: Any, where: str) -> Sample | Summary:
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        hint = f"it is {schema or 'something else'}; this version reads {SCHEMA}"
        raise BadInput(f"{where} is no sample of `gpusetup monitor --json`", hint=hint)
    kind: Any = Summary if plain.get("kind") == "summary" else Sample
    read: Sample | Summary = from_plain(plain, kind, what=where)
    return read


# --- logs of nvidia-smi ---------------------------------------------------------------------------


def headings(line: str) -> list[str]:
    """The columns of a log; [] if the line is not its heading.

    >>> headings("Index, memory.used [MiB]"), headings("a, b")
    (['index', 'memory.used'], [])
    """
    names = [one.partition("[")[0].strip() for one in line.lower().split(",")]
    return names if {*GPU_COLUMNS} & {*names} else []


def samples(names: Sequence[str], lines: Iterable[str], interval: float) -> Iterator[Sample]:
    """The rows of each moment together; `interval` seconds apart if the log tells no time."""
    start: datetime | None = None
    for count, rows in enumerate(_rows_by_moment(names, lines)):
        at = next(iter(rows.values())).get("timestamp", "")
        now = time_of(at)
        start = start or now
        seconds = (now - start).total_seconds() if now and start else count * interval
        gpus = tuple(_gpu(index, rows[index]) for index in sorted(rows))
        yield Sample(at=at, seconds=max(0.0, seconds), gpus=gpus)


def _rows_by_moment(names: Sequence[str], lines: Iterable[str]) -> Iterator[dict[int, Row]]:
    """The rows of each moment by GPU: one that is there already begins the next. A heading that
    comes again, and a row that is cut off, are passed over."""
    indices: dict[str, int] = {}
    rows: dict[int, Row] = {}
    read = csv.DictReader((line.replace("\0", "") for line in lines), names)
    with contextlib.suppress(csv.Error):
        for cells in read:
            row = {name: text.strip() for name, text in cells.items() if isinstance(text, str)}
            gpu_name = next((row[name] for name in GPU_COLUMNS if name in row), "")
            if len(row) < len({*names}) or headings(gpu_name):
                continue
            index = indices.setdefault(
                gpu_name, int(gpu_name) if gpu_name.isdecimal() else len(indices)
            )
            if index in rows:
                yield rows
                rows = {}
            rows[index] = row
    if rows:
        yield rows


def _gpu(index: int, row: Row) -> GpuSample:
    fields: dict[str, Any] = {
        field: next(filter(None, (cell(row.get(name)) for name in names.split())), None)
        for field, names in COLUMNS.items()
    }
    fields |= {
        field: _figure(field, fields[field]) for field in fields if field not in ("name", "uuid")
    }
    lost = any("lost" in text.lower() for text in row.values())
    return plausible(GpuSample(index=index, throttle_reasons=_reasons(row), lost=lost, **fields))


def _figure(field: str, text: str | None) -> float | None:
    """
    >>> _figure("memory_used_bytes", "2 MiB"), _figure("utilization_percent", "97 %")
    (2097152, 97.0)
    """
    value = number(text)
    if value is None or not field.endswith(("_bytes", "_mhz")):
        return value
    return round(value * MIB if field.endswith("_bytes") else value)


def _reasons(row: Row) -> tuple[str, ...] | None:
    """From nvidia-smi's mask, or its columns of reasons."""
    found = {name.rpartition(".")[2]: text for name, text in row.items() if "_reasons." in name}
    if "active" in found:
        return throttle_mask(found["active"])
    return tuple(name for _, name in THROTTLE_BITS if flag(found.get(name))) if found else None


def time_of(text: str) -> datetime | None:
    """
    >>> time_of("2026/11/20 06:03:41.500"), time_of("x")
    (datetime.datetime(2026, 11, 20, 6, 3, 41, 500000), None)
    """
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text.replace("/", "-")).replace(tzinfo=None)
    return None
