"""Reads what `nvidia-smi` printed as samples: a log of `--query-gpu=… --format=csv`, the table, the
long output (`-q`) and `dmon`, each with one moment or many. Pure functions.

`gpusetup.readings` reads the values of a row, a table or a page; this module finds the moments.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from gpusetup.child_scripts.nvml_fields import THROTTLE_REASONS
from gpusetup.model.frozen import fields
from gpusetup.model.machine import GpuProcess
from gpusetup.monitor.documents import GpuSample, ProcessUse, Sample
from gpusetup.monitor.sources import plausible
from gpusetup.monitor.throttling import POWER_VIOLATION, THERMAL_VIOLATION
from gpusetup.monitor.work import at_least
from gpusetup.readings.nvidia_smi import (
    GPU_HEAD,
    SMI_VERSION,
    cell,
    flag,
    gpu_rows,
    number,
    processes_of,
    query_values,
    row_of,
    says_lost,
)
from gpusetup.readings.smi_csv import COLUMNS, heading_of, row_in, values_of

MOST_LINES_OF_A_MOMENT = 20_000
"""How many lines of a moment are read; `-q` prints about 6,000 for 16 GPUs."""
LoggedMoment = tuple[datetime | None, tuple[GpuSample, ...]]
"""The GPUs at one time, which is None if the output does not tell it."""
LOST = re.compile(
    r"unable to determine the device handle for gpu\s*(?:(?P<index>\d{1,3})\s*:\s)?"
    r"|failed to initialize nvml: .*(?:unknown error|gpu is lost)",
    re.I,
)
"""Matches `GPU1: 0000:A1:00.0: …` or, from older drivers, `GPU 0000:A1:00.0: …`. After `failed to
initialize`, other endings, such as a version mismatch, do not show a faulty GPU."""
LONGEST_PROBLEM = 200
"""How many characters of such a line are shown."""


class SmiLog(NamedTuple):
    """One form of the output of nvidia-smi."""

    name: str
    moments: Callable[[Iterable[str]], Iterator[LoggedMoment]]

    def samples(self, lines: Iterable[str], interval: float) -> Iterator[Sample]:
        """Yields a sample for each moment, at its own time or, if that is missing or not later than
        the previous one (a clock that was set back), `interval` seconds after it.

        If the last line says that nvidia-smi can no longer read a GPU, one more sample has the GPUs
        that are lost.
        """
        last_line = ""
        seen: dict[int, GpuSample] = {}
        start: datetime | None = None
        # So that the first moment is at second 0.
        seconds = -interval

        # `moments` uses the lines up, so the last one is remembered on the way.
        def lines_with_last_remembered() -> Iterator[str]:
            nonlocal last_line
            for line in lines:
                last_line = line if line.strip() else last_line
                yield line

        for time, gpus in self.moments(lines_with_last_remembered()):
            # For example a table that lists no GPU.
            if not gpus:
                continue
            start = start or time
            # A moment without a time counts as one that is not later than the previous one.
            since_start = (time - start).total_seconds() if time and start else -math.inf
            seconds = since_start if since_start > seconds else seconds + interval
            seen |= {gpu.index: gpu for gpu in gpus}
            yield Sample(at=time.isoformat() if time else "", seconds=seconds, gpus=gpus)
        lost = lost_gpus(last_line, seen)
        if lost:
            yield Sample(at="", seconds=seconds + interval, gpus=lost)


def lost_gpus(line: str, seen: Mapping[int, GpuSample]) -> tuple[GpuSample, ...]:
    """The GPUs that a line of nvidia-smi reports as lost: the one that it names, otherwise all that
    were seen before (by index); none if it reports no loss."""
    loss = LOST.search(line)
    if loss is None:
        return ()
    problem = line.strip()[:LONGEST_PROBLEM]
    lost = []
    for index in sorted(seen) if loss["index"] is None else [int(loss["index"])]:
        known = seen.get(index, GpuSample(index=index))
        lost.append(
            GpuSample(index=index, name=known.name, uuid=known.uuid, lost=True, problem=problem)
        )
    return tuple(lost)


def log_that_begins(line: str) -> SmiLog | None:
    """The form of nvidia-smi's output that begins with this line; None if none does."""
    columns = heading_of(line)
    if columns:
        return SmiLog(CSV, lambda lines: moments_of_rows(csv_rows(columns, lines)))
    if dmon_columns(line):
        return SmiLog("nvidia-smi dmon", lambda lines: moments_of_rows(dmon_rows(lines)))
    if BEGINS_QUERY.search(line):
        return SmiLog("nvidia-smi -q", query_moments)
    # The banner may be missing, so a row of the table is a beginning too.
    if SMI_VERSION.search(line) or ("|" in line and row_of(line)):
        return SmiLog("nvidia-smi table", table_moments)
    return None


