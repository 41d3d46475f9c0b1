"""Reads the outputs of `nvidia-smi` that are made for people: the table, the long output (`-q`) and
`dmon`. Pure functions.

A text may contain one moment, or many if nvidia-smi ran in a loop (`nvidia-smi -l 5 > FILE`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gpusetup.model.machine import Gpu
from gpusetup.model.units import MIB
from gpusetup.monitor.documents import GpuSample, ProcessUse, Sample
from gpusetup.monitor.links import pcie_limit
from gpusetup.monitor.sources import plausible
from gpusetup.monitor.throttling import POWER_VIOLATION, THERMAL_VIOLATION
from gpusetup.readings.nvidia_smi import (
    GPU_HEAD,
    SMI_VERSION,
    cell,
    gpu_of,
    integer,
    memory,
    number,
    parse_table,
    placed,
    read_at,
    row_of,
)

MOST_LINES_OF_A_MOMENT = 20_000
"""How many lines of a moment are read; `-q` prints about 6,000 for 16 GPUs."""


class SmiForm(NamedTuple):
    """One output format of nvidia-smi, with the functions that recognise and read it."""

    name: str
    begins: Callable[[str], bool]
    """Whether a line is the beginning of this format."""
    samples: Callable[[Iterable[str], float], Iterator[Sample]]
    tells_time: Callable[[Sequence[str]], bool]


def moments(lines: Iterable[str], begins: Callable[[str], bool]) -> Iterator[list[str]]:
    """Yields the lines of each moment, where `begins` recognises the first line of a moment."""
    moment: list[str] = []
    for line in lines:
        if begins(line) and moment:
            yield moment
            moment = []
        if len(moment) < MOST_LINES_OF_A_MOMENT:
            moment.append(line)
    if moment:
        yield moment


def timed(
    pictures: Iterable[tuple[datetime | None, tuple[GpuSample, ...]]], interval: float
) -> Iterator[Sample]:
    """Yields one sample for each group of GPUs, at its own time or, if that is missing, `interval`
    seconds after the previous sample."""
    start: datetime | None = None
    count = 0
    for time, gpus in pictures:
        if not gpus:
            continue
        start = start or time
        seconds = count * interval
        if time and start:
            # If the clock was set back, no time counts as passed.
            seconds = max(0.0, (time - start).total_seconds())
        count += 1
        at = time.isoformat() if time else ""
        yield Sample(at=at, seconds=seconds, gpus=gpus)


SMI_DATE = re.compile(
    r"(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2})\s+(\d{1,2})\s+(\d{1,2}:\d\d:\d\d)\s+(?:[AP]M )?(\d{4})"
)


def date_of(text: str) -> datetime | None:
    """The date and time in a line of nvidia-smi's table or long output; None if it contains none.

    >>> date_of("Thu Nov 20 06:03:41 2025"), date_of("Timestamp  : Thu Nov  6 06:03:41 2025")
    (datetime.datetime(2025, 11, 20, 6, 3, 41), datetime.datetime(2025, 11, 6, 6, 3, 41))
    """
    match = SMI_DATE.search(text)
    if match is None:
        return None
    with contextlib.suppress(ValueError):
        return datetime.strptime(" ".join(match.groups()), "%b %d %H:%M:%S %Y")
    return None


def has_date(lines: Sequence[str]) -> bool:
    """Whether one of these lines contains a date and time."""
    dates = map(date_of, lines)
    # With dates, the time between two samples is known.
    return any(dates)


# --- the table ------------------------------------------------------------------------------------

PROCESS = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+(?:\S+\s+\S+\s+)?(?P<pid>\d+)\s+(?P<kind>C\+G|M\+C|C|G)\s+"
    r"(?P<name>\S.*?)\s+(?P<memory>\d+\s*MiB|N/A)\s*\|"
)
"""Matches `|    0   N/A  N/A      4711      C   python3      5120MiB |`; drivers before 450
print no `N/A`."""
KINDS: Mapping[str, Any] = {"C": "compute", "M+C": "compute", "G": "graphics", "C+G": "both"}


def begins_table(line: str) -> bool:
    """Whether a line is the banner of nvidia-smi's table."""
    # The banner looks like `| NVIDIA-SMI 580.95.05  Driver Version: ...`.
    match = SMI_VERSION.search(line)
    return match is not None


def is_table(line: str) -> bool:
    """Whether a line is the banner of nvidia-smi's table, or a GPU's row without the banner."""
    if begins_table(line):
        return True
    # Every row of the table contains a vertical bar.
    if "|" not in line:
        return False
    return row_of(line) is not None


