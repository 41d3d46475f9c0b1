"""Logs of other monitors as samples. Pure: lines in, samples out.

Every log is rows of names and cells: CSV (`nvidia-smi --query-gpu=… --format=csv` with its heading)
or columns (`nvidia-smi dmon`, `dcgmi dmon`). One table says what the names mean. What a
log does not tell is None. Sources: `nvidia-smi --help-query-gpu`, the manual page of nvidia-smi
(dmon), the short names of DCGM's fields (dcgm_fields.cpp).
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import chain
from typing import Any, NamedTuple

from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.readings.measures import can_be
from gpusetup.readings.nvidia_smi import THROTTLE_BITS, flag, throttle_mask

Row = Mapping[str, str]
"""Heading -> cell, with the heading's unit behind it."""
Place = tuple[int, int]
"""The number of a GPU, and of its MIG instance; -1 is the whole GPU."""
UNITS = {
    "mw": 1e-3, "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9,
    **dict.fromkeys(("mib", "mb"), 1048576.0), **dict.fromkeys(("gib", "gb"), 1073741824.0),
}  # fmt: skip
"""Unit in a heading or a cell -> what a value is multiplied with; 1 if it is not here."""
MOST = 1e18
"""Nothing that is measured is larger, in base units."""
NAMES = {
    "utilization_percent": "utilization.gpu sm gputl gract",
    "memory_busy_percent": "utilization.memory mem mcutl drama",
    "memory_used_bytes": "memory.used fb fbusd",
    "memory_total_bytes": "memory.total fbttl",
    "memory_free_bytes": "fbfre",
    "temperature_celsius": "temperature.gpu gtemp temp tmptr",
    "power_watts": "power.draw power.draw.average power.draw.instant pwr power powinst",
    "power_limit_watts": "power.limit enforced.power.limit pmlmt",
    "power_limit_default_watts": "power.default_limit",
    "power_limit_max_watts": "power.max_limit",
    "clock_sm_mhz": "clocks.sm clocks.current.sm clocks.gr clocks.current.graphics pclk smclk",
    "clock_sm_max_mhz": "clocks.max.sm clocks.max.gr",
    "clock_memory_mhz": "clocks.mem clocks.current.memory mclk mmclk",
    "sm_active_percent": "smact",
    "pcie_rx_bytes_per_second": "rxpci pcirx",
    "pcie_tx_bytes_per_second": "txpci pcitx",
    "nvlink_rx_bytes_per_second": "nvlrx",
    "nvlink_tx_bytes_per_second": "nvltx",
}
"""Field -> its names in nvidia-smi's CSV, its dmon and DCGM's dmon."""
COLUMNS = {name: field for field, names in NAMES.items() for name in names.split()}
IN_UNITS = {
    **dict.fromkeys(("memory.used", "memory.total", "fb", "fbttl", "fbusd", "fbfre"), "mib"),
    **dict.fromkeys(("rxpci", "txpci"), "mb/s"),
}
"""The unit of a column if neither its heading nor its cells tell one. nvidia-smi's MB are MiB."""
SHARES = ("gract", "smact", "drama")
"""From 0 to 1; the others are percentages."""
WHOLE = ("_bytes", "_mhz")
"""How the names of whole numbers end."""
REASON = re.compile(r"clocks_(?:throttle|event)_reasons\.(\w+)$")
NAMED = ("index", "gpu", "uuid", "gpu_uuid", "pci.bus_id", "utilization.gpu")
"""One of these is in every heading of a CSV."""


class Line(NamedTuple):
    """What a log says of one GPU, or of a MIG instance, at one moment."""

    place: Place
    at: float | None
    """Seconds; the first is the start."""
    gpu: dict[str, Any]


def source_of(first: str) -> str | None:
    """Which log it is, by its first line that says something.

    >>> source_of("timestamp, index, utilization.gpu [%]"), source_of("# gpu  pwr  sm")
    ('nvidia-smi csv', 'nvidia-smi dmon')
    """
    words = first.lower().replace("#", " ").split()
    if first.lstrip().startswith("#"):
        told = {"entity": "dcgmi dmon", "gpu": "nvidia-smi dmon"}
        return next((told[name] for name in told if name in words and "pid" not in words), None)
    return "nvidia-smi csv" if {*NAMED} & {name for name, _ in headings(first)} else None


def samples(lines: Iterable[Line], interval: float) -> Iterator[Sample]:
    """Lines of one moment together: a GPU that is there already begins the next. If the log
    tells no time, `interval` seconds lie between."""
    start: float | None = None
    for number, group in enumerate(_moments(lines)):
        at = group[0].at
        start = at if start is None else start
        seconds = number * interval if at is None or start is None else max(0.0, at - start)
        yield Sample(
            at=in_words(at if at is not None and at > 1e8 else seconds),
            seconds=round(seconds, 3),
            gpus=tuple(_gpu(line) for line in sorted(group, key=lambda line: line.place)),
        )


def _moments(lines: Iterable[Line]) -> Iterator[list[Line]]:
    group: list[Line] = []
    for line in lines:
        if any(one.place == line.place for one in group):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _gpu(line: Line) -> GpuSample:
    told, (index, mig) = line.gpu, line.place
    used, free = told.get("memory_used_bytes", 0), told.pop("memory_free_bytes", None)
    if free is not None:
        told = {"memory_total_bytes": used + free, **told, "memory_used_bytes": used}
    return GpuSample(index=index, mig_index=None if mig < 0 else mig, **told)