SAMPLE_FIELDS = {field.name for field in fields(GpuSample)}


def sample_of(index: int, values: Mapping[str, Any]) -> GpuSample:
    """The sample with these values, as far as a sample has them."""
    of_a_sample = {name: values[name] for name in SAMPLE_FIELDS & values.keys()}
    faults = [words.format(values[name]) for name, words in FAULTS.items() if values.get(name)]
    of_a_sample |= {
        "index": index,
        "fault": ", ".join(faults) or None,
        # Unknown counts as not lost.
        "lost": bool(values.get("lost")),
    }
    return plausible(GpuSample(**of_a_sample))


FAULTS: Mapping[str, str] = {
    "ecc_uncorrected": "uncorrectable ECC errors since the driver was loaded: {}",
    "retired_pending": "a repair of its memory (remapped rows, retired pages) is pending",
    "remap_failed": "a repair of its memory failed",
    "sram_threshold_exceeded": "more errors in its SRAM than the maker allows",
}
"""Fields that show faulty memory, each with what to say about it."""


# --- rows: CSV and dmon ---------------------------------------------------------------------------

CSV = "nvidia-smi CSV"
IDENTITY_COLUMNS = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu")
"""The first of these columns that a row has identifies its GPU; `gpu` is a column of dmon."""
Row = Mapping[str, str]
"""The cells of a line by column."""


def moments_of_rows(rows: Iterable[Row]) -> Iterator[LoggedMoment]:
    """Yields the moments of a log with one row for each GPU. A row without a GPU, from a machine
    that has none, is left out."""
    for row_of_gpu in rows_by_moment(rows):
        time = time_of(next(iter(row_of_gpu.values())))
        gpus = []
        for index, row in sorted(row_of_gpu.items()):
            if gpu_name(row):
                gpus.append(gpu_in_row(index, row))
        yield time, tuple(gpus)


ROWS_APART_SECONDS = 0.05
"""nvidia-smi writes a time for each row, so the rows of one moment are a few ms apart."""


def rows_by_moment(rows: Iterable[Row]) -> Iterator[dict[int, Row]]:
    """Yields the rows of each moment by GPU index; a new moment begins when a GPU appears again.

    If no column identifies the GPUs, rows with the same time are different GPUs, in their order.
    """
    indices: dict[str, int] = {}
    moment: dict[int, Row] = {}
    last_time: datetime | None = None
    for row in rows:
        if not row.keys().isdisjoint(IDENTITY_COLUMNS):
            name = gpu_name(row)
            # UUIDs and bus addresses are numbered in the order in which they appear.
            index = indices.setdefault(name, int(name) if name.isdecimal() else len(indices))
            begins_moment = index in moment
        else:
            time = time_of(row)
            # Without a time, each row begins another moment.
            begins_moment = True
            if time and last_time:
                begins_moment = abs((time - last_time).total_seconds()) >= ROWS_APART_SECONDS
            last_time = time
            index = 0 if begins_moment else len(moment)
        if moment and begins_moment:
            yield moment
            moment = {}
        moment[index] = row
    if moment:
        yield moment


def csv_rows(names: Sequence[str], lines: Iterable[str]) -> Iterator[Row]:
    """Yields the rows of a log with these columns, without repeated headings and partial rows."""
    for line in lines:
        # A log that was interrupted by a crash may end with zero bytes.
        row = row_in(names, line.replace("\0", ""))
        if row is not None:
            yield row