def table_samples(lines: Iterable[str], interval: float) -> Iterator[Sample]:
    """Yields the samples of a single table, or of all tables that `nvidia-smi -l` printed."""
    tables = moments(lines, begins_table)
    # A table's date is above its banner, so it ends up among the lines of the previous table.
    pictures = dated(tables, table_gpus)
    return timed(pictures, interval)


def dated(
    pictures: Iterable[Sequence[str]], read: Callable[[str], tuple[GpuSample, ...]]
) -> Iterator[tuple[datetime | None, tuple[GpuSample, ...]]]:
    """Yields the GPUs of each table with the table's time; the time is None if there is no date
    above or in the table."""
    date_before: datetime | None = None
    for lines in pictures:
        dates = [date for date in map(date_of, lines) if date]
        first_date = dates[0] if dates else None
        text = "".join(lines)
        yield date_before or first_date, read(text)
        # The last date among these lines belongs to the next table.
        date_before = dates[-1] if dates else None


def table_gpus(text: str) -> tuple[GpuSample, ...]:
    """The GPUs in one table, with the processes on each GPU."""
    gpus = parse_table(text).gpus or ()
    has_process_list = "Processes:" in text
    samples = []
    for position, gpu in enumerate(gpus):
        # A row that was cut off may lack its index.
        index = position if gpu.nvml_index is None else gpu.nvml_index
        processes = processes_on(index, text) if has_process_list else None
        sample = sample_of(gpu, index, processes)
        samples.append(plausible(sample))
    return tuple(samples)


def processes_on(index: int, text: str) -> tuple[ProcessUse, ...] | None:
    """The processes listed for a GPU; None for an empty list, as in a container."""
    rows = [match for match in PROCESS.finditer(text) if int(match["gpu"]) == index]
    uses = tuple(
        ProcessUse(
            pid=int(row["pid"]),
            name=row["name"],
            kind=KINDS[row["kind"]],
            memory_bytes=memory(row["memory"]),
        )
        for row in rows
    )
    return uses or None


def sample_of(
    gpu: Gpu, index: int, processes: tuple[ProcessUse, ...] | None = None, **more: Any
) -> GpuSample:
    return GpuSample(
        index=index,
        name=gpu.name,
        uuid=gpu.uuid,
        utilization_percent=more.pop("utilization_percent", gpu.utilization_percent),
        memory_used_bytes=gpu.memory_used_bytes,
        memory_total_bytes=gpu.memory_total_bytes,
        temperature_celsius=gpu.temperature_celsius,
        power_watts=gpu.power_watts,
        power_limit_watts=gpu.power_limit_watts,
        throttle_reasons=gpu.throttle_reasons,
        pcie_width=gpu.pcie_width,
        pcie_width_max=gpu.pcie_width_max,
        ecc_uncorrected=gpu.ecc_uncorrected,
        retired_pending=gpu.retired_pending,
        remap_failed=gpu.remap_failed,
        processes=more.pop("processes", processes),
        lost=bool(gpu.lost),
        **more,
    )


# --- the long output ------------------------------------------------------------------------------

LOG_HEAD = "NVSMI LOG"


def megahertz(text: str) -> int | None:
    """The MHz in a text such as `1980 MHz`; None if it contains no number."""
    value = number(text)
    # `N/A` means that this GPU does not report it.
    if value is None:
        return None
    return round(value)


def kilobytes(text: str) -> float | None:
    """The bytes per second in a text such as `84000 KB/s`; None if it contains no number."""
    value = number(text)
    # Virtual GPUs report no rates.
    if value is None:
        return None
    return value * 1000


QUERY_FIELDS: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("utilization_percent", "Utilization/GPU", number),
    ("memory_busy_percent", "Utilization/Memory", number),
    ("power_limit_default_watts", "Default Power Limit", number),
    ("power_limit_max_watts", "Max Power Limit", number),
    ("clock_sm_mhz", "Clocks/SM", megahertz),
    ("clock_sm_max_mhz", "Max Clocks/SM", megahertz),
    ("pcie_generation", "PCIe Generation/Current", integer),
    ("pcie_generation_max", "PCIe Generation/Max", integer),
    ("pcie_rx_bytes_per_second", "Rx Throughput", kilobytes),
    ("pcie_tx_bytes_per_second", "Tx Throughput", kilobytes),
)
"""Field name, its place in the output (heading and label), and the function that reads its text."""