def in_words(at: float) -> str:
    """
    >>> in_words(0.25)
    '1970-01-01T00:00:00.250Z'
    """
    moment = datetime.fromtimestamp(min(max(at, 0.0), 4e9), timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- rows -----------------------------------------------------------------------------------------


def read(lines: Iterable[str]) -> Iterator[Line]:
    """Each GPU of each row; a heading that comes again names no GPU."""
    first, lines = told_first(line.replace("\0", "") for line in lines)
    is_csv = not first.lstrip().startswith("#")
    names = headings(first) if is_csv else [(word, "") for word in columns(first)]
    known: dict[str, int] = {}
    lines = lines if is_csv else (line for line in lines if "#" not in line)
    with contextlib.suppress(csv.Error):
        for cells in csv.reader(lines) if is_csv else map(columns, lines):
            if len(cells) < len(names) or cells[0].strip().lower().startswith(names[0][0]):
                continue
            pairs = zip(names, cells, strict=False)
            row = {name: f"{cell.strip()} {unit}".strip() for (name, unit), cell in pairs}
            if place := _place(row, known):
                yield Line(place, _time(row), _told(row))


def headings(line: str) -> list[tuple[str, str]]:
    """The names and units of a CSV's first row.

    >>> headings(" memory.used [MiB],Index")
    [('memory.used', 'mib'), ('index', '')]
    """
    cells = (cell.partition("[") for cell in line.lower().replace("(", "[").split(","))
    return [(name.strip(), unit.strip(" \r\n)]")) for name, _, unit in cells]


def columns(line: str) -> list[str]:
    """The words of a row; an entity of DCGM (`GPU 0`, `GPU-I 3`) is one.

    >>> columns("#Entity   GPUTL"), columns("GPU 0     97"), columns("# gpu   pwr")
    (['entity', 'gputl'], ['gpu 0', '97'], ['gpu', 'pwr'])
    """
    words = re.findall(r"gpu(?:-i)? \d+|[^\s#,]+", line.lower())
    return [word for word in words if word != "id"]


def told_first(lines: Iterable[str]) -> tuple[str, Iterator[str]]:
    """The first line that says something, and all lines."""
    kept: list[str] = []
    iterator = iter(lines)
    for line in iterator:
        kept.append(line)
        if line.strip():
            return line, chain(kept, iterator)
    return "", iter(kept)


# --- what a row tells -----------------------------------------------------------------------------


def _place(row: Row, known: dict[str, int]) -> Place | None:
    """Of the GPU that DCGM names as its entity; else by its index, else by what else names it, in
    the order in which they come."""
    if entity := re.fullmatch(r"gpu(-i)? (\d{1,4})", row.get("entity", "")):
        number = int(entity[2])
        return (0, number) if entity[1] else (number, -1)
    for name in ("index", "gpu"):
        cell = row.get(name, "").partition(":")[0]
        if cell.isdecimal() and len(cell) < 5:
            return int(cell), -1
    if not any(name in row for name in NAMED):
        return None
    named = next((row[name] for name in ("uuid", "gpu_uuid", "pci.bus_id") if name in row), "")
    return known.setdefault(named, len(known)), -1


def _told(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = numbers(row)
    for name in ("name", "gpu_name", "uuid", "gpu_uuid"):
        if row.get(name):
            told[name.removeprefix("gpu_")] = row[name]
    if (reasons := throttle(row)) is not None:
        told["throttle_reasons"] = reasons
    return {**told, "lost": any("lost" in cell.lower() for cell in row.values())}


def quantity(cell: str, unit: str = "") -> float | None:
    """A cell's value in base units, with the first unit that it has or that its heading told.

    >>> quantity("97 %"), quantity("2 MiB mib"), quantity("3", "mb/s"), quantity("[N/A]")
    (97.0, 2097152.0, 3000000.0, None)
    """
    number = r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([a-z%/]*)\s*(?:\s[a-z%/]+)?"
    match = re.fullmatch(number, cell.lower())
    value = float(match[1]) * UNITS.get(match[2] or unit, 1.0) if match else MOST
    return value if abs(value) < MOST else None


def numbers(row: Row) -> dict[str, float]:
    """What `COLUMNS` knows of a row, the first column of a field."""
    told: dict[str, float] = {}
    for name, field in COLUMNS.items():
        value = quantity(row[name], IN_UNITS.get(name, "")) if name in row else None
        if value is not None and field not in told:
            exact = value * 100 if name in SHARES else value
            exact = round(exact) if field.endswith(WHOLE) else exact
            told |= {field: exact} if can_be(field, exact) else {}
    return told


def throttle(row: Row) -> tuple[str, ...] | None:
    """From nvidia-smi's mask, or its columns of reasons."""
    found = {match[1]: cell for name, cell in row.items() if (match := REASON.match(name))}
    if "active" in found:
        return throttle_mask(found["active"])
    on = {name for name, cell in found.items() if flag(cell)}
    return tuple(name for _, name in THROTTLE_BITS if name in on) if found else None


def _time(row: Row) -> float | None:
    """Seconds of a clock."""
    if re.fullmatch(r"\d\d:\d\d:\d\d", row.get("time", "")):
        return moment(f"{row.get('date', '20000101')} {row['time']}")
    return moment(row.get("timestamp", ""))


def moment(text: str) -> float | None:
    """
    >>> moment("2026/11/20 06:03:41.500"), moment("20261120 06:03:41"), moment("x")
    (1795154621.5, 1795154621.0, None)
    """
    dashed = re.sub(r"^(\d{4})/?(\d\d)/?(\d\d) ", r"\1-\2-\3 ", text).replace("Z", "+00:00")
    with contextlib.suppress(ValueError):
        told = datetime.fromisoformat(dashed)
        return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()
    return None