def dmon_columns(line: str) -> list[str]:
    """The column names in a heading of dmon, which dmon repeats regularly; [] for other lines.

    >>> dmon_columns("# gpu    pwr  gtemp"), dmon_columns("# Idx      W      C")
    (['gpu', 'pwr', 'gtemp'], [])
    """
    names = line.replace("#", " ").lower().split()
    # The second heading contains the units, but not the word `gpu`.
    return names if line.lstrip().startswith("#") and "gpu" in names else []


def dmon_rows(lines: Iterable[str]) -> Iterator[Row]:
    """Yields the rows of `nvidia-smi dmon`, without its headings and what a shell printed."""
    names: list[str] = []
    for line in lines:
        columns = dmon_columns(line)
        names = columns or names
        row = dict(zip(names, line.split(), strict=False))
        if not columns and row.get("gpu", "").isdecimal():
            yield row


def gpu_name(row: Row) -> str:
    """The index, UUID or bus address of the GPU in a row; "" if the row has none."""
    return next((row[name] for name in IDENTITY_COLUMNS if name in row), "")


LIVE_FIELDS = ("utilization_percent", "memory_used_bytes", "temperature_celsius", "power_watts")
"""Fields that the driver reads from the card each time; it may remember a name or maximum clock."""
VIOLATIONS: Mapping[str, tuple[str, float]] = {
    "tviol": (THERMAL_VIOLATION, 1),
    "pviol": (POWER_VIOLATION, 50),
}
"""Maps each column of `nvidia-smi dmon -s v` to the throttle reason and to the value from which the
reason counts. `tviol` is 0 or 1; `pviol` is a percentage of the time, which is slightly above 0
even for a card at its rated power."""


def gpu_in_row(index: int, row: Row) -> GpuSample:
    """The sample of the GPU in a row; lost if nvidia-smi says so, or cannot read 2 LIVE_FIELDS."""
    values = values_of(row)
    # Most logs have all reasons in one column, which `values_of` has read.
    values.setdefault("throttle_reasons", reasons_in_columns(row))
    # For a GPU that fell off the bus, nvidia-smi prints `[GPU is lost]` in the cells, or
    # `[Unknown Error]` in those that it reads from the card. A working card may have this for a
    # single value, such as the power on some laptops.
    unanswered = [name for name in row if NO_ANSWER.search(row[name])]
    fields_of_columns = {COLUMNS[name][0] for name in unanswered if name in COLUMNS}
    answers_little = len(fields_of_columns.intersection(LIVE_FIELDS)) > 1
    values["lost"] = answers_little or any(map(says_lost, row.values()))
    return sample_of(index, values)


def reasons_in_columns(row: Row) -> tuple[str, ...] | None:
    """The throttle reasons of a row with a column for each; None if it reports none of them."""
    # A row of dmon has no reasons but these.
    violations = {name: number(row.get(name)) for name in VIOLATIONS}
    if any(value is not None for value in violations.values()):
        columns = VIOLATIONS.items()
        return tuple(
            reason for column, (reason, least) in columns if at_least(violations[column], least)
        )
    # `clocks_event_reasons.sw_power_cap`; `clocks_throttle_reasons.…` before driver 535.
    active = {name.rpartition(".")[2]: text for name, text in row.items() if "_reasons." in name}
    # `[Not Supported]` in all of them means that this card reports none.
    if not any(map(cell, active.values())):
        return None
    return tuple(name for name in THROTTLE_REASONS if flag(active.get(name)))


NO_ANSWER = re.compile(r"unknown error|ERR!", re.I)


def time_of(row: Row) -> datetime | None:
    """The time of a row, without a time zone; None if the row has none. The columns of dmon are
    those of `-o DT` (`20251120`, `06:03:41`), or of `-o T`, where only the time between rows is
    known; the column of the time may have its unit's name.

    >>> time_of({"timestamp": "2026/11/20 06:03:41.500"}), time_of({"time": "06:03:41"})
    (datetime.datetime(2026, 11, 20, 6, 3, 41, 500000), datetime.datetime(2000, 1, 1, 6, 3, 41))
    """
    with contextlib.suppress(ValueError):  # also for a row without a time, which reads as `None`
        if "timestamp" in row:
            # nvidia-smi writes the date with slashes.
            return datetime.fromisoformat(row["timestamp"].replace("/", "-")).replace(tzinfo=None)
        day, hour = row.get("date", "20000101"), row.get("time", row.get("hh:mm:ss"))
        return datetime.strptime(f"{day} {hour}", "%Y%m%d %H:%M:%S")
    return None