def query_processes(lines: Sequence[tuple[str, str]]) -> tuple[ProcessUse, ...] | None:
    """The processes listed for a GPU in the long output. None if no process is listed, because in a
    container the list is always empty."""
    facts: list[dict[str, str]] = []
    for place, text in lines:
        heading, _, label = place.rpartition("/")
        if label == "Process ID":
            facts.append({})
        # `Type`, `Name` and `Used GPU Memory` follow below the process ID.
        if facts and "Processes" in heading:
            facts[-1][label] = text.strip()
    uses = []
    for fact in facts:
        use = ProcessUse(
            pid=integer(fact.get("Process ID")) or 0,
            name=cell(fact.get("Name")),
            kind=KINDS.get(fact.get("Type", "")),
            memory_bytes=memory(fact.get("Used GPU Memory")),
        )
        uses.append(use)
    return tuple(uses) or None


def begins_query(line: str) -> bool:
    return LOG_HEAD in line


def query_samples(lines: Iterable[str], interval: float) -> Iterator[Sample]:
    """Yields the samples of `nvidia-smi -q` or `-q -l`, one for each report."""
    pictures = query_pictures(lines)
    # Each report contains its time; `interval` is only used if that is cut off.
    return timed(pictures, interval)


def query_pictures(
    lines: Iterable[str],
) -> Iterator[tuple[datetime | None, tuple[GpuSample, ...]]]:
    """Yields the time and the GPUs of each report."""
    for report in moments(lines, begins_query):
        date = date_of_query(report)
        text = "".join(report)
        yield date, query_gpus(text)


def date_of_query(lines: Sequence[str]) -> datetime | None:
    """The time of a report, from its first `Timestamp` line; None if it has none."""
    for line in lines:
        # A report has only one such line.
        if line.strip().startswith("Timestamp"):
            return date_of(line)
    return None


def query_gpus(text: str) -> tuple[GpuSample, ...]:
    """The GPUs in one report of `nvidia-smi -q`."""
    _, *parts = GPU_HEAD.split(text)
    # The parts alternate: values captured from a GPU's heading, then the page below that heading.
    pages = parts[1::2]
    samples = []
    for index, page in enumerate(pages):
        lines = tuple(placed(page))
        values: dict[str, Any] = {}
        for field, place, reads in QUERY_FIELDS:
            texts = read_at(lines, place, reads)
            if texts:
                values[field] = texts[0]
        gpu = gpu_of(page)
        limit = pcie_limit(values.get("pcie_generation"), gpu.pcie_width)
        values["pcie_limit_bytes_per_second"] = limit
        values["processes"] = query_processes(lines)
        sample = sample_of(gpu, index, **values)
        samples.append(plausible(sample))
    return tuple(samples)


# --- dmon -----------------------------------------------------------------------------------------

DMON_COLUMNS: Mapping[str, tuple[str, float]] = {
    "pwr": ("power_watts", 1),
    "gtemp": ("temperature_celsius", 1),
    "sm": ("utilization_percent", 1),
    "mem": ("memory_busy_percent", 1),
    "pclk": ("clock_sm_mhz", 1),
    "mclk": ("clock_memory_mhz", 1),
    "fb": ("memory_used_bytes", MIB),
    "dbecc": ("ecc_uncorrected", 1),
    "rxpci": ("pcie_rx_bytes_per_second", 1e6),
    "txpci": ("pcie_tx_bytes_per_second", 1e6),
}
"""Maps each column of `nvidia-smi dmon` to our field and the factor to convert its unit."""


def begins_dmon(line: str) -> bool:
    """Whether a line is a header line of dmon with the column names, which dmon repeats regularly.

    >>> begins_dmon("# gpu    pwr  gtemp    sm   mem"), begins_dmon("#Date  Time  gpu  pwr")
    (True, True)
    """
    spaced = line.replace("#", "# ").lower()
    words = spaced.split()
    begins_with_hash = words[:1] == ["#"]
    # The second heading contains the units, but not the word `gpu`.
    return begins_with_hash and "gpu" in words


def dmon_samples(lines: Iterable[str], interval: float) -> Iterator[Sample]:
    """Yields the samples of `nvidia-smi dmon`."""
    pictures = dmon_pictures(lines)
    # dmon prints the time only with the options `-o T` or `-o DT`.
    return timed(pictures, interval)


def dmon_pictures(
    lines: Iterable[str],
) -> Iterator[tuple[datetime | None, tuple[GpuSample, ...]]]:
    """Yields the time and the GPUs of each moment; a new moment begins when a GPU appears again."""
    names: list[str] = []
    gpus: dict[int, GpuSample] = {}
    date: datetime | None = None
    for line in lines:
        if begins_dmon(line):
            names = line.replace("#", " ").lower().split()
            continue
        cells = line.split()
        row = dict(zip(names, cells, strict=False))
        gpu = dmon_gpu(row)
        # The line contains the units, or something that a shell printed.
        if gpu is None:
            continue
        if gpu.index in gpus:
            yield date, tuple(gpus.values())
            gpus = {}
        gpus[gpu.index] = gpu
        date = after_midnight(dmon_date(row), date)
    if gpus:
        yield date, tuple(gpus.values())


HALF_A_DAY = timedelta(hours=12)
"""If the time goes back by less than this, the clock was set back; otherwise midnight passed."""


def after_midnight(date: datetime | None, before: datetime | None) -> datetime | None:
    """The time of a row, moved to a later day if rows contain only the time of day and midnight
    passed since the previous row; None if the row has no time."""
    if date is None or before is None:
        return date
    while before - date > HALF_A_DAY:
        date += timedelta(days=1)
    return date


VIOLATIONS: Mapping[str, tuple[str, float]] = {
    "tviol": (THERMAL_VIOLATION, 1),
    "pviol": (POWER_VIOLATION, 50),
}
"""Maps each column of `nvidia-smi dmon -s v` to the throttle reason and to the value from which the
reason counts. `tviol` is 0 or 1; `pviol` is a percentage of the time, which is slightly above 0
even for a card at its rated power."""


def violations(row: Mapping[str, str]) -> tuple[str, ...] | None:
    """The throttle reasons in a row of dmon; None if the row has no columns for them (`-s v`)."""
    is_told = False
    reasons = []
    for column, (reason, least) in VIOLATIONS.items():
        value = number(row.get(column))
        if value is None:
            continue
        is_told = True
        if value >= least:
            reasons.append(reason)
    return tuple(reasons) if is_told else None


WHOLE_DMON_FIELDS = ("memory_used_bytes", "clock_sm_mhz", "clock_memory_mhz", "ecc_uncorrected")
"""Fields that contain whole numbers in a sample."""


def dmon_gpu(row: Mapping[str, str]) -> GpuSample | None:
    """The GPU in a row of dmon; None if the line is not a row."""
    index = row.get("gpu", "")
    if not index.isdecimal():
        return None
    values: dict[str, Any] = {}
    for column, (field, unit) in DMON_COLUMNS.items():
        text = row.get(column)
        # dmon prints a dash for a value that this GPU does not report.
        value = number(text)
        if value is not None:
            values[field] = value * unit
    for field in WHOLE_DMON_FIELDS:
        if field in values:
            values[field] = round(values[field])
    sample = GpuSample(index=int(index), throttle_reasons=violations(row), **values)
    return plausible(sample)


def dmon_date(row: Mapping[str, str]) -> datetime | None:
    """The time in the columns of `-o DT`, such as `20251120 06:03:41`, or of `-o T`, where the day
    is arbitrary; None if the row has no time."""
    names = ("time", "hh:mm:ss")
    times = [row[name] for name in names if name in row]
    # Without `-o T` or `-o DT`, the row has no time.
    if not times:
        return None
    date = row.get("date") or ANY_DAY
    try:
        return datetime.strptime(f"{date} {times[0]}", "%Y%m%d %H:%M:%S")
    except ValueError:
        return None


ANY_DAY = "20000101"
"""Used as the day if a log contains only the time of day, because only the time between samples
matters."""


def dmon_tells_time(lines: Sequence[str]) -> bool:
    """Whether dmon printed a column with the time (`-o T` or `-o DT`)."""
    for line in lines:
        words = line.replace("#", " ").lower().split()
        is_heading = begins_dmon(line)
        if is_heading and ("time" in words or "hh:mm:ss" in words):
            return True
    return False


def has_utilization(form: SmiForm, lines: Sequence[str]) -> bool:
    """Whether a recording can report utilisation; only a dmon log without a column `sm` cannot."""
    headings = [line.lower().split() for line in lines if begins_dmon(line)]
    if form.begins is not begins_dmon or not headings:
        return True
    return "sm" in headings[0]


FORMS = (
    SmiForm("nvidia-smi dmon", begins_dmon, dmon_samples, dmon_tells_time),
    SmiForm("nvidia-smi -q", begins_query, query_samples, has_date),
    SmiForm("nvidia-smi table", is_table, table_samples, has_date),
)


def form_that_begins(line: str) -> SmiForm | None:
    """The output format of nvidia-smi that begins with this line; None if no format does."""
    for form in FORMS:
        # No two formats begin with the same line, so their order does not matter.
        if form.begins(line):
            return form
    return None