# --- the table and the long output ----------------------------------------------------------------

SMI_DATE = re.compile(
    r"(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2})\s+(\d{1,2})\s+(\d{1,2}:\d\d:\d\d)\s+(?:[AP]M )?(\d{4})"
)


def date_of(line: str) -> datetime | None:
    """The date and time in a line of nvidia-smi's table or long output; None if it contains none.

    >>> date_of("Thu Nov 20 06:03:41 2025"), date_of("Timestamp  : Thu Nov  6 06:03:41 2025")
    (datetime.datetime(2025, 11, 20, 6, 3, 41), datetime.datetime(2025, 11, 6, 6, 3, 41))
    """
    match = SMI_DATE.search(line)
    with contextlib.suppress(ValueError):
        return match and datetime.strptime(" ".join(match.groups()), "%b %d %H:%M:%S %Y")
    return None


BEGINS_QUERY = re.compile("NVSMI LOG")


def texts_of_moments(
    lines: Iterable[str], begins: re.Pattern[str]
) -> Iterator[tuple[datetime | None, str]]:
    """Yields the text of each moment with its time; `begins` recognises the first line of a moment,
    below which (in `-q`) or above which (in the table, as a line of its own) is the time. A text
    may lack its first line, as in a table without its banner."""
    moment: list[str] = []
    time: datetime | None = None
    has_begun = False
    for line in lines:
        is_first = begins.search(line) is not None
        date = date_of(line)
        # A line that begins with a date stands above the next table.
        if has_begun and (is_first or (date and SMI_DATE.match(line))):
            yield time, "".join(moment)
            moment, time, has_begun = [], None, False
        has_begun = has_begun or is_first
        time = time or date
        if len(moment) < MOST_LINES_OF_A_MOMENT:
            moment.append(line)
    if moment:
        yield time, "".join(moment)


def table_moments(lines: Iterable[str]) -> Iterator[LoggedMoment]:
    """Yields the moments of a single table, or of all tables that `nvidia-smi -l` printed."""
    for time, text in texts_of_moments(lines, SMI_VERSION):
        processes = processes_of(text) or {}
        gpus = []
        for row in gpu_rows(text):
            index = row["nvml_index"]
            gpus.append(sample_of(index, {**row, "processes": uses_of(processes.get(index, ()))}))
        yield (time, tuple(gpus))


UNREAD_VALUES = 4
"""From this many values on a page that cannot be read, the GPU counts as lost; a few may belong to
a missing sensor, as in CSV."""


def query_moments(lines: Iterable[str]) -> Iterator[LoggedMoment]:
    """Yields the moments of `nvidia-smi -q` or `-q -l`, one for each report."""
    for time, text in texts_of_moments(lines, BEGINS_QUERY):
        # The parts alternate: the address in a GPU's heading, then the page below that heading.
        pages = GPU_HEAD.split(text)[2::2]
        gpus = []
        for index, page in enumerate(pages):
            values: dict[str, Any] = dict(query_values(page))
            if len(NO_ANSWER.findall(page)) >= UNREAD_VALUES:
                values["lost"] = True
            gpus.append(sample_of(index, values))
        yield (time, tuple(gpus))


KINDS: Mapping[str | None, Any] = {
    "C": "compute", "M+C": "compute", "G": "graphics", "C+G": "both",
}  # fmt: skip


def uses_of(processes: Iterable[GpuProcess]) -> tuple[ProcessUse, ...] | None:
    """The processes as a sample has them, with the pid 0 for one that the list does not tell. None
    if there are none, because the list is always empty in a container."""
    uses = []
    for process in processes:
        kind, memory = KINDS.get(process.kind), process.memory_bytes
        use = ProcessUse(pid=process.pid or 0, name=process.name, kind=kind, memory_bytes=memory)
        uses.append(use)
    return tuple(uses) or None
